"""Correcting p-values where many comparisons are looked at together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values that keep the chance of any false rejection, under any dependence.

    Source: Holm, "A Simple Sequentially Rejective Multiple Test Procedure", 1979.
    """
    values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    factors = np.arange(values.size, 0, -1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.maximum.accumulate(values[order] * factors), 1.0)
    return [float(value) for value in adjusted]
