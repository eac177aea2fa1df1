"""The few lines a terminal shows after a run: the best k of each setting."""

from __future__ import annotations

from collections.abc import Sequence

from harness.privacy import clipped
from harness.reports.cautions import cautions, is_simulated
from harness.reports.display import MISSING, count, percent, rate
from harness.reports.findings import findings_line
from harness.reports.losslessness import lossless_line
from harness.reports.series import Series
from harness.reports.sweep import Sweep
from harness.reports.words import interval_text, verdict_text
from harness.results import Results

_SETTING_CHARACTERS = 44
_HEADER = ("best k", "speedup [95%]", "acceptance", "tok/s", "baseline", "verdict")
_NUMERIC = (False, True, False, True, True, True, False)


def summary_table(results: Results) -> str:
    """A plain-text table, one row per setting, and what to know besides; ends without a newline."""
    return table_of(Sweep(results))


def table_of(sweep: Sweep) -> str:
    """`summary_table` of results that are wrapped already; of very many settings it shows some."""
    if not sweep.series:
        return "No speculating variant was stored, so there is nothing to compare."
    rows = [("setting", *_HEADER), *(_row(sweep, one) for one in sweep.excerpt.series)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [_line(row, widths) for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    if sweep.is_cut:
        shown, known = len(sweep.excerpt.series), len(sweep.series)
        lines.append(f"{shown} of {known} settings, from the fastest to the slowest; the report counts all.")
    if sweep.lossless:
        lines.append(f"Losslessness: {lossless_line(sweep.lossless)}")
    if is_simulated(sweep):
        lines.append("simulated: no model ran.")
    if found := findings_line(sweep):
        lines.append(found)
    warnings = len(cautions(sweep))
    if warnings:
        lines.append(f"{warnings} caution{'' if warnings == 1 else 's'}: see the report's summary.")
    return "\n".join(lines)


def _row(sweep: Sweep, one: Series) -> tuple[str, ...]:
    row, baseline = one.chosen, sweep.baseline(one.cell_id) or {}
    label = clipped(one.label, _SETTING_CHARACTERS)
    if row is None:
        return (label, *(MISSING,) * 5, "not measured")
    return (
        label,
        count(row["k"]),
        interval_text(row),
        percent(row.get("acceptance_rate")),
        rate(row.get("decode_tok_per_s")),
        rate(baseline.get("decode_tok_per_s")),
        verdict_text(row),
    )


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        text.rjust(width) if numeric else text.ljust(width)
        for text, width, numeric in zip(row, widths, _NUMERIC, strict=True)
    ]
    return "  ".join(padded).rstrip()
