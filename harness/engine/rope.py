"""Rotary position embeddings."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from harness.engine.architecture import Architecture, RopeScaling


def rope_tables(architecture: Architecture, num_positions: int) -> tuple[Tensor, Tensor]:
    """Tabulate cosines and signed sines.

    Args:
        architecture: gives head size, base and scaling.
        num_positions: rows to tabulate.

    Returns:
        Two float32 tensors [num_positions, head_dim]; the sine's first half is negated, so that
        `x * cos + roll(x, head_dim / 2) * sin` rotates.

    Source: Su et al. 2021, "RoFormer", eq. 34; half-split layout as in GPT-NeoX.
    """
    half = torch.arange(0, architecture.head_dim, 2, dtype=torch.float64)
    frequencies = architecture.rope_theta ** -(half / architecture.head_dim)
    if architecture.rope_scaling is not None:
        frequencies = _scale_llama3(frequencies, architecture.rope_scaling)
    # Transformers keeps frequencies in float32; following it keeps long positions equal.
    angles = torch.outer(torch.arange(num_positions, dtype=torch.float32), frequencies.float())
    return torch.cat((angles.cos(), angles.cos()), -1), torch.cat((-angles.sin(), angles.sin()), -1)


def _scale_llama3(frequencies: Tensor, scaling: RopeScaling) -> Tensor:
    wavelengths = 2 * math.pi / frequencies
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    smooth = (scaling.original_max_positions / wavelengths - low) / (high - low)
    smooth = smooth.clamp(0.0, 1.0)
    return (1 - smooth) * frequencies / scaling.factor + smooth * frequencies


def rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate query or key heads to their positions.

    Args:
        heads: [..., head_dim].
        cos: broadcastable to `heads`, from `rope_tables`.
        sin: signed sines, broadcastable to `heads`.
    """
    return torch.addcmul(heads * cos, heads.roll(heads.shape[-1] // 2, -1), sin)
