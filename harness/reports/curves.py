"""The sections that draw over k or over the draft: speedup, acceptance, acceptance by position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.reports import plots
from harness.reports.blocks import Column, Figures, Section, Table, entry
from harness.reports.display import MISSING, count, k_is, number, percent
from harness.reports.drawing import (
    ACCEPTANCE_MEASURE,
    SPEEDUP_MEASURE,
    Measure,
    drawn,
    folded_table,
    legend,
    points_of,
)
from harness.reports.labels import Row
from harness.reports.language import say
from harness.reports.plots import Line, Point, Scale
from harness.reports.series import Series, has_curve, panels
from harness.reports.sweep import Sweep
from harness.reports.words import interval_text

_POSITION_AXES = {"marginal": "marginal acceptance", "conditional": "conditional acceptance"}
_POSITION_TITLES = {
    "marginal": "Marginal acceptance by position",
    "conditional": "Conditional acceptance by position",
}


def speedup_section(sweep: Sweep) -> Section:
    """Speedup over k, or by series where each has one k."""
    lead = (
        "Decode tokens per second of each variant over the baseline's on the same prompts. Bars are 95% "
        "intervals; the dashed line is break-even. Filled marks are the recommended k: the smallest whose "
        "speedup lies within the fastest one's interval."
    )
    return _over_k(sweep, SPEEDUP_MEASURE, identifier="speedup", title="Speedup", lead=lead)


def acceptance_section(sweep: Sweep) -> Section:
    """Acceptance over k, or by series where each has one k."""
    lead = (
        "Accepted drafted tokens over proposed ones, token-weighted. It falls as k grows, since later "
        "tokens of a draft only count if all before them were accepted."
    )
    return _over_k(sweep, ACCEPTANCE_MEASURE, identifier="acceptance", title="Acceptance", lead=lead)


def _over_k(sweep: Sweep, measure: Measure, *, identifier: str, title: str, lead: str) -> Section:
    series = [one for one in sweep.series if points_of(one, measure)]
    if not series:
        return Section(
            identifier,
            title,
            omitted=say("No variant has a {title}.", title=say(measure.title.lower())),
            measure=measure.remedy,
        )
    table = _series_table(say("{title} by k, in numbers", title=say(measure.title)), series, measure)
    if not has_curve(series):
        drawing = plots.dots([one.label for one in series], [_row_line(series, measure)], scale=measure.scale)
        k = {int(row["k"]) for one in series for row in one.rows}
        note = k_is(k.pop()) if len(k) == 1 else say("each at its k")
        item = drawn(drawing, f"{identifier}-0", title=measure.title, note=note)
        return Section(identifier, title, lead, [Figures([item], [], table)])
    lines = {one.label: Line(one.name, one.style, points_of(one, measure)) for one in series}
    scale = measure.scale.shared(list(lines.values()))
    items = []
    for place, (panel, own) in enumerate(panels(series).items()):
        in_panel = [lines[one.label] for one in own]
        drawing = plots.lines(in_panel, x_label="k, drafted tokens per step", scale=scale)
        items.append(
            drawn(
                drawing,
                f"{identifier}-{place}",
                title=say("{title} by k", title=say(measure.title)),
                note=panel,
            )
        )
    return Section(identifier, title, lead, [Figures(items, legend(series), table)])


def positions_section(sweep: Sweep) -> Section:
    """Acceptance by place in the draft, at each series' largest k."""
    lead = (
        "At the largest k of each series. Marginal: steps that accepted the token in this place, over all "
        "steps that drafted it. Conditional: over the steps that had accepted every token before it."
    )
    found = [(one, rows) for one in sweep.series if len(rows := _largest_k_positions(sweep, one)) > 1]
    if not found:
        reason = "No variant drafts more than one token, or its steps aren't known."
        return Section("positions", "Acceptance by position", omitted=reason, measure="method.k=4")
    items = []
    grouped = panels([one for one, _ in found])
    for place, (panel, own) in enumerate(grouped.items()):
        for name in _POSITION_AXES:
            chosen = [Line(o.name, o.style, _position_points(rows, name)) for o, rows in found if o in own]
            scale = Scale(_POSITION_AXES[name], "share", limits=(0.0, 1.0))
            drawing = plots.lines(chosen, x_label="place in the draft", scale=scale, height_in=2.8)
            title = _POSITION_TITLES[name]
            items.append(drawn(drawing, f"positions-{place}-{name}", title=title, note=panel))
    block = Figures(items, legend([one for one, _ in found]), _positions_table(sweep))
    return Section("positions", "Acceptance by position", lead, [block])


def _row_line(series: Sequence[Series], measure: Measure) -> Line:
    points = [
        replace(point, x=i, chosen=True) for i, one in enumerate(series) for point in points_of(one, measure)
    ]
    return Line("", series[0].style, tuple(points))


def _largest_k_positions(sweep: Sweep, one: Series) -> list[Row]:
    own = [row for row in sweep.positions if row["cell_id"] == one.cell_id and row["method"] == one.method]
    largest = max((float(row["k"]) for row in own), default=0.0)
    return [row for row in own if float(row["k"]) == largest]


def _position_points(rows: Sequence[Row], column: str) -> tuple[Point, ...]:
    return tuple(
        Point(float(row["position"]), float(row[column])) for row in rows if number(row[column]) is not None
    )


def _series_table(caption: str, series: Sequence[Series], measure: Measure) -> Table:
    ks = sorted({int(row["k"]) for one in series for row in one.rows})
    body = []
    for one in series:
        texts = {int(row["k"]): interval_text(row, measure.column) for row in one.rows}
        body.append([entry(one.label), *(entry(texts.get(k, MISSING)) for k in ks)])
    return Table(
        caption, [Column("series", numeric=False), *(Column(k_is(k)) for k in ks)], body, collapsed=True
    )


def _positions_table(sweep: Sweep) -> Table:
    columns = [Column("position"), Column("marginal"), Column("conditional"), Column("steps that reached it")]
    return folded_table(
        "Acceptance by position, all variants, in numbers", sweep, sweep.positions, columns, _position_texts
    )


def _position_texts(row: Row) -> list[str]:
    rates = percent(row["marginal"]), percent(row["conditional"])
    return [count(row["position"]), *rates, count(row["num_reached"])]
