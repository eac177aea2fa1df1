"""EAGLE and Medusa heads with random weights: often wrong, and so a test of everything but quality."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from engine.random_models import random_transformer
from safetensors.torch import save_file
from torch import Tensor

from harness.engine.architecture import Architecture
from harness.engine.drafters.eagle import EagleHead
from harness.engine.drafters.medusa import MedusaHeads
from harness.engine.linear import make_linear
from harness.engine.model import Transformer


def random_eagle(target: Transformer, seed: int = 5) -> EagleHead:
    arch, generator = target.architecture, torch.Generator().manual_seed(seed)
    donor = random_transformer(seed, vocab_size=arch.vocab_size, hidden_size=arch.hidden_size)
    model = Transformer(
        donor.architecture,
        embeddings=target.embeddings,
        layers=[replace(donor.layers[0], input_norm=None)],
        norm=None,
        head=target.head,
    )
    fuse = torch.randn(arch.hidden_size, 2 * arch.hidden_size, generator=generator)
    return EagleHead(model, make_linear(fuse * (2 * arch.hidden_size) ** -0.5), None)


def random_medusa(target: Transformer, *, num_heads: int, seed: int = 6) -> MedusaHeads:
    size, generator = target.architecture.hidden_size, torch.Generator().manual_seed(seed)
    blocks = [
        [make_linear(torch.randn(size, size, generator=generator) * 2 * size**-0.5)] for _ in range(num_heads)
    ]
    return MedusaHeads(blocks, [target.head], None)


def save_eagle_head(target: Path, folder: Path, *, seed: int) -> Path:
    """A folder with a bfloat16 head of the target's shape."""
    arch, generator = Architecture.from_checkpoint(target), torch.Generator().manual_seed(seed)
    hidden, inner = arch.hidden_size, arch.intermediate_size
    queries, keys = arch.num_heads * arch.head_dim, arch.num_kv_heads * arch.head_dim

    def matrix(out: int, size: int) -> Tensor:
        return (torch.randn(out, size, generator=generator) * size**-0.5).bfloat16()

    heads = {
        "q_proj": (queries, hidden),
        "k_proj": (keys, hidden),
        "v_proj": (keys, hidden),
        "o_proj": (hidden, queries),
    }
    feeds = {"gate_proj": (inner, hidden), "up_proj": (inner, hidden), "down_proj": (hidden, inner)}
    tensors = {f"layers.0.self_attn.{name}.weight": matrix(*shape) for name, shape in heads.items()}
    tensors |= {f"layers.0.mlp.{name}.weight": matrix(*shape) for name, shape in feeds.items()}
    tensors["layers.0.post_attention_layernorm.weight"] = torch.ones(hidden).bfloat16()
    tensors["fc.weight"] = matrix(hidden, 2 * hidden)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text((target / "config.json").read_text())
    return folder
