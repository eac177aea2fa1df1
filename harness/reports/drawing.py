"""From rows to drawings: points of a measure, legends, and figures with the table that says the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure as Drawing

from harness.reports import svg
from harness.reports.blocks import Column, Figure, Key, Table, entry
from harness.reports.display import number
from harness.reports.labels import Row
from harness.reports.language import say
from harness.reports.naming import variant_columns, variant_entries
from harness.reports.plots import Point, Scale
from harness.reports.series import Series
from harness.reports.sweep import Sweep

SPEEDUP = Scale("decode speedup", "ratio", reference=1.0)
ACCEPTANCE = Scale("acceptance rate", "share")


@dataclass(frozen=True, slots=True)
class Measure:
    """A summary column with an interval, how it is drawn and written, and how to get it measured."""

    column: str
    scale: Scale
    title: str
    remedy: str


SPEEDUP_MEASURE = Measure("speedup", SPEEDUP, "Decode speedup", "+sweep=k_temperature")
ACCEPTANCE_MEASURE = Measure("acceptance_rate", ACCEPTANCE, "Acceptance rate", "backend=native")


def legend(series: Sequence[Series], *, dashed: bool = True) -> list[Key]:
    """One key per name, in order; none where there is a single series.

    Args:
        series: what was drawn.
        dashed: whether lines were drawn, or marks alone.
    """
    named = {one.name: one.style for one in series}
    if len(named) < 2:
        return []
    return [Key(style.swatch(name, line=dashed), name) for name, style in named.items()]


def folded_table(
    caption: str,
    sweep: Sweep,
    rows: Sequence[Row],
    columns: Sequence[Column],
    texts: Callable[[Row], Iterable[str]],
) -> Table:
    """One row per variant, `texts` after its name; folded under `caption`."""
    body = [[*variant_entries(sweep, row), *(entry(text) for text in texts(row))] for row in rows]
    return Table(caption, [*variant_columns(sweep), *columns], body, collapsed=True)


def drawn(drawing: Drawing, identifier: str, *, title: str, note: str) -> Figure:
    """A drawing as a figure of the page; its numbers are in the table below it."""
    title = say(title)
    subject = say("{title}, {note}", title=title, note=note) if note else title
    description = say("{subject}. The table below the drawings has the numbers.", subject=subject)
    return Figure(
        svg.inline(drawing, f"plot-{identifier}", title=title, description=description), title, note
    )


def points_of(one: Series, measure: Measure) -> tuple[Point, ...]:
    """The measure over k, where it is known; the recommended k is marked."""
    return tuple(
        point_of(row, float(row["k"]), measure, chosen=row is one.chosen)
        for row in one.rows
        if number(row.get(measure.column)) is not None
    )


def point_of(row: Row, x: float, measure: Measure, *, chosen: bool) -> Point:
    """One row's value and interval."""
    name = measure.column
    return Point(x, float(row[name]), number(row.get(f"{name}_low")), number(row.get(f"{name}_high")), chosen)
