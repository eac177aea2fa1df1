"""Drafters that read the target's hidden states, while they're trained: what they have in common."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from harness.training.batches import Batch
from harness.training.student import distillation_loss
from harness.training.target_tensors import starting_tensors

STEP_DECAY = 0.8
"""Weight of each further drafted token in the loss: it counts only where those before it stand."""


class HeadStudent(nn.Module):
    """Predicts hidden states of the target's next positions; its LM head is the target's, frozen.

    Args:
        head: [draft_vocab, hidden] rows of the target's LM head.
        draft_vocab: [draft_vocab] ids of those rows.
        num_steps: drafted tokens it is trained for.
    """

    def __init__(self, head: Tensor, draft_vocab: NDArray[np.int32], *, num_steps: int) -> None:
        """See the class."""
        super().__init__()
        self.draft_vocab, self.num_steps = draft_vocab, num_steps
        self.register_buffer("head", head.to(torch.bfloat16), persistent=False)

    @abstractmethod
    def drafted(self, batch: Batch) -> list[Tensor]:
        """Hidden states that the first, second, ... drafted token is read from.

        Args:
            batch: with the target's hidden states, and no position before column `num_steps`.

        Returns:
            Per step [positions, hidden], what it knows of a position when it drafts that many steps ahead.
        """

    @abstractmethod
    def save(self, target_dir: Path, folder: Path) -> None:
        """Write what engines load: `config.json`, safetensors and `draft_vocab.npy`."""

    def start_from(self, folder: Path) -> None:
        """Take the trained tensors of a folder that `save` wrote, or of public heads of the same shapes.

        Raises:
            ConfigError: a tensor is missing there or has another shape.
        """
        remedy = "Name a head of the same kind for the same target, with as many heads and blocks."
        self.load_state_dict(starting_tensors(folder, self.state_dict(), remedy=remedy))

    def logits(self, hidden: Tensor) -> Tensor:
        """[positions, draft_vocab] from hidden states."""
        with torch.autocast("cpu", torch.bfloat16):
            return functional.linear(hidden.to(torch.bfloat16), self.head)  # type: ignore[arg-type]

    def loss(self, batch: Batch, *, overlap_weight: float) -> Tensor:
        """The distillation loss of every step, later ones weighing less."""
        batch = batch.from_column(self.num_steps)
        weights = [STEP_DECAY**step for step in range(self.num_steps)]
        losses = [
            weight * self.step_loss(hidden, batch, overlap_weight=overlap_weight)
            for weight, hidden in zip(weights, self.drafted(batch), strict=True)
        ]
        return torch.stack(losses).sum() / sum(weights)

    def step_loss(self, hidden: Tensor, batch: Batch, *, overlap_weight: float) -> Tensor:
        """The loss of one step, a scalar."""
        return distillation_loss(self.logits(hidden), batch, overlap_weight=overlap_weight)

    @torch.no_grad()
    def evaluate(self, batches: list[Batch]) -> dict[str, float]:
        """Held-out acceptance by position of the draft, on the target's own text.

        Returns:
            Per step the agreement (share of positions where its likeliest token is the target's: the
            acceptance of greedy drafts given that those before stood) and the overlap
            (sum min(p, q), the acceptance at temperature 1); and the tokens per target forward of
            greedy chains drafted from every position.
        """
        scores = [_Score() for _ in range(self.num_steps)]
        starts, emitted = 0, 0.0
        for batch in (batch.from_column(self.num_steps) for batch in batches):
            agreed = [
                score.add(self.logits(hidden).float(), batch)
                for score, hidden in zip(scores, self.drafted(batch), strict=True)
            ]
            chains = _chains(agreed, batch.where[0])
            starts, emitted = starts + chains.shape[1], emitted + float(chains.sum())
        named: dict[str, float] = {}
        for step, score in enumerate(scores, start=1):
            named |= {f"agreement_{step}": score.agreement, f"overlap_{step}": score.overlap}
        return {**named, "tokens_per_forward": 1 + emitted / max(starts, 1)}


class _Score:
    """Sums over positions of one step."""

    def __init__(self) -> None:
        self._same, self._overlap, self._positions = 0.0, 0.0, 0

    def add(self, logits: Tensor, batch: Batch) -> Tensor:
        """Count a batch; returns where the likeliest token is the target's, [positions]."""
        known = batch.top_columns >= 0
        probs = logits.softmax(-1).gather(1, batch.top_columns.clamp(min=0)) * known
        same = logits.argmax(-1) == batch.top_columns[:, 0]
        self._same += float(same.sum())
        self._overlap += float(torch.minimum(batch.top_probs * known, probs).sum())
        self._positions += len(logits)
        return same

    @property
    def agreement(self) -> float:
        return self._same / max(self._positions, 1)

    @property
    def overlap(self) -> float:
        return self._overlap / max(self._positions, 1)


def _chains(agreed: list[Tensor], rows: Tensor) -> Tensor:
    """Whether the first 1, 2, ... steps of a draft stand, from each position a whole draft follows.

    Args:
        agreed: per step [positions], at the position that the step predicts.
        rows: [positions] row of each position; those of a row follow each other.

    Returns:
        Boolean [steps, starts].
    """
    steps, last = len(agreed), len(rows) - len(agreed) + 1
    if last < 1:
        return torch.zeros((steps, 0), dtype=torch.bool)
    whole = rows[:last] == rows[steps - 1 :]
    shifted = torch.stack([same[step : step + last] for step, same in enumerate(agreed)])
    return shifted.cumprod(0).bool()[:, whole]
