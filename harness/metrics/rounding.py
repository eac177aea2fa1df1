"""How far apart two logits are, in roundings of the number format they went through."""

from __future__ import annotations

import math

TIE_ROUNDINGS = 8.0
"""A tie in bfloat16 or float16. Between one token per forward and many, margins of the default target moved
by 0.6 roundings on average and by 5 at most: a tie can be read that far off, on either side."""

FLOAT32_TIE_ROUNDINGS = 128.0
"""In float32 the order of long sums counts for more than the last rounding: up to 27 were seen."""

_FLOAT32_BITS = 24


def is_tie(roundings: float, *, significant_bits: int) -> bool:
    """Whether a gap between two logits is too small for another batch shape to respect."""
    return roundings <= (FLOAT32_TIE_ROUNDINGS if significant_bits >= _FLOAT32_BITS else TIE_ROUNDINGS)


def roundings_apart(best: float, other: float, *, significant_bits: int) -> float:
    """The gap between two logits over the spacing of numbers as large as they are.

    Args:
        best: the larger logit.
        other: the smaller one.
        significant_bits: of the format: 8 for bfloat16, 11 for float16, 24 for float32.

    Returns:
        0 where they are equal; 1 where no number lies between them.
    """
    largest = max(abs(best), abs(other))
    if best == other or largest == 0:
        return 0.0
    spacing = 2.0 ** (math.floor(math.log2(largest)) - (significant_bits - 1))
    return (best - other) / spacing
