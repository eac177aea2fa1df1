"""EAGLE and Medusa heads with random weights: often wrong, and so a test of everything but quality."""

from __future__ import annotations

from dataclasses import replace

import torch
from engine.random_models import random_transformer

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
