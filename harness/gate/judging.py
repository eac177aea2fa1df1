"""Verdicts by equivalence: inside the margin, beyond it, or not known yet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import stdtr, stdtrit

from harness.gate.metric import Scale
from harness.gate.resampling import Effect
from harness.gate.verdict import Verdict
from harness.metrics.multiplicity import holm

_TOO_FEW = "an interval needs two or more prompts (or batches of prompts)"
_MOST_TIMES_MORE = 1000
# Normal quantiles of 0.8 and 0.9: an estimate lands this many standard errors off in one case of five.
_ONE_SIDED_POWER = 0.84
_TWO_SIDED_POWER = 1.28


@dataclass(frozen=True, slots=True)
class Change:
    """One change to be judged.

    Attributes:
        effect: the change.
        margin: the largest change that counts as none.
        higher_is_better: which way is a regression.
    """

    effect: Effect
    margin: float
    higher_is_better: bool

    @property
    def bounds(self) -> tuple[float, float]:
        """The margin's ends on the scale of the estimate."""
        if self.effect.scale is Scale.DIFFERENCE:
            return -self.margin, self.margin
        return math.log1p(-self.margin), math.log1p(self.margin)

    @property
    def p_worse(self) -> float:
        """One-sided p-value of "not worse than the margin allows"."""
        return self._p_below() if self.higher_is_better else self._p_above()

    @property
    def p_better(self) -> float:
        """One-sided p-value of "not better than the margin allows"."""
        return self._p_above() if self.higher_is_better else self._p_below()

    def _p_below(self) -> float:
        return _p(self.effect.estimate - self.bounds[0], self.effect)

    def _p_above(self) -> float:
        return _p(self.bounds[1] - self.effect.estimate, self.effect)


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict and what it stands on.

    Attributes:
        verdict: pass, improvement, regression or inconclusive.
        low: lower end of the interval of the change as a reader has it, None without one.
        high: upper end.
        reason: what an inconclusive one lacks.
        times_more: how many times the prompts (or repeats) would decide it; None if that can't be said.
    """

    verdict: Verdict
    low: float | None = None
    high: float | None = None
    reason: str | None = None
    times_more: float | None = None


def judge(changes: Sequence[Change], *, confidence: float) -> list[Judgement]:
    """Judge a family of changes together.

    Passing needs the interval at `confidence` inside the margin: since all must pass, passing needs no
    correction (an intersection-union test). A regression is any one of many, so its p-value is corrected by
    Holm's method over the family, and likewise an improvement.

    Args:
        changes: all that count together.
        confidence: of each interval, two-sided, and of the family's regressions.

    Source: Schuirmann 1987 (two one-sided tests); Berger 1982 (intersection-union); Holm 1979.
    """
    level = (1 - confidence) / 2
    worse = holm([change.p_worse for change in changes])
    better = holm([change.p_better for change in changes])
    return [
        _judgement(change, p_values, level, len(changes))
        for change, *p_values in zip(changes, worse, better, strict=True)
    ]


def judge_exactly(effect: Effect, margin: float) -> Judgement:
    """Judge a count that is no sample: any change beyond the margin is one."""
    found = effect.estimate
    if found < -margin:
        verdict = Verdict.REGRESSION
    else:
        verdict = Verdict.IMPROVEMENT if found > margin else Verdict.PASS
    return Judgement(verdict, found, found)


def _judgement(change: Change, adjusted: Sequence[float], level: float, family: int) -> Judgement:
    effect = change.effect
    if effect.standard_error is None:
        return Judgement(Verdict.INCONCLUSIVE, reason=_TOO_FEW)
    half = -float(stdtrit(effect.degrees, level)) * effect.standard_error
    low, high = effect.estimate - half, effect.estimate + half
    ends = effect.change(low), effect.change(high)
    least, most = change.bounds
    if low >= least and high <= most:
        return Judgement(Verdict.PASS, *ends)
    if adjusted[0] <= level:
        return Judgement(Verdict.REGRESSION, *ends)
    if adjusted[1] <= level:
        return Judgement(Verdict.IMPROVEMENT, *ends)
    beyond = high < least or low > most
    reason = f"beyond the margin, but not once corrected for {family} comparisons" if beyond else None
    return Judgement(Verdict.INCONCLUSIVE, *ends, reason, _times_more(change, level, family))


def _times_more(change: Change, level: float, family: int) -> float | None:
    """How many times more units would decide with four chances in five, as errors shrink with their root.

    Where the interval holds no change, none is what is assumed, and the aim is to pass; else the change is
    taken as measured. None where that lies too close to the margin's end.
    """
    effect, (least, most) = change.effect, change.bounds
    error, quantile = effect.standard_error or 0.0, -float(stdtrit(effect.degrees, level))
    if abs(effect.estimate) <= quantile * error:
        reach, distance = (quantile + _TWO_SIDED_POWER) * error, min(-least, most)
    else:
        inside = least <= effect.estimate <= most
        quantile = quantile if inside else -float(stdtrit(effect.degrees, level / family))
        reach = (quantile + _ONE_SIDED_POWER) * error
        distance = min(abs(effect.estimate - least), abs(effect.estimate - most))
    if not distance or (reach / distance) ** 2 > _MOST_TIMES_MORE:
        return None
    return max((reach / distance) ** 2, 1.0)


def _p(distance: float, effect: Effect) -> float:
    """P of an estimate this far beyond or further, if the truth lay on the margin's end."""
    if effect.standard_error is None:
        return 1.0
    if effect.standard_error == 0:
        return 0.0 if distance < 0 else 1.0
    return float(stdtr(effect.degrees, distance / effect.standard_error))
