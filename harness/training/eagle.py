"""An EAGLE head while it's trained: one decoder layer that predicts the target's next hidden state."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from harness.engine.architecture import Architecture
from harness.engine.rope import rope_table
from harness.models.checkpoint import read_config
from harness.training.batches import Batch
from harness.training.head_student import HeadStudent
from harness.training.learner import TrainingSettings
from harness.training.target_tensors import target_embeddings, target_head
from harness.training.unrolled import attend_unrolled, rotate_halves, shifted


@dataclass(frozen=True, slots=True)
class EagleSettings(TrainingSettings):
    """How an EAGLE head is trained.

    Attributes:
        num_steps: drafted tokens unrolled in training, each on the head's own features of the step before.
        feature_weight: weight of the distance to the target's hidden state.
        embedding_scale: factor on the embeddings' half of `fc`, which learns that much faster: embeddings
            are far smaller than hidden states (root mean squares of 0.14 and 2.0 in SmolLM2-135M).
    """

    num_steps: int = 3
    feature_weight: float = 0.1
    embedding_scale: float = 4.0


class EagleStudent(HeadStudent):
    """Maps [embedding of token t + 1 ; hidden state t] to hidden state t + 1.

    Names and layout are those of the public EAGLE heads: no norm before the attention, none at the end.

    Args:
        target_dir: checkpoint folder of the target, of the Llama family.
        settings: unrolled steps and loss.
        draft_vocab: [size] ids the frozen LM head covers.

    Source: Li et al. 2024, "EAGLE", section 4; unrolled training: Li et al. 2025, "EAGLE-3", section 3.2.
    """

    fc_factors: Tensor

    def __init__(self, target_dir: Path, settings: EagleSettings, *, draft_vocab: NDArray[np.int32]) -> None:
        """See the class."""
        super().__init__(target_head(target_dir, draft_vocab), draft_vocab, num_steps=settings.num_steps)
        self._feature_weight = settings.feature_weight
        self.arch = arch = Architecture.from_checkpoint(target_dir)
        self.register_buffer("embeddings", target_embeddings(target_dir), persistent=False)
        self.fc = nn.Linear(2 * arch.hidden_size, arch.hidden_size, bias=False)
        factors = torch.tensor([settings.embedding_scale, 1.0]).repeat_interleave(arch.hidden_size)
        self.register_buffer("fc_factors", factors, persistent=False)
        self.layers = nn.ModuleList([_decoder_layer(arch)])
        self._rotations = torch.empty(0)

    def drafted(self, batch: Batch) -> list[Tensor]:
        """Unroll: each step reads the features that the step before predicted.

        At row t stand token t + 1 and the hidden state t; step j sees the target's own rows up to
        t - j + 1 and, behind them, one row of each earlier step, as a draft does.
        """
        assert batch.features is not None
        tokens, known = batch.tokens[:, 1:], batch.features[:, :-1].to(torch.bfloat16)
        embedded = functional.embedding(tokens, self.embeddings)  # type: ignore[arg-type]
        rotations = self._rotation_rows(tokens.shape[1])
        rows, columns = batch.where
        context: list[tuple[Tensor, Tensor]] = []
        outputs: list[Tensor] = []
        with torch.autocast("cpu", torch.bfloat16):
            for _ in range(self.num_steps):
                predicted = self._step(torch.cat((embedded, known), -1), context, rotations)
                outputs.append(predicted[rows, columns - 1])
                known = shifted(predicted, 1).to(torch.bfloat16)
        return outputs

    def loss(self, batch: Batch, *, overlap_weight: float) -> Tensor:
        """The distillation loss of every step and the distance of the predicted hidden states."""
        kept = batch.from_column(self.num_steps)
        assert kept.features is not None
        self._expected = kept.features[kept.where].float()
        return super().loss(batch, overlap_weight=overlap_weight)

    def step_loss(self, hidden: Tensor, batch: Batch, *, overlap_weight: float) -> Tensor:
        """Distillation loss and feature distance of one step."""
        distance = functional.smooth_l1_loss(hidden.float(), self._expected)
        said = super().step_loss(hidden, batch, overlap_weight=overlap_weight)
        return said + self._feature_weight * distance

    def save(self, target_dir: Path, folder: Path) -> None:
        """Write a folder that vLLM's `eagle` method loads; it takes the full LM head from the target."""
        from safetensors.torch import save_file

        folder.mkdir(parents=True, exist_ok=True)
        config = read_config(target_dir)
        config |= {"num_hidden_layers": 1, "architectures": ["LlamaForCausalLM"], "dtype": "bfloat16"}
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        own = self.state_dict()
        own["fc.weight"] = own["fc.weight"] * self.fc_factors
        tensors = {name: t.to(torch.bfloat16).contiguous() for name, t in own.items()}
        tensors["embed_tokens.weight"] = self.embeddings.contiguous()  # type: ignore[operator]
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        np.save(folder / "draft_vocab.npy", self.draft_vocab)

    def start_from(self, folder: Path) -> None:
        """See `HeadStudent.start_from`."""
        super().start_from(folder)
        with torch.no_grad():
            self.fc.weight /= self.fc_factors

    def _step(self, pairs: Tensor, context: list[tuple[Tensor, Tensor]], rotations: Tensor) -> Tensor:
        attention, mlp, norm = (
            self.layers[0][name]  # type: ignore[index]
            for name in ("self_attn", "mlp", "post_attention_layernorm")
        )
        x = functional.linear(pairs, self.fc.weight * self.fc_factors)
        heads = [
            attention[f"{name}_proj"](x).unflatten(-1, (-1, self.arch.head_dim)).transpose(1, 2)
            for name in "qkv"
        ]
        queries, keys = rotate_halves(heads[0], rotations), rotate_halves(heads[1], rotations)
        context.append((keys, heads[2]))
        x = x + attention["o_proj"](attend_unrolled(queries, context).transpose(1, 2).flatten(2))
        normed = norm(x.float())
        out: Tensor = x + mlp["down_proj"](functional.silu(mlp["gate_proj"](normed)) * mlp["up_proj"](normed))
        return out

    def _rotation_rows(self, count: int) -> Tensor:
        if len(self._rotations) < count:
            self._rotations = rope_table(self.arch, count)
        return self._rotations[:count]


def _decoder_layer(arch: Architecture) -> nn.ModuleDict:
    hidden, inner = arch.hidden_size, arch.intermediate_size
    queries, keys = arch.num_heads * arch.head_dim, arch.num_kv_heads * arch.head_dim
    shapes: dict[str, dict[str, tuple[int, int]]] = {
        "self_attn": {
            "q_proj": (hidden, queries),
            "k_proj": (hidden, keys),
            "v_proj": (hidden, keys),
            "o_proj": (queries, hidden),
        },
        "mlp": {"gate_proj": (hidden, inner), "up_proj": (hidden, inner), "down_proj": (inner, hidden)},
    }
    parts: dict[str, Any] = {
        part: nn.ModuleDict({name: nn.Linear(*shape, bias=False) for name, shape in linears.items()})
        for part, linears in shapes.items()
    }
    return nn.ModuleDict({**parts, "post_attention_layernorm": nn.RMSNorm(hidden, eps=arch.norm_eps)})
