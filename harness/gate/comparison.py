"""Compare two runs: match what is the same measurement, judge it, and refuse to judge the rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.gate.cell_pair import CellPair, CellSide
from harness.gate.check import WHOLE, Check, Comparison
from harness.gate.judging import judge
from harness.gate.matching import cell_identity, match_cells
from harness.gate.run import BASE, HEAD, Run
from harness.gate.settings import GateSettings
from harness.gate.variant_pair import Pending
from harness.gate.verdict import Verdict
from harness.privacy import clipped
from harness.records import CellRecord
from harness.results import Results

_VALUE_CHARACTERS = 40
_LABEL_CHARACTERS = 80


def compare(base: Results, head: Results, settings: GateSettings) -> Comparison:
    """Judge HEAD against BASE.

    Args:
        base: the run that is known to be good.
        head: the run to judge.
        settings: of the gate.
    """
    runs = Run(BASE, base), Run(HEAD, head)
    found = match_cells(base.records.values(), head.records.values())
    label = cell_labels([*base.records.values(), *head.records.values()])
    pairs = [
        CellPair(label[cell_key(ours)], CellSide(runs[0], ours), CellSide(runs[1], theirs), settings)
        for ours, theirs in found.pairs
    ]
    pending = [item for pair in pairs for item in pair.checks()]
    for record, reason in found.missing:
        pending.append(_alone(label[cell_key(record)], reason, gated=True))
    for record, reason in found.new:
        reason = f"only HEAD has it; {reason}"
        pending.append(_alone(label[cell_key(record)], reason, gated=not settings.allow_new))
    return Comparison(
        base.path.resolve().name,
        head.path.resolve().name,
        settings,
        _judged(pending, settings),
        _cautions(pairs),
    )


def _judged(pending: Sequence[Pending], settings: GateSettings) -> list[Check]:
    """Judge what decides as one family, and what is only shown as another, so that it costs no power."""
    checks = [item.check for item in pending]
    for gated in (True, False):
        places = [
            (place, item.change)
            for place, item in enumerate(pending)
            if item.change is not None and item.check.gated is gated
        ]
        judgements = judge([change for _, change in places], confidence=settings.confidence)
        for (place, _), judgement in zip(places, judgements, strict=True):
            checks[place] = checks[place].judged(judgement)
    return checks


def _cautions(pairs: Iterable[CellPair]) -> list[str]:
    cautions: dict[str, None] = {}
    for pair in pairs:
        if difference := pair.environments_differ():
            cautions[f"{difference}: a changed time ratio may be the machine's, not the code's."] = None
        if changing := pair.changes_output():
            told = ", ".join(clipped(name, _LABEL_CHARACTERS) for name in changing)
            cautions[f"not lossless by design, so compare quality as well as speed: {told}."] = None
        if pair.base.is_copy_of(pair.head):
            cautions["BASE and HEAD hold the very same measurements: was HEAD measured?"] = None
    return list(cautions)


def _alone(cell: str, reason: str, *, gated: bool) -> Pending:
    return Pending(Check(cell, WHOLE, WHOLE, Verdict.INCOMPARABLE, gated=gated, reason=reason))


def cell_key(record: CellRecord) -> tuple[tuple[str, str], ...]:
    """Equal for cells that are the same measurement."""
    return tuple(sorted(cell_identity(record).items()))


def cell_labels(records: Sequence[CellRecord]) -> dict[tuple[tuple[str, str], ...], str]:
    """A label per set of facts, out of those that differ between the cells; `the cell` where none does."""
    identities = [cell_identity(record) for record in records]
    names = list(dict.fromkeys(name for identity in identities for name in identity))
    varying = [name for name in names if len({identity.get(name) for identity in identities}) > 1]
    labels = {}
    for record, identity in zip(records, identities, strict=True):
        parts = [f"{name} {clipped(identity.get(name, 'unset'), _VALUE_CHARACTERS)}" for name in varying]
        labels[cell_key(record)] = clipped(", ".join(parts), _LABEL_CHARACTERS) or "the cell"
    return labels
