"""Intervals for ratios of sums: what another sample of prompts would have given.

A figure such as a speedup is a ratio of sums over prompts. The prompts are the sample: repeats of a prompt
are summed first, and prompts decoded in one batch stay together as one unit, since they share their seconds.
Numerator and denominator, variant and baseline, belong to the same units (paired).

The interval is Student's, on the logarithm of the figure (on the logit, for a share), with a standard error
from leaving out one unit at a time. docs/method.md has its coverage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit, stdtr, stdtrit

FloatArray = npt.NDArray[np.float64]

CONFIDENCE = 0.95
# Smaller spreads are rounding, not spread.
_NO_SPREAD = 1e-12


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its confidence interval.

    Attributes:
        estimate: the ratio over all units; None where it can't be computed.
        low: lower end, None without an interval.
        high: upper end, None without an interval.
        confidence: nominal coverage.
        num_units: prompts, or batches of prompts, that were sampled.
        reason: why the estimate or the interval is missing.
        p_value: two-sided, of a true ratio of 1; None where that is no question or there is no interval.
    """

    estimate: float | None
    low: float | None
    high: float | None
    confidence: float
    num_units: int
    reason: str | None = None
    p_value: float | None = None

    @property
    def relative_half_width(self) -> float | None:
        """Half the interval's length over the estimate, as the stop rule uses it."""
        if self.low is None or self.high is None or not self.estimate:
            return None
        return (self.high - self.low) / 2 / abs(self.estimate)


@dataclass(frozen=True, slots=True)
class _Scale:
    """Where a figure's estimates are spread evenly: there to, and back."""

    there: Callable[[Any], Any]
    back: Callable[[Any], Any]
    least: float
    most: float


_POSITIVE = _Scale(np.log, np.exp, 0.0, np.inf)
_SHARE = _Scale(logit, expit, 0.0, 1.0)
_PLAIN = _Scale(np.asarray, np.asarray, -np.inf, np.inf)


def group_sums(units: npt.ArrayLike, *columns: npt.ArrayLike) -> tuple[FloatArray, ...]:
    """Sum columns per unit, so that the repeats of a prompt become one unit of the sample.

    Args:
        units: [num_rows] label of the unit each row belongs to.
        columns: [num_rows] values.

    Returns:
        One [num_units] array per column, in the sorted order of the labels.
    """
    labels, index = np.unique(np.asarray(units), return_inverse=True)
    sums = [np.zeros(labels.size) for _ in columns]
    for total, column in zip(sums, columns, strict=True):
        np.add.at(total, index, np.asarray(column, dtype=np.float64))
    return tuple(sums)


def ratio_interval(
    numerator: npt.ArrayLike, denominator: npt.ArrayLike, *, confidence: float = CONFIDENCE
) -> Interval:
    """Interval of sum(numerator) / sum(denominator): a rate in tokens per second.

    Args:
        numerator: [num_units], not negative.
        denominator: [num_units], not negative.
        confidence: nominal coverage.
    """
    columns = _columns(numerator, denominator)
    return _interval(columns[:, :1], columns[:, 1:], _POSITIVE, confidence)[0]


def proportion_interval(
    part: npt.ArrayLike, whole: npt.ArrayLike, *, confidence: float = CONFIDENCE
) -> Interval:
    """Interval of sum(part) / sum(whole), a share between 0 and 1: an acceptance rate.

    Args:
        part: [num_units], at most `whole`.
        whole: [num_units], not negative.
        confidence: nominal coverage.
    """
    columns = _columns(part, whole)
    return _interval(columns[:, :1], columns[:, 1:], _SHARE, confidence)[0]


