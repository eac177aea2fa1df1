"""Weights as small integers with scales: codes, and what they stand for."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from harness.errors import UnsupportedError

SCHEMES = ("none", "int8", "int4", "fp8")
INT4_GROUP = 32
"""Neighbouring weights of a row that share a scale and an offset in `int4`."""
INT8_LIMIT = 127
FP8_LIMIT = 448.0
"""Largest number of the 4-bit-exponent format."""

# of rows and groups without any spread, which would divide by zero
_SMALLEST_SCALE = 1e-30


@dataclass(frozen=True, slots=True)
class Int8Weight:
    """A matrix whose row i stands for `codes[i] * scales[i]`.

    Attributes:
        codes: int8 [out_features, in_features], from -127 to 127.
        scales: float32 [out_features].
    """

    codes: Tensor
    scales: Tensor

    def dequantized(self) -> Tensor:
        """What it stands for, float32 [out_features, in_features]."""
        return self.codes.float() * self.scales[:, None]


@dataclass(frozen=True, slots=True)
class Int4Weight:
    """A matrix whose groups of `INT4_GROUP` weights stand for `(codes - 8) * scale + offset`.

    Attributes:
        codes: uint8 [out_features, in_features], from 0 to 15.
        scales: float32 [out_features, in_features / INT4_GROUP].
        offsets: like `scales`.
    """

    codes: Tensor
    scales: Tensor
    offsets: Tensor

    def dequantized(self) -> Tensor:
        """What it stands for, float32 [out_features, in_features]."""
        steps = _grouped(self.codes.float()) - 8.0
        return (steps * self.scales[:, :, None] + self.offsets[:, :, None]).flatten(1)


def quantize_int8(weight: Tensor, *, dtype: torch.dtype = torch.float32) -> Int8Weight:
    """Round each row to 255 even steps around 0.

    Args:
        weight: [out_features, in_features].
        dtype: of the numbers that scales are rounded to before codes are chosen for them.
    """
    rows = weight.float()
    scales = (rows.abs().amax(1) / INT8_LIMIT).clamp_(min=_SMALLEST_SCALE).to(dtype).float()
    codes = (rows / scales[:, None]).round_().clamp_(-INT8_LIMIT, INT8_LIMIT)
    return Int8Weight(codes.to(torch.int8), scales)


def quantize_int4(weight: Tensor, *, dtype: torch.dtype = torch.float32) -> Int4Weight:
    """Round each group of neighbours to 16 even steps from its smallest to its largest.

    Args:
        weight: [out_features, in_features].
        dtype: of the numbers that scales and offsets are rounded to before codes are chosen for them.

    Raises:
        UnsupportedError: rows can't be cut into groups.
    """
    if weight.shape[1] % INT4_GROUP:
        raise UnsupportedError(
            f"int4 weights come in groups of {INT4_GROUP}, but a matrix of this model has rows of "
            f"{weight.shape[1]}. Use int8."
        )
    groups = _grouped(weight.float())
    lowest, highest = groups.aminmax(dim=2)
    scales = ((highest - lowest) / 15).clamp_(min=_SMALLEST_SCALE).to(dtype).float()
    offsets = (lowest + 8 * scales).to(dtype).float()
    codes = ((groups - offsets[:, :, None]) / scales[:, :, None]).round_().add_(8).clamp_(0, 15)
    return Int4Weight(codes.flatten(1).to(torch.uint8), scales, offsets)


def _grouped(rows: Tensor) -> Tensor:
    return rows.reshape(rows.shape[0], -1, INT4_GROUP)
