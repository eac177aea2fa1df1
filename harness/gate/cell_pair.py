"""One cell in both runs: its variants matched, and what can't be compared said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from harness.gate.check import WHOLE, Check
from harness.gate.environment import environment_difference
from harness.gate.evidence import Sample, joint_rows
from harness.gate.matching import VariantRow, match_variants
from harness.gate.metric import GREEDY_AGREEMENT, METRICS, Tier
from harness.gate.run import Run
from harness.gate.settings import GateSettings
from harness.gate.variant_pair import Pending, Stored, VariantPair
from harness.gate.verdict import Verdict
from harness.records import CellRecord


@dataclass(frozen=True, slots=True)
class CellSide:
    """A cell in one of the runs."""

    run: Run
    record: CellRecord

    def is_copy_of(self, other: CellSide) -> bool:
        """Whether both sides hold the same rows to the last digit of their clocks."""
        ours, theirs = (
            side.run.measured(side.record.cell_id).reset_index(drop=True) for side in (self, other)
        )
        columns = ["variant_id", "prompt_id", "repeat", "started_s", "decode_s"]
        return bool(len(ours)) and ours[columns].equals(theirs[columns])

    def stored(self, variant: VariantRow, prepared: pd.DataFrame, settings: GateSettings) -> Stored:
        """One variant of the cell.

        Args:
            variant: as recorded.
            prepared: the cell's counting rows, with units common to both runs.
            settings: of the gate; figures that no metric of it needs aren't computed.
        """
        variant_id = variant["variant_id"]
        baselines = [row["variant_id"] for row in self.record.variants if row.get("is_baseline")]
        rows = self.run.measured(self.record.cell_id)
        key = (self.record.cell_id, str(variant_id))
        wants_summary = any(METRICS[name].tier is Tier.TAIL for name in settings.metrics)
        wants_agreement = GREEDY_AGREEMENT in settings.metrics
        return Stored(
            variant=variant,
            facts=self.record.facts,
            rows=rows[rows["variant_id"] == variant_id],
            sample=Sample(
                self.run.side,
                prepared[prepared["variant_id"] == variant_id],
                prepared[prepared["variant_id"].isin(baselines)],
            ),
            summary=self.run.summary(key) if wants_summary else {},
            agreement=self.run.agreement(key) if wants_agreement else {},
        )


@dataclass(frozen=True, slots=True)
class CellPair:
    """A cell of BASE and the same cell of HEAD.

    Attributes:
        label: of the cell.
        base: the cell in BASE.
        head: the cell in HEAD.
        settings: of the gate.
    """

    label: str
    base: CellSide
    head: CellSide
    settings: GateSettings

    def environments_differ(self) -> str | None:
        """How the machines or their software differ; None if they don't."""
        return environment_difference(self.base.record, self.head.record)

    def changes_output(self) -> list[str]:
        """Variants of HEAD that say they aren't lossless."""
        rows = self.head.record.variants
        return [str(row["variant_id"]) for row in rows if row.get("lossless") is False]

    def checks(self) -> Iterator[Pending]:
        """Every check of the cell."""
        damage = [side.run.damage(side.record) for side in (self.base, self.head)]
        if reason := damage[0] or damage[1]:
            yield self._alone(WHOLE, reason)
            return
        found = match_variants(self.base.record.variants, self.head.record.variants)
        if not any(not base.get("is_baseline") for base, _ in found.pairs):
            yield self._alone(WHOLE, "no speculating variant is in both runs")
        yield from self._paired(found.pairs)
        for variant, reason in found.missing:
            yield self._alone(str(variant.get("variant_id")), reason)
        for variant, reason in found.new:
            yield self._alone(
                str(variant.get("variant_id")),
                f"only HEAD has it; {reason}",
                gated=not self.settings.allow_new,
            )

    def _paired(self, pairs: list[tuple[VariantRow, VariantRow]]) -> Iterator[Pending]:
        base_rows, head_rows = joint_rows(
            *(side.run.counting(side.record.cell_id) for side in (self.base, self.head))
        )
        difference = self.environments_differ()
        for base, head in pairs:
            yield from VariantPair(
                self.label,
                self.base.stored(base, base_rows, self.settings),
                self.head.stored(head, head_rows, self.settings),
                difference,
                self.settings,
            ).checks()

    def _alone(self, variant: str, reason: str, *, gated: bool = True) -> Pending:
        return Pending(Check(self.label, variant, WHOLE, Verdict.INCOMPARABLE, gated=gated, reason=reason))