def speedup_interval(
    variant_tokens: npt.ArrayLike,
    variant_s: npt.ArrayLike,
    baseline_tokens: npt.ArrayLike,
    baseline_s: npt.ArrayLike,
    *,
    confidence: float = CONFIDENCE,
) -> Interval:
    """Interval of the variant's tokens per second over the baseline's, on the same units.

    Args:
        variant_tokens: [num_units] output tokens of the variant.
        variant_s: [num_units] the seconds they took.
        baseline_tokens: [num_units] output tokens of the baseline, same units in the same order.
        baseline_s: [num_units] the seconds they took.
        confidence: nominal coverage.

    Returns:
        With the p-value of "as fast as the baseline".
    """
    columns = _columns(variant_tokens, baseline_s, variant_s, baseline_tokens)
    found, error = _interval(columns[:, :2], columns[:, 2:], _POSITIVE, confidence)
    if error is None or not found.estimate:
        return found
    p_value = float(found.estimate == 1)
    if error:
        p_value = 2 * float(stdtr(found.num_units - 1, -abs(np.log(found.estimate)) / error))
    ends = (found.estimate, found.low, found.high)
    return Interval(*ends, confidence, found.num_units, p_value=p_value)


def _interval(
    above: FloatArray, below: FloatArray, scale: _Scale, confidence: float
) -> tuple[Interval, float | None]:
    """Interval of the product of the column sums of `above` over that of `below`, and its standard error.

    With theta the figure on its scale and theta_i without unit i, the variance is sum((theta_i - theta)^2):
    the jackknife's, larger by n / (n - 1), as HC3 is in regression; few units then cover as they should.

    Source: Efron and Stein 1981 (jackknife); MacKinnon and White 1985 (HC3).
    """
    num_units = above.shape[0]
    if num_units == 0:
        return Interval(None, None, None, confidence, 0, "nothing was measured"), None
    totals = above.sum(0), below.sum(0)
    estimate = float(_ratio(*totals))
    if not np.isfinite(estimate):
        return Interval(None, None, None, confidence, num_units, "the denominator is zero"), None
    if num_units < 2:
        reason = "an interval needs two or more prompts (or batches of prompts)"
        return Interval(estimate, None, None, confidence, num_units, reason), None
    without_each = _ratio(totals[0] - above, totals[1] - below)
    used, error = _standard_error(estimate, without_each, scale)
    if error is None:
        reason = "a single prompt (or batch of prompts) holds all there is to divide by"
        return Interval(estimate, None, None, confidence, num_units, reason), None
    if error < _NO_SPREAD:
        return Interval(estimate, estimate, estimate, confidence, num_units), 0.0
    half = -float(stdtrit(num_units - 1, (1 - confidence) / 2)) * error
    middle = used.there(estimate)
    low, high = (float(np.clip(used.back(middle + end), scale.least, scale.most)) for end in (-half, half))
    return Interval(estimate, low, high, confidence, num_units), error


def _standard_error(estimate: float, without_each: FloatArray, scale: _Scale) -> tuple[_Scale, float | None]:
    """On the figure's scale; on the plain one where a figure without one of the units has no place there."""
    for used in (scale, _PLAIN):
        with np.errstate(divide="ignore", invalid="ignore"):
            moved = used.there(without_each) - used.there(estimate)
        if np.isfinite(moved).all():
            return used, float(np.sqrt(np.sum(np.square(moved))))
    return _PLAIN, None


def _ratio(above: FloatArray, below: FloatArray) -> FloatArray:
    # what is left of a sum after subtracting all of it may be rounding
    numerator, denominator = np.maximum(above, 0.0).prod(-1), np.maximum(below, 0.0).prod(-1)
    out = np.full(np.shape(numerator), np.nan)
    np.divide(numerator, denominator, out=out, where=denominator > 0)
    return out


def _columns(*columns: npt.ArrayLike) -> FloatArray:
    arrays = [np.asarray(column, dtype=np.float64).ravel() for column in columns]
    sizes = {array.size for array in arrays}
    if len(sizes) != 1:
        raise ValueError(f"all columns need one entry per unit, got lengths {[a.size for a in arrays]}.")
    return np.stack(arrays, axis=1)
