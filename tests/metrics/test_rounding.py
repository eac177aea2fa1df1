from __future__ import annotations

import numpy as np
import pytest

from harness.metrics.rounding import FLOAT32_TIE_ROUNDINGS, TIE_ROUNDINGS, is_tie, roundings_apart


@pytest.mark.parametrize("value", [1.0, 15.99, 16.0, 24.5, -24.5, 0.03])
@pytest.mark.parametrize(("bits", "kind"), [(11, np.float16), (24, np.float32)])
def test_one_rounding_is_the_spacing_of_the_format(value: float, bits: int, kind: type[np.floating]) -> None:
    best = kind(value)
    larger, smaller = sorted((best, np.nextafter(best, kind(0))), reverse=True)
    gap = roundings_apart(float(larger), float(smaller), significant_bits=bits)
    # just below a power of two, numbers lie twice as close
    assert gap in (0.5, 1.0)


def test_bfloat16_keeps_eight_bits() -> None:
    assert roundings_apart(24.125, 24.0, significant_bits=8) == 1.0
    assert roundings_apart(24.0, 22.0, significant_bits=8) == 16.0
    assert roundings_apart(-8.0, -8.5, significant_bits=8) == 8.0
    assert roundings_apart(0.0, 0.0, significant_bits=8) == 0.0


def test_float32_has_a_limit_of_its_own() -> None:
    assert is_tie(TIE_ROUNDINGS, significant_bits=8)
    assert not is_tie(TIE_ROUNDINGS + 1, significant_bits=8)
    assert is_tie(FLOAT32_TIE_ROUNDINGS, significant_bits=24)
    assert not is_tie(FLOAT32_TIE_ROUNDINGS + 1, significant_bits=24)
