"""Rotary position embeddings."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from harness.engine.architecture import Architecture, RopeScaling


def rope_table(architecture: Architecture, num_positions: int) -> Tensor:
    """Tabulate the rotations as complex numbers of length 1.

    Args:
        architecture: gives head size, base and scaling.
        num_positions: rows to tabulate.

    Returns:
        complex64 [num_positions, head_dim / 2].

    Source: Su et al. 2021, "RoFormer", eq. 34.
    """
    half = torch.arange(0, architecture.head_dim, 2, dtype=torch.float64)
    frequencies = architecture.rope_theta ** -(half / architecture.head_dim)
    if architecture.rope_scaling is not None:
        frequencies = _scale_llama3(frequencies, architecture.rope_scaling)
    # Transformers keeps frequencies in float32; following it keeps long positions equal.
    angles = torch.outer(torch.arange(num_positions, dtype=torch.float32), frequencies.float())
    return torch.polar(torch.ones_like(angles), angles)


def _scale_llama3(frequencies: Tensor, scaling: RopeScaling) -> Tensor:
    wavelengths = 2 * math.pi / frequencies
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    smooth = (scaling.original_max_positions / wavelengths - low) / (high - low)
    smooth = smooth.clamp(0.0, 1.0)
    return (1 - smooth) * frequencies / scaling.factor + smooth * frequencies


def interleave(rows: Tensor, head_dim: int) -> Tensor:
    """Reorder a query or key projection so that the two numbers a rotation mixes lie side by side.

    Checkpoints keep them half a head apart. Scores don't change, as queries and keys are reordered alike.

    Args:
        rows: [num_heads * head_dim, ...] weights or bias.
        head_dim: of one head.
    """
    halves = rows.reshape(-1, 2, head_dim // 2, *rows.shape[1:])
    return halves.transpose(1, 2).reshape(rows.shape)


def rotate(heads: Tensor, rotations: Tensor) -> Tensor:
    """Rotate query or key heads to their positions: one complex product.

    Args:
        heads: [..., head_dim], interleaved.
        rotations: complex64, broadcastable to [..., head_dim / 2].

    Returns:
        float32, shaped like `heads`.
    """
    pairs = torch.view_as_complex(heads.float().reshape(*heads.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * rotations).flatten(-2)
