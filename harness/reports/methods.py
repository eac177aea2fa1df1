"""The section that puts drafting methods side by side, each at its recommended k."""

from __future__ import annotations

from collections.abc import Sequence

from harness.reports import plots
from harness.reports.blocks import Column, Entry, Figure, Figures, Key, Section, Table, entry
from harness.reports.display import MISSING, count, decimal, number, size
from harness.reports.drawing import SPEEDUP, SPEEDUP_MEASURE, drawn, point_of
from harness.reports.labels import method_label
from harness.reports.plots import Line
from harness.reports.series import Series
from harness.reports.svg import Style
from harness.reports.sweep import Sweep
from harness.reports.words import VERDICT_LABELS, interval_text, verdict

IDENTIFIER, TITLE = "methods", "Methods"
_MOST_IN_A_DRAWING = 6
_LEAD = (
    "Each method at its recommended k, over the same baseline and prompts. Methods whose intervals overlap "
    "aren't told apart by this run."
)


def methods_section(sweep: Sweep) -> Section:
    """Speedup, acceptance, costs and memory by method, one group per cell."""
    methods = list(dict.fromkeys(one.method for one in sweep.series if one.chosen))
    if len(methods) < 2:
        reason = "A single drafting method was measured."
        return Section(IDENTIFIER, TITLE, omitted=reason, measure="+sweep=method")
    lines = _lines(sweep, methods)
    scale = SPEEDUP.shared(lines)
    names = [method_label(method) for method in methods]
    items: list[Figure] = []
    for start in range(0, len(lines), _MOST_IN_A_DRAWING):
        drawing = plots.dots(names, lines[start : start + _MOST_IN_A_DRAWING], scale=scale)
        items.append(drawn(drawing, f"{IDENTIFIER}-{start}", title="Decode speedup by method", note=""))
    keys = [Key(line.style.swatch(line.name, line=False), line.name) for line in lines]
    return Section(IDENTIFIER, TITLE, _LEAD, [Figures(items, keys if len(keys) > 1 else [], _table(sweep))])


def _lines(sweep: Sweep, methods: Sequence[str]) -> list[Line]:
    """One line per cell: a point per method that has a speedup there."""
    found = []
    for place, cell in enumerate(sweep.cells):
        own = [one for one in sweep.series if one.cell_id == cell["cell_id"] and one.chosen]
        points = tuple(
            point_of(one.chosen, methods.index(one.method), SPEEDUP_MEASURE, chosen=True)
            for one in own
            if one.chosen
        )
        if points:
            label = sweep.labels[cell["cell_id"]] if sweep.has_many_cells else ""
            found.append(Line(label, Style(place), points))
    return found


def _table(sweep: Sweep) -> Table:
    cell = [Column("cell", numeric=False)] if sweep.has_many_cells else []
    columns = [
        *cell,
        Column("method", numeric=False),
        Column("verdict", numeric=False),
        Column("k", hint="the smallest whose speedup lies within the interval of the fastest"),
        Column("decode speedup"),
        Column("end to end"),
        Column("acceptance"),
        Column("tokens per forward", hint="output tokens over forwards of the target"),
        Column("c", hint="drafting one token over one step of the baseline"),
        Column("v", hint="verifying a draft over one step of the baseline"),
        Column("peak memory"),
    ]
    body = [_entries(sweep, one) for one in sweep.series]
    return Table("Methods, in numbers", columns, body)


def _entries(sweep: Sweep, one: Series) -> list[Entry]:
    cell = [entry(sweep.labels[one.cell_id])] if sweep.has_many_cells else []
    row, name = one.chosen, entry(method_label(one.method))
    if row is None:
        return [*cell, name, entry("not measured", "muted"), *(entry(MISSING) for _ in range(8))]
    found = verdict(row)
    texts = [interval_text(row, "end_to_end_speedup"), interval_text(row, "acceptance_rate")]
    texts += [decimal(row.get("tokens_per_forward"))]
    texts += [decimal(number(row.get(f"{part}_cost_ratio"))) for part in ("draft", "verify")]
    return [
        *cell,
        name,
        entry(VERDICT_LABELS[found], found.value),
        entry(count(row["k"])),
        entry(interval_text(row), found.value),
        *(entry(text) for text in (*texts, size(row.get("peak_memory_bytes")))),
    ]
