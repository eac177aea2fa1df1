"""The change of a ratio of sums between two measurements of the same units."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit


@dataclass(frozen=True, slots=True)
class PairedChange:
    """A difference of two ratios of sums, with its interval."""

    before: float
    after: float
    low: float
    high: float

    @property
    def estimate(self) -> float:
        """After less before."""
        return self.after - self.before


def paired_change(
    above: npt.ArrayLike,
    below: npt.ArrayLike,
    above_after: npt.ArrayLike,
    below_after: npt.ArrayLike,
    *,
    confidence: float = 0.95,
) -> PairedChange | None:
    """Compare sum(above) / sum(below) before and after, unit by unit.

    Args:
        above: [num_units] before.
        below: [num_units] before, not negative.
        above_after: [num_units] of the same units, after.
        below_after: [num_units] of the same units, after.
        confidence: of the interval.

    Returns:
        None with fewer than two units or nothing to divide by.

    Source: linearisation (delta method) of the difference, with Student's t of num_units - 1 degrees.
    """
    columns = [np.asarray(one, dtype=np.float64) for one in (above, below, above_after, below_after)]
    num_units = columns[0].size
    if num_units < 2 or not columns[1].sum() > 0 or not columns[3].sum() > 0:
        return None
    ratios, influences = [], []
    for top, bottom in (columns[:2], columns[2:]):
        ratios.append(float(top.sum() / bottom.sum()))
        influences.append((top - ratios[-1] * bottom) / bottom.sum())
    spread = np.sum((influences[1] - influences[0]) ** 2) * num_units / (num_units - 1)
    half = -float(stdtrit(num_units - 1, (1 - confidence) / 2)) * float(np.sqrt(spread))
    change = ratios[1] - ratios[0]
    return PairedChange(ratios[0], ratios[1], change - half, change + half)
