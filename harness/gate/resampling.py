"""A change between two runs with its uncertainty, by drawing the same prompts for both.

The prompts are the sample. A resample draws prompts with replacement and recomputes the figure of both runs
from the same draw, so that what makes a prompt easy or hard cancels. The standard deviation of the resampled
changes, corrected for the number of prompts, is the standard error; Student's t gives interval and p-values.
Quantiles of the resamples aren't used: a correction for many comparisons asks for tails so far out that a few
thousand resamples have nothing there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.gate.metric import Scale
from harness.metrics.bootstrap import resampling_weights

FloatArray = npt.NDArray[np.float64]
Statistic = Callable[[FloatArray], FloatArray]
"""From how often each unit was drawn, [num_draws, num_units], to the figure of each draw, [num_draws]."""

_MIN_FINITE_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class Effect:
    """What changed from BASE to HEAD.

    Attributes:
        base: the figure of BASE.
        head: the figure of HEAD.
        estimate: head - base, or log(head / base).
        standard_error: of the estimate; None with fewer than two units.
        num_units: prompts, or groups of prompts that were batched together.
        scale: which of the two the estimate is.
    """

    base: float
    head: float
    estimate: float
    standard_error: float | None
    num_units: int
    scale: Scale

    @property
    def degrees(self) -> int:
        """Degrees of freedom of the standard error."""
        return self.num_units - 1

    def change(self, value: float) -> float:
        """A value on the estimate's scale as the reader's change: a difference, or HEAD / BASE - 1."""
        return value if self.scale is Scale.DIFFERENCE else float(np.expm1(value))


def sum_ratio(above: FloatArray, below: FloatArray) -> Statistic:
    """The product of the column sums of `above` over that of `below`.

    Args:
        above: [num_units, num_columns].
        below: [num_units, num_columns].
    """

    def figure(weights: FloatArray) -> FloatArray:
        numerator, denominator = (weights @ above).prod(-1), (weights @ below).prod(-1)
        out = np.full(numerator.shape, np.nan)
        np.divide(numerator, denominator, out=out, where=denominator > 0)
        return out

    return figure


def median(values: FloatArray, units: npt.NDArray[np.int64]) -> Statistic:
    """The median over rows, each row counted as often as its unit was drawn.

    Args:
        values: [num_rows].
        units: [num_rows] index of each row's unit.
    """
    order = np.argsort(values, kind="stable")
    ranked, owners = values[order], units[order]

    def figure(weights: FloatArray) -> FloatArray:
        counts = weights[:, owners].cumsum(1)
        total = counts[:, -1:]
        below = (counts < np.floor((total + 1) / 2)).sum(1)
        above = (counts < np.floor(total / 2) + 1).sum(1)
        middle: FloatArray = (ranked[below] + ranked[above]) / 2
        return middle

    return figure


def effect(
    base: Statistic, head: Statistic, *, scale: Scale, num_units: int, num_resamples: int, seed: int
) -> Effect:
    """Estimate a change and its standard error.

    Args:
        base: figure of BASE over the common units.
        head: figure of HEAD over the same units in the same order.
        scale: of the change.
        num_units: common to both.
        num_resamples: of the units.
        seed: of the resampling.

    Raises:
        ValueError: a figure isn't a positive finite number where a ratio needs one, or not finite at all.
    """
    once = np.ones((1, num_units))
    before, after = float(base(once)[0]), float(head(once)[0])
    estimate = float(_change(np.asarray(before), np.asarray(after), scale))
    if not np.isfinite(estimate):
        raise ValueError(f"there's no {scale} between {before:g} (BASE) and {after:g} (HEAD)")
    error = None
    if num_units > 1:
        weights = resampling_weights(num_units, num_resamples, seed)
        changes = _change(base(weights), head(weights), scale)
        known = changes[np.isfinite(changes)]
        if known.size < _MIN_FINITE_SHARE * changes.size:
            raise ValueError("too few prompts have the figure to resample them")
        # Resampling n units understates the spread by sqrt((n - 1) / n), as a variance over n does.
        error = float(known.std() * np.sqrt(num_units / (num_units - 1)))
        # Equal figures in every draw leave rounding, not spread.
        error = 0.0 if error < 1e-12 else error
    return Effect(before, after, estimate, error, num_units, scale)


def _change(base: FloatArray, head: FloatArray, scale: Scale) -> FloatArray:
    if scale is Scale.DIFFERENCE:
        return head - base
    out = np.full(np.shape(base), np.nan)
    both = (base > 0) & (head > 0) & np.isfinite(base) & np.isfinite(head)
    np.divide(head, base, out=out, where=both)
    changed: FloatArray = np.log(out, out=np.full(np.shape(base), np.nan), where=both)
    return changed
