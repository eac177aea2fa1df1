"""What a training run asks of the drafter it trains, and the settings all of them share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor
from torch.nn import Parameter

from harness.training.batches import Batch


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """How a drafter is trained, whatever its kind.

    Attributes:
        draft_vocab_size: tokens of its reduced head.
        epochs: passes over the corpus.
        learning_rate: highest, after the warmup; it falls to a twentieth along a cosine.
        tokens_per_batch: padded tokens per step.
        max_prompt_tokens: longer prompts lose their beginning; a passage that is cut off can't teach a
            drafter to copy from it.
        overlap_weight: weight of the overlap term of the loss in the last half of training.
        seed: of the order of batches.
        checkpoint_every_s: seconds between checkpoints and held-out evaluations.
        num_threads: CPU threads.
        start_revision: SHA-256 of the trained drafter it goes on from; None starts afresh.
    """

    draft_vocab_size: int = 8192
    epochs: float = 5.0
    learning_rate: float = 1e-3
    tokens_per_batch: int = 4096
    max_prompt_tokens: int = 320
    overlap_weight: float = 0.5
    seed: int = 0
    checkpoint_every_s: float = 120.0
    num_threads: int = 2
    start_revision: str | None = None


class Learner(Protocol):
    """A drafter in training."""

    def parameters(self) -> Iterator[Parameter]:
        """What the optimizer changes."""

    def state_dict(self) -> dict[str, Any]:
        """The trained tensors."""

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any:
        """Take the tensors of a checkpoint."""

    def loss(self, batch: Batch, *, overlap_weight: float) -> Tensor:
        """What a step lowers, a scalar."""

    def evaluate(self, batches: list[Batch]) -> dict[str, float]:
        """Held-out quality, by name; each is better when larger."""
