"""Medusa heads while they're trained: residual blocks on the target's last hidden state."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from harness.models.checkpoint import read_config
from harness.training.batches import Batch
from harness.training.head_student import HeadStudent
from harness.training.learner import TrainingSettings
from harness.training.target_tensors import target_head


@dataclass(frozen=True, slots=True)
class MedusaSettings(TrainingSettings):
    """How Medusa heads are trained.

    Attributes:
        num_heads: drafted tokens; head i predicts the token i places after the target's own next one.
        num_blocks: residual blocks per head.
    """

    num_heads: int = 4
    num_blocks: int = 1


class MedusaStudent(HeadStudent):
    """Heads that start as the target's own, and learn to see further.

    Args:
        target_dir: checkpoint folder of the target.
        settings: number of heads and blocks.
        draft_vocab: [size] ids the shared LM head covers.

    Source: Cai et al. 2024, "Medusa", section 2.1.
    """

    def __init__(self, target_dir: Path, settings: MedusaSettings, *, draft_vocab: NDArray[np.int32]) -> None:
        """See the class."""
        super().__init__(target_head(target_dir, draft_vocab), draft_vocab, num_steps=settings.num_heads)
        hidden = self.head.shape[1]  # type: ignore[index]
        self.blocks = nn.ModuleList(
            nn.ModuleDict({"layers": nn.ModuleList(_block(int(hidden)) for _ in range(settings.num_blocks))})
            for _ in range(settings.num_heads)
        )

    def drafted(self, batch: Batch) -> list[Tensor]:
        """Head i looks from i positions before the one it predicts."""
        assert batch.features is not None
        rows, columns = batch.where
        return [
            self._head(head, batch.features[rows, columns - step].to(torch.bfloat16))
            for step, head in enumerate(self.blocks, start=1)
        ]

    def save(self, target_dir: Path, folder: Path) -> None:
        """Write a folder that vLLM's `medusa` method loads.

        It holds the whole LM head: vLLM 0.32 has a `token_map` for a reduced one, but its loader then
        refuses the checkpoint.
        """
        from safetensors.torch import save_file

        folder.mkdir(parents=True, exist_ok=True)
        base = read_config(target_dir)
        config = {
            "architectures": ["MedusaModel"],
            "model_type": "medusa",
            "hidden_size": base["hidden_size"],
            "vocab_size": base["vocab_size"],
            "num_heads": len(self.blocks),
            "num_hidden_layers": len(self.blocks[0]["layers"]),  # type: ignore[index]
            "medusa_fc_bias": True,
            "original_lm_head": True,
            "dtype": "bfloat16",
        }
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        tensors = {name: t.to(torch.bfloat16).contiguous() for name, t in self.state_dict().items()}
        tensors["lm_head.weight"] = target_head(target_dir).contiguous()
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        np.save(folder / "draft_vocab.npy", self.draft_vocab)

    def _head(self, head: nn.Module, hidden: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            for layer in head["layers"]:  # type: ignore[index]
                hidden = hidden + functional.silu(layer(hidden))
            return hidden


def _block(hidden_size: int) -> nn.Linear:
    layer = nn.Linear(hidden_size, hidden_size)
    # silu(0) = 0: each head starts as the target's own
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
