"""The sections that take speedup apart: by task, against prediction, by part of the time."""

from __future__ import annotations

from collections.abc import Sequence

from harness.privacy import clipped
from harness.reports import plots, svg
from harness.reports.blocks import Column, Figures, Key, Section, Table, entry
from harness.reports.display import count, number, percent, ratio, with_interval
from harness.reports.drawing import (
    ACCEPTANCE_MEASURE,
    SPEEDUP_MEASURE,
    Measure,
    drawn,
    folded_table,
    legend,
    point_of,
)
from harness.reports.labels import Row, variant_label
from harness.reports.language import say
from harness.reports.plots import Line, Point
from harness.reports.series import Series, panels
from harness.reports.sweep import Sweep
from harness.reports.words import interval_text

_PREDICTION = "Measured and predicted speedup"
_PARTS = ("draft", "verify", "other")


def tasks_section(sweep: Sweep) -> Section:
    """Speedup and acceptance by task, at each series' recommended k."""
    chosen = {(one.cell_id, one.chosen["variant_id"]): one for one in sweep.series if one.chosen}
    rows = [row for row in sweep.tasks if (row["cell_id"], row["variant_id"]) in chosen]
    names = sorted({str(row["task"]) for row in rows})
    if len(names) < 2:
        reason = "The prompts are of a single task."
        return Section("tasks", "By task", omitted=reason, measure="workload=all_tasks")
    items = []
    shown = [clipped(name, 40) for name in names]
    for measure in (SPEEDUP_MEASURE, ACCEPTANCE_MEASURE):
        lines = {one.label: _task_line(one, rows, names, measure) for one in chosen.values()}
        if not any(line.points for line in lines.values()):
            continue
        scale = measure.scale.shared(list(lines.values()))
        for place, (panel, own) in enumerate(panels(list(chosen.values())).items()):
            in_panel = [lines[one.label] for one in own]
            if any(line.points for line in in_panel):
                drawing = plots.dots(shown, in_panel, scale=scale)
                identifier = f"tasks-{measure.column}-{place}"
                items.append(
                    drawn(
                        drawing,
                        identifier,
                        title=say("{title} by task", title=say(measure.title)),
                        note=panel,
                    )
                )
    if not items:
        return Section("tasks", "By task", omitted="No speedup is known by task.")
    lead = "At the recommended k of each series, over the prompts of each task alone."
    block = Figures(items, legend(list(chosen.values()), dashed=False), _tasks_table(sweep, rows))
    return Section("tasks", "By task", lead, [block])


def prediction_section(sweep: Sweep) -> Section:
    """Measured speedup beside the speedup that acceptance and step costs predict."""
    columns = {
        "predicted_speedup": "from measured tokens per step",
        "predicted_speedup_iid": "from a constant acceptance",
    }
    lead = (
        "Predicted from the measured cost of drafting (c) and of verifying (v), with the measured tokens "
        "per step or with the textbook's constant acceptance. Points under the dashed diagonal lose time "
        "that the model leaves out."
    )
    series = [
        one for one in sweep.series if any(number(row.get(name)) for row in one.rows for name in columns)
    ]
    if not series:
        reason = "The backend reports no step times, so there is no cost to predict from."
        return Section("prediction", _PREDICTION, omitted=reason, measure="backend=native")
    items = []
    for column, described in columns.items():
        how = say(described)
        for place, (panel, own) in enumerate(panels(series).items()):
            lines = [Line(one.name, one.style, _prediction_points(one, column)) for one in own]
            if any(line.points for line in lines):
                drawing = plots.against(
                    lines, x_label=say("predicted, {how}", how=how), y_label="measured decode speedup"
                )
                note = f"{how} · {panel}" if panel else how
                items.append(
                    drawn(drawing, f"{column}-{place}", title="Measured against predicted", note=note)
                )
    block = Figures(items, legend(series, dashed=False), _prediction_table(series))
    return Section("prediction", _PREDICTION, lead, [block])


def split_section(sweep: Sweep) -> Section:
    """Where the decode time goes: drafting, verifying, the rest."""
    lead = (
        "Shares of the time from the first output token to the last. "
        "Other is what neither a draft nor a verification covers: the loop itself."
    )
    items, rows = [], []
    for place, cell in enumerate(sweep.cells):
        known = [
            row for row in sweep.variants_of(cell["cell_id"]) if number(row.get("verify_share")) is not None
        ]
        if not known:
            continue
        rows += known
        shares = [_shares(row) for row in known]
        drawing = plots.stacked([variant_label(row) for row in known], shares, parts=list(map(say, _PARTS)))
        note = sweep.labels[cell["cell_id"]] if sweep.has_many_cells else ""
        items.append(drawn(drawing, f"split-{place}", title="Decode time by part", note=note))
    if not items:
        reason = "The backend reports no step times."
        return Section("split", "Time split", omitted=reason, measure="backend=native")
    keys = [Key(svg.part_swatch(i, name), name) for i, name in enumerate(map(say, _PARTS))]
    columns = [Column(name) for name in _PARTS]
    table = folded_table(
        "Decode time by part, in numbers", sweep, rows, columns, lambda row: map(percent, _shares(row))
    )
    return Section("split", "Time split", lead, [Figures(items, keys, table)])


def _task_line(one: Series, rows: Sequence[Row], names: Sequence[str], measure: Measure) -> Line:
    variant_id = one.chosen["variant_id"] if one.chosen else None
    own = [row for row in rows if row["cell_id"] == one.cell_id and row["variant_id"] == variant_id]
    known = [row for row in own if number(row.get(measure.column)) is not None]
    points = [point_of(row, names.index(str(row["task"])), measure, chosen=True) for row in known]
    return Line(one.name, one.style, tuple(points))


def _prediction_points(one: Series, column: str) -> tuple[Point, ...]:
    known = [row for row in one.rows if number(row.get(column)) is not None]
    return tuple(
        point_of(row, float(row[column]), SPEEDUP_MEASURE, chosen=row is one.chosen) for row in known
    )


def _shares(row: Row) -> list[float]:
    return [max(number(row.get(f"{part}_share")) or 0.0, 0.0) for part in _PARTS]


def _tasks_table(sweep: Sweep, rows: Sequence[Row]) -> Table:
    columns = [Column("task", numeric=False), Column("speedup"), Column("acceptance"), Column("prompts")]
    return folded_table("By task, in numbers", sweep, rows, columns, _task_texts)


def _task_texts(row: Row) -> list[str]:
    values = [row.get(f"acceptance_rate{end}") for end in ("", "_low", "_high")]
    return [
        clipped(row["task"], 60),
        interval_text(row),
        with_interval(values, percent),
        count(row["num_prompts"]),
    ]


def _prediction_table(series: Sequence[Series]) -> Table:
    names = ("series", "k", "measured", "predicted", "predicted, constant acceptance", "c", "v")
    body = []
    for one in series:
        for row in one.rows:
            predicted = ratio(row.get("predicted_speedup")), ratio(row.get("predicted_speedup_iid"))
            costs = [ratio(row.get(f"{part}_cost_ratio")).removesuffix("x") for part in ("draft", "verify")]
            texts = (one.label, count(row["k"]), interval_text(row), *predicted, *costs)
            body.append([entry(text) for text in texts])
    columns = [Column(name, numeric=name != "series") for name in names]
    return Table("Measured and predicted speedup, in numbers", columns, body, collapsed=True)
