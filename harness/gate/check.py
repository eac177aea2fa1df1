"""What a comparison found: one check per cell, variant and metric, and the verdict over all."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from harness.gate.judging import Judgement
from harness.gate.metric import METRICS, Scale
from harness.gate.resampling import Effect
from harness.gate.settings import GateSettings
from harness.gate.verdict import Verdict, overall

WHOLE = "all"
"""Stands for the variant or metric of a check that is about more than one."""


@dataclass(frozen=True, slots=True)
class Check:
    """One metric of one variant of one cell; or a cell or variant that couldn't be compared.

    Attributes:
        cell: label of the cell.
        variant: its id in BASE (in HEAD where BASE has none), or `all`.
        metric: name, or `all`.
        verdict: of this check.
        gated: whether it decides.
        base: figure of BASE.
        head: figure of HEAD.
        change: HEAD - BASE for shares, HEAD / BASE - 1 for all else.
        low: lower end of its interval.
        high: upper end.
        margin: the largest change that counts as none.
        reason: why the verdict isn't a plain one.
        num_prompts: the figure stands on.
        num_repeats: the fewest of a prompt, in either run.
        times_more: how many times the prompts or repeats would decide an inconclusive one.
    """

    cell: str
    variant: str
    metric: str
    verdict: Verdict
    gated: bool = True
    base: float | None = None
    head: float | None = None
    change: float | None = None
    low: float | None = None
    high: float | None = None
    margin: float | None = None
    reason: str | None = None
    num_prompts: int | None = None
    num_repeats: int | None = None
    times_more: float | None = None

    def because(self, reason: str) -> Check:
        """The check as incomparable, with the reason."""
        return replace(self, verdict=Verdict.INCOMPARABLE, reason=reason)

    def measured(self, effect: Effect, margin: float) -> Check:
        """The check with its figures, before it's judged."""
        change = effect.change(effect.estimate)
        return replace(self, base=effect.base, head=effect.head, change=change, margin=margin)

    def reported(self, base: object, head: object) -> Check:
        """The check as figures that are shown and not judged; what isn't a number is left out."""
        figures = [_finite(value) for value in (base, head)]
        change = figures[1] / figures[0] - 1 if figures[0] and figures[1] is not None else None
        return replace(
            self, verdict=Verdict.REPORTED, gated=False, base=figures[0], head=figures[1], change=change
        )

    def judged(self, judgement: Judgement) -> Check:
        """The check with its verdict."""
        return replace(
            self,
            verdict=judgement.verdict,
            low=judgement.low,
            high=judgement.high,
            reason=judgement.reason,
            times_more=judgement.times_more,
        )

    @property
    def is_notable(self) -> bool:
        """Whether a reader needs to see it: gated, and not simply passed."""
        return self.gated and self.verdict not in (Verdict.PASS, Verdict.REPORTED)

    @property
    def is_difference(self) -> bool:
        """Whether the change is a difference of shares, not a ratio."""
        return self.metric in METRICS and METRICS[self.metric].scale is Scale.DIFFERENCE

    @property
    def needed_prompts(self) -> int | None:
        """Prompts that would decide an inconclusive check."""
        return _scaled(self.num_prompts, self.times_more)

    @property
    def needed_repeats(self) -> int | None:
        """Repeats that would, as far as the noise is between repeats of a prompt."""
        return _scaled(self.num_repeats, self.times_more)


@dataclass(frozen=True, slots=True)
class Comparison:
    """All checks of two runs.

    Attributes:
        base: name of the run compared with.
        head: name of the run that is judged.
        settings: of the gate; None where it couldn't be read.
        checks: in reading order.
        cautions: what a reader should know before believing the checks.
        error: what kept the runs from being compared.
    """

    base: str
    head: str
    settings: GateSettings | None
    checks: Sequence[Check] = field(default_factory=tuple)
    cautions: Sequence[str] = field(default_factory=tuple)
    error: str | None = None

    @property
    def verdict(self) -> Verdict:
        """Error, or the worst of the gated checks; nothing gated is incomparable."""
        if self.error is not None:
            return Verdict.ERROR
        return overall(check.verdict for check in self.checks if check.gated)

    @property
    def notable(self) -> list[Check]:
        """Gated checks that didn't simply pass, the worst first."""
        worst_first = sorted(self.checks, key=lambda check: check.verdict.severity)
        return [check for check in worst_first if check.is_notable]

    @property
    def counts(self) -> dict[Verdict, int]:
        """Gated checks by verdict."""
        found = Counter(check.verdict for check in self.checks if check.gated)
        return {verdict: found[verdict] for verdict in Verdict if found[verdict]}


def _scaled(number: int | None, times_more: float | None) -> int | None:
    return None if number is None or times_more is None else math.ceil(number * times_more)


def _finite(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
