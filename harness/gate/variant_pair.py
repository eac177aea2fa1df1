"""One variant in both runs: whether its rows can be compared, and a check per metric."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from harness.gate.check import WHOLE, Check
from harness.gate.evidence import NotComparableError, Sample, agreement_change, change_of
from harness.gate.judging import Change, judge_exactly
from harness.gate.metric import GREEDY_AGREEMENT, METRICS, Metric, Tier
from harness.gate.settings import GateSettings
from harness.gate.verdict import Verdict
from harness.records import Status

_TRIAL_KEYS = ["prompt_id", "repeat", "block"]


@dataclass(frozen=True, slots=True)
class Pending:
    """A check, and the change that its verdict still waits for; None where it has its verdict."""

    check: Check
    change: Change | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """What one run stored about a variant.

    Attributes:
        variant: as recorded.
        facts: of the cell.
        rows: its measured rows, failed ones included.
        sample: those that count, and the baseline's.
        summary: its row of `Results.summary()`; empty where no metric needs it.
        agreement: its row of `Results.greedy_agreement()`, likewise.
    """

    variant: Mapping[str, Any]
    facts: Mapping[str, Any]
    rows: pd.DataFrame
    sample: Sample
    summary: Mapping[str, Any]
    agreement: Mapping[str, Any]

    def problem(self) -> str | None:
        """Why nothing of it can be compared; None if something can."""
        side, status = self.sample.side, self.variant.get("status")
        if status != Status.OK:
            return f"{status} in {side}: {self.variant.get('error') or 'no reason was stored'}"
        if not len(self.sample.variant):
            return f"{side} has no ok measurement of it"
        trials, ok = (rows[_TRIAL_KEYS].drop_duplicates() for rows in (self.rows, self.sample.variant))
        if len(ok) < len(trials):
            errors = self.rows["error"].dropna().unique()
            failed = f"{len(trials) - len(ok)} of {len(trials)} sequences failed in {side}"
            return f"{failed}: {errors[0]}" if len(errors) else failed
        expected, measured = self.facts.get("num_prompts"), len(self.sample.prompts)
        if isinstance(expected, int) and measured < expected:
            return f"only {measured} of {expected} prompts were measured in {side}"
        return None


@dataclass(frozen=True, slots=True)
class VariantPair:
    """A variant of BASE and the same variant of HEAD.

    Attributes:
        cell: label of the cell.
        base: as BASE stored it.
        head: as HEAD stored it.
        environments_differ: how the machines or their software differ; None if they don't.
        settings: of the gate.
    """

    cell: str
    base: Stored
    head: Stored
    environments_differ: str | None
    settings: GateSettings

    def checks(self) -> Iterator[Pending]:
        """A check per metric that applies, or one that says why none can be made."""
        variant_id = str(self.base.variant["variant_id"])
        is_baseline = bool(self.base.variant.get("is_baseline"))
        problem = self.base.problem() or self.head.problem() or self._other_prompts()
        if problem:
            yield Pending(Check(self.cell, variant_id, WHOLE, Verdict.INCOMPARABLE, reason=problem))
            return
        for name, wanted in self.settings.metrics.items():
            check = Check(
                self.cell,
                variant_id,
                name,
                Verdict.INCOMPARABLE,
                gated=wanted.gated,
                num_prompts=len(self.base.sample.prompts),
                num_repeats=min(sample.num_repeats for sample in self._samples),
            )
            if self._applies(METRICS[name], is_baseline=is_baseline):
                yield self._check(check, METRICS[name], wanted.margin or 0.0)

    @property
    def _samples(self) -> tuple[Sample, Sample]:
        return self.base.sample, self.head.sample

    def _other_prompts(self) -> str | None:
        """Prompts left out could be prompts chosen: both runs need all of them."""
        base, head = (sample.prompts for sample in self._samples)
        if base == head:
            return None
        return f"not the same prompts: {len(base)} in BASE, {len(head)} in HEAD, {len(base & head)} in both"

    def _applies(self, metric: Metric, *, is_baseline: bool) -> bool:
        if is_baseline:
            return metric.of_baseline
        if metric.name != GREEDY_AGREEMENT:
            return True
        return self.base.facts.get("temperature") == 0 and bool(self.base.variant.get("lossless", True))

    def _check(self, check: Check, metric: Metric, margin: float) -> Pending:
        if metric.tier is Tier.TAIL:
            return Pending(self._reported(check))
        try:
            if metric.tier is Tier.ABSOLUTE_TIME and self.environments_differ:
                raise NotComparableError(self.environments_differ)
            if metric.name == GREEDY_AGREEMENT:
                effect = agreement_change((self.base.agreement, self.head.agreement), self._samples)
                return Pending(check.measured(effect, margin).judged(judge_exactly(effect, margin)))
            effect = change_of(metric, self._samples, self.settings)
        except NotComparableError as error:
            return Pending(check.because(str(error)))
        return Pending(check.measured(effect, margin), Change(effect, margin, metric.higher_is_better))

    def _reported(self, check: Check) -> Check:
        figures = [stored.summary.get(check.metric) for stored in (self.base, self.head)]
        return check.reported(*figures)
