"""The page over many runs: each metric over time, with the places where its level changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from harness.metrics.changes import FEWEST_VALUES, change_points
from harness.privacy import clipped
from harness.reports import plots
from harness.reports.blocks import Block, Bullets, Column, Figure, Figures, Key, Page, Section, Table, entry
from harness.reports.display import decimal, number, percent, rate, ratio
from harness.reports.drawing import drawn
from harness.reports.labels import Row, cell_labels, variant_label
from harness.reports.language import say
from harness.reports.plots import Line, Point, Scale
from harness.reports.publish import publish
from harness.reports.svg import Style
from harness.results.history import history

_MOST_IN_A_PANEL = 6
_CAUTION = (
    "For looking at, not for gating: a change marked here is a question, not a verdict. Machines, loads and "
    "commits change together. To decide about one commit, use python -m harness compare, best with both "
    "measured side by side."
)


@dataclass(frozen=True, slots=True)
class Metric:
    """A column of the history and how it is drawn and written."""

    column: str
    title: str
    scale: Scale
    write: Callable[[object], str]


_METRICS = (
    Metric("speedup", "Decode speedup", Scale("decode speedup", "ratio", reference=1.0), ratio),
    Metric("acceptance_rate", "Acceptance rate", Scale("acceptance rate", "share"), percent),
    Metric("tokens_per_forward", "Tokens per forward", Scale("tokens per forward", "plain"), decimal),
    Metric("baseline_tok_per_s", "Decode rate of the baseline", Scale("tokens per second", "plain"), rate),
)


@dataclass(frozen=True, slots=True)
class Course:
    """One variant of one experiment over time.

    Attributes:
        label: unique on the page.
        cell: of the experiment; empty where there is one.
        variant: its name.
        rows: history rows that have the metric, in order of time.
        changes: indices of `rows` at which a new level begins; None where that couldn't be told.
    """

    label: str
    cell: str
    variant: str
    rows: Sequence[Row]
    changes: Sequence[int] | None


def build_trend(paths: Sequence[Path], out_dir: Path) -> tuple[Path, list[str]]:
    """Write the page over all runs below the paths.

    Args:
        paths: folders of runs, or folders that hold some.
        out_dir: where `index.html` and its twins go.

    Returns:
        The path of the page, and a sentence per change.

    Raises:
        ResultFormatError: a path holds no run, or one can't be read.
        StorageError: the page can't be written.
    """
    table = history(paths)
    courses = {metric: _courses(table, metric.column) for metric in _METRICS}
    sentences = [
        text for metric, found in courses.items() for one in found for text in _sentences(metric, one)
    ]
    page = Page(
        "Trend",
        _subtitle(table),
        _headline(courses, sentences),
        _sections(courses, sentences),
        kind="trend",
    )
    return publish(page, out_dir), sentences


def _courses(table: pd.DataFrame, column: str) -> list[Course]:
    known = table[pd.to_numeric(table[column], errors="coerce").notna()]
    first = known.drop_duplicates("experiment").assign(cell_id=lambda rows: rows["experiment"])
    cells = [{str(k): v for k, v in row.items()} for row in first.to_dict("records")]
    labels = cell_labels(cells) if len(cells) > 1 else {}
    found = []
    for (experiment, _), own in known.groupby(["experiment", "variant_id"], sort=False):
        rows = [{str(k): v for k, v in row.items()} for row in own.to_dict("records")]
        cell, variant = labels.get(str(experiment), ""), variant_label(rows[0])
        label = " · ".join(part for part in (cell, variant) if part)
        found.append(Course(label, cell, variant, rows, _changes(own[column])))
    return found


def _changes(values: pd.Series[float]) -> Sequence[int] | None:
    if len(values) < FEWEST_VALUES:
        return None
    try:
        return change_points(values.to_numpy(dtype=float))
    except ImportError:
        return None


def _sections(courses: dict[Metric, list[Course]], sentences: Sequence[str]) -> list[Section]:
    notes = [_CAUTION]
    if _package_is_missing():
        notes.append(say("Changes aren't marked: install ruptures, pip install 'specdec-harness[trend]'."))
    blocks: list[Block] = [Bullets(notes, tone="warning", title="Before relying on this")]
    if sentences:
        blocks.append(Bullets(sentences, title="Changes of level"))
    lead = say(
        "A level needs three points; series of fewer than {number} points aren't searched.",
        number=FEWEST_VALUES,
    )
    return [
        Section("changes", "Changes", lead, blocks),
        *(_section(metric, found) for metric, found in courses.items()),
    ]


def _section(metric: Metric, courses: Sequence[Course]) -> Section:
    identifier = metric.column.replace("_", "-")
    if not courses:
        return Section(identifier, metric.title, omitted="No run has it.")
    items: list[Figure] = []
    keys: dict[str, Key] = {}
    for place, cell in enumerate(dict.fromkeys(one.cell for one in courses)):
        own = [one for one in courses if one.cell == cell]
        for start in range(0, len(own), _MOST_IN_A_PANEL):
            part = own[start : start + _MOST_IN_A_PANEL]
            identity = f"{identifier}-{place}-{start}"
            items.append(_figure(metric, part, identity, note=cell))
            for index, one in enumerate(part):
                keys[one.variant] = Key(Style(index).swatch(one.variant, line=True), one.variant)
    legend = list(keys.values()) if len(keys) > 1 else []
    lead = "Bars are 95% intervals. Vertical lines stand where a new level begins."
    return Section(identifier, metric.title, lead, [Figures(items, legend, _table(metric, courses))])


def _figure(metric: Metric, courses: Sequence[Course], identifier: str, *, note: str) -> Figure:
    moments = sorted({str(row["started_at"]) for one in courses for row in one.rows})
    at = {moment: place + 1 for place, moment in enumerate(moments)}
    drawn_lines = [
        Line(one.variant, Style(index), tuple(_point(metric, row, at) for row in one.rows))
        for index, one in enumerate(courses)
    ]
    figure = plots.lines(drawn_lines, x_label="measurement, in order of time", scale=metric.scale)
    axes = figure.axes[0]
    for index, one in enumerate(courses):
        for change in one.changes or ():
            where = at[str(one.rows[change]["started_at"])] - 0.5
            axes.axvline(where, color=Style(index).colour, linewidth=1.2, linestyle=(0, (2, 2)))
    return drawn(figure, identifier, title=say("{title} over time", title=say(metric.title)), note=note)


def _point(metric: Metric, row: Row, at: dict[str, int]) -> Point:
    low, high = (number(row.get(f"{metric.column}_{end}")) for end in ("low", "high"))
    return Point(at[str(row["started_at"])], float(row[metric.column]), low, high)


def _table(metric: Metric, courses: Sequence[Course]) -> Table:
    names = ("series", "measured", "run", "code", metric.title.lower(), "new level")
    columns = [Column(name, numeric=name == metric.title.lower()) for name in names]
    body = [
        [
            entry(one.label),
            entry(_day(row)),
            entry(clipped(row["run"], 40)),
            entry(clipped(row["code_version"] or say("unknown"), 12)),
            entry(_written(metric, row[metric.column])),
            entry(say("yes") if place in (one.changes or ()) else ""),
        ]
        for one in courses
        for place, row in enumerate(one.rows)
    ]
    return Table(say("{title} over time, in numbers", title=say(metric.title)), columns, body, collapsed=True)


def _sentences(metric: Metric, one: Course) -> list[str]:
    """A sentence per change: from which level to which, and with which measurement it began."""
    ends = [0, *(one.changes or ()), len(one.rows)]
    values = pd.Series([float(row[metric.column]) for row in one.rows])
    found = []
    for before, start, end in zip(ends, ends[1:-1], ends[2:], strict=False):
        levels = values[before:start].median(), values[start:end].median()
        old, new = (_written(metric, level) for level in levels)
        row = one.rows[start]
        code, run = clipped(row["code_version"] or say("unknown"), 12), clipped(row["run"], 40)
        where = say(
            "with the measurement of {day} (code {code}, run {run})", day=_day(row), code=code, run=run
        )
        found.append(
            say(
                "{title}, {label}: from {old} to {new} {where}.",
                title=say(metric.title),
                label=one.label,
                old=old,
                new=new,
                where=where,
            )
        )
    return found


def _written(metric: Metric, value: object) -> str:
    return metric.write(value)


def _day(row: Row) -> str:
    return clipped(str(row["started_at"] or say("an unknown day"))[:16].replace("T", " "), 16)


def _subtitle(table: pd.DataFrame) -> str:
    days = sorted(str(moment)[:10] for moment in table["started_at"].dropna())
    span = say(" · {first} to {last}", first=days[0], last=days[-1]) if days else ""
    cells, runs = table["cell_id"].nunique(), table["run"].nunique()
    return say(
        "{cells} cells of {runs} run{s}{span}", cells=cells, runs=runs, s="" if runs == 1 else "s", span=span
    )


def _headline(courses: dict[Metric, list[Course]], sentences: Sequence[str]) -> str:
    if sentences:
        number_of = say(
            "{number} change{s} of level", number=len(sentences), s="" if len(sentences) == 1 else "s"
        )
        return say("{changes} in {total} series.", changes=number_of, total=sum(map(len, courses.values())))
    if any(one.changes is not None for found in courses.values() for one in found):
        return say("No change of level.")
    return say(
        "Too little history to look for changes: no series has {number} measurements.", number=FEWEST_VALUES
    )


def _package_is_missing() -> bool:
    try:
        import ruptures  # noqa: F401
    except ImportError:
        return True
    return False
