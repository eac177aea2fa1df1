"""The sections about time: cold start, latency, and how much of the wall time was spent decoding."""

from __future__ import annotations

from collections.abc import Sequence

from harness.privacy import clipped
from harness.reports.blocks import Column, Entry, Section, Table, entry
from harness.reports.cautions import LEAST_DECODE_SHARE, decode_share
from harness.reports.display import MISSING, count, milliseconds, number, percent, seconds
from harness.reports.labels import Row
from harness.reports.language import say
from harness.reports.naming import variant_columns, variant_entries
from harness.reports.spread import spread_table
from harness.reports.sweep import Sweep
from harness.reports.words import has_drifted, interval_text

_WAITS = {
    "ttft": ("TTFT", "time to first token, the drafter's prefill included"),
    "tpot": ("TPOT", "time per output token after the first"),
    "step": ("step", "one draft and its verification"),
    "total": ("total", "the whole sequence"),
}
_PERCENTILES = ("p50", "p90", "p99")
_PART_NAMES = {
    "import": "import of the backend",
    "load_target": "loading the target",
    "load_drafter": "loading the drafter",
    "load_engine": "starting the engine",
    "compile": "compiling",
    "first_call": "first call",
    "warmup": "warmup trials",
}


def latency_section(sweep: Sweep) -> Section:
    """Percentiles of the waits of every variant."""
    rows = sweep.variants
    shown = [name for name in _WAITS if any(number(row.get(f"{name}_p50_s")) is not None for row in rows)]
    if not shown:
        return Section("latency", "Latency", omitted="No sequence was measured.")
    columns = [
        Column(f"{say(_WAITS[name][0])} {percentile}", hint=_WAITS[name][1])
        for name in shown
        for percentile in _PERCENTILES
    ]
    body = [
        [
            *variant_entries(sweep, row),
            *(entry(milliseconds(row.get(f"{name}_{p}_s"))) for name in shown for p in _PERCENTILES),
        ]
        for row in rows
    ]
    lead = (
        "Per sequence (steps: per verification step), in the measured phase. Speculation emits several "
        "tokens at once, so TPOT is an average over a sequence, not the gap between two tokens."
    )
    return Section(
        "latency", "Latency", lead, [Table("Milliseconds", [*variant_columns(sweep), *columns], body)]
    )


def cold_start_section(sweep: Sweep) -> Section:
    """Set-up times, which no other figure contains."""
    if not sweep.cold_start:
        return Section("cold-start", "Cold start", omitted="No set-up times were stored.")
    cell = [Column("cell", numeric=False)] if sweep.has_many_cells else []
    columns = [*cell, Column("part", numeric=False), Column("variant", numeric=False), Column("time")]
    body = []
    for cell_row in sweep.cells:
        label = [entry(sweep.labels[cell_row["cell_id"]])] if sweep.has_many_cells else []
        for row in _of_cell(sweep.cold_start, cell_row):
            variant = clipped(row["variant_id"], 60) if isinstance(row["variant_id"], str) else say("all")
            part = say(_PART_NAMES[row["part"]]) if row["part"] in _PART_NAMES else clipped(row["part"], 60)
            body.append([*label, entry(part), entry(variant), entry(seconds(row["seconds"]))])
    lead = (
        "Loading, the first call and the warmup trials, before steady state. No other figure contains them."
    )
    blocks = [_cold_start_totals(sweep), Table("Every timed part", columns, body, collapsed=True)]
    return Section("cold-start", "Cold start", lead, blocks)


def _cold_start_totals(sweep: Sweep) -> Table:
    parts = list(dict.fromkeys(str(row["part"]) for row in sweep.cold_start))
    columns = [
        Column("cell", numeric=False),
        *(Column(_PART_NAMES.get(part, clipped(part, 40))) for part in parts),
    ]
    body = []
    for cell in sweep.cells:
        own = _of_cell(sweep.cold_start, cell)
        texts = [_span([number(row["seconds"]) for row in own if row["part"] == part]) for part in parts]
        body.append([entry(sweep.labels[cell["cell_id"]]), *(entry(text) for text in texts)])
    return Table("By part; where variants differ, from the quickest to the slowest", columns, body)


def efficiency_section(sweep: Sweep) -> Section:
    """How much of the measured phase was spent decoding."""
    columns = [
        Column("cell", numeric=False),
        Column("measured phase"),
        Column("inside decode calls"),
        Column("share"),
        Column("repeats"),
        Column("baseline drift", hint="speed of the baseline after the variants over the one before them"),
        Column("stopped by", numeric=False),
        Column("status", numeric=False),
    ]
    body = []
    for cell in sweep.cells:
        share = decode_share(cell)
        tone = "costs" if share is not None and share < LEAST_DECODE_SHARE else ""
        texts = [
            entry(sweep.labels[cell["cell_id"]]),
            entry(seconds(cell.get("measured_wall_s"))),
            entry(seconds(cell.get("decode_wall_s"))),
            entry(percent(share), tone),
            entry(count(sweep.num_repeats.get(str(cell["cell_id"])))),
            _drift(sweep.baseline(str(cell["cell_id"]))),
            entry(say(str(cell.get("stop_reason") or MISSING).replace("_", " "))),
            entry(say(str(cell["status"])), "" if cell["status"] == "ok" else "costs"),
        ]
        body.append(texts)
    lead = "Wall time of the measured phase, and the part inside decode calls. The rest is the harness's own."
    tables = [Table("By cell", columns, body), *([spread_table(sweep)] if sweep.spread else [])]
    return Section("efficiency", "Measuring efficiency", lead, tables)


def _drift(baseline: Row | None) -> Entry:
    """A dash where the baseline took turns with the variants."""
    if baseline is None or number(baseline.get("baseline_drift")) is None:
        return entry(MISSING)
    return entry(interval_text(baseline, "baseline_drift"), "costs" if has_drifted(baseline) else "")


def _of_cell(rows: Sequence[Row], cell: Row) -> list[Row]:
    return [row for row in rows if row["cell_id"] == cell["cell_id"]]


def _span(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return MISSING
    low, high = seconds(min(known)), seconds(max(known))
    return low if low == high else say("{low} to {high}", low=low, high=high)
