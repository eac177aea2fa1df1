"""What a page says of a sweep with too many cells to list: counts over all, and what is shown of which."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from harness.reports.blocks import Block, Column, Entry, Prose, Section, Table, entry
from harness.reports.display import count, fact, number, percent, ratio
from harness.reports.labels import method_label, phrase
from harness.reports.language import say
from harness.reports.series import Series
from harness.reports.sweep import Sweep
from harness.reports.words import Verdict, interval_text, verdict

TABLES_FOLDER = "tables"
"""Beside the page: every row of the tables that it cuts."""

_MOST_VALUES = 24
_NUM_PARTS = 8


def excerpted(section: Section, sweep: Sweep) -> Section:
    """A section over the excerpt, saying so."""
    if section.omitted and not section.blocks:
        return section
    note = say(
        "{number} are shown, spread over the ranking by speedup; {folder}/ has all.",
        number=_shown(sweep),
        folder=TABLES_FOLDER,
    )
    return replace(section, lead=f"{say(section.lead)} {note}".strip())


def overview_section(sweep: Sweep) -> Section:
    """How speculation does over all cells, value by value of each fact that differs between them."""
    lead = say(
        "{num_cells} cells are too many to list. This section, the summary's sentences, the findings "
        "and the failures count all of them; the other sections show {number}, spread evenly over "
        "the ranking by best speedup, the first and the last included. All rows of all tables are "
        "beside this page, in {folder}/ as Parquet: {tables}.",
        num_cells=len(sweep.cells),
        number=_shown(sweep),
        folder=TABLES_FOLDER,
        tables=", ".join(sweep.whole_tables),
    )
    blocks: list[Block] = []
    for name in sweep.varying:
        groups = _by_value(sweep, name)
        told = name.replace("_", " ")
        if len(groups) <= _MOST_VALUES:
            blocks.append(_table(say("By {fact}", fact=told), groups))
        else:
            blocks.append(
                Prose(
                    say("{fact}: {num_values} values, too many to list.", fact=told, num_values=len(groups))
                )
            )
    methods: dict[str, list[Series]] = {}
    for one in sweep.series:
        methods.setdefault(method_label(one.method), []).append(one)
    blocks.append(_table("By method", methods))
    return Section("overview", "All cells, counted", lead, blocks)


def _by_value(sweep: Sweep, name: str) -> dict[str, list[Series]]:
    """Series by the value of a fact; many numbers by the eighth of the values they are in."""
    values = {str(cell["cell_id"]): cell.get(name) for cell in sweep.cells}
    known = sorted({found for value in values.values() if (found := number(value)) is not None})
    names = {cell_id: phrase(name, value) for cell_id, value in values.items()}
    if len(known) > _MOST_VALUES:
        for cell_id, value in values.items():
            if (found := number(value)) is not None:
                part = bisect_left(known, found) * _NUM_PARTS // len(known)
                first = -(-part * len(known) // _NUM_PARTS)
                last = -(-(part + 1) * len(known) // _NUM_PARTS) - 1
                names[cell_id] = say(
                    "{low} to {high}", low=phrase(name, known[first]), high=fact(known[last])
                )
    groups: dict[str, list[Series]] = {}
    for one in sweep.series:
        groups.setdefault(names[one.cell_id], []).append(one)
    return groups


def _shown(sweep: Sweep) -> str:
    return say(
        "{num_shown} of {num_cells} cells", num_shown=len(sweep.excerpt.cells), num_cells=len(sweep.cells)
    )


def _table(caption: str, groups: dict[str, list[Series]]) -> Table:
    columns = [
        Column("value", numeric=False),
        Column("settings", hint="a cell and a method, each at its recommended k"),
        Column("faster", hint="whole 95% interval of the speedup above 1"),
        Column("slower", hint="whole 95% interval of the speedup below 1"),
        Column("median speedup"),
        Column("lowest"),
        Column("highest"),
        Column("median acceptance"),
    ]
    return Table(caption, columns, [_row(name, series) for name, series in groups.items()])


def _row(name: str, series: Sequence[Series]) -> list[Entry]:
    rows = [one.chosen for one in series if one.chosen is not None]
    speedups = sorted(float(row["speedup"]) for row in rows)
    rates = [
        float(row["acceptance_rate"]) for row in rows if row["acceptance_rate"] == row["acceptance_rate"]
    ]
    verdicts = [verdict(row) for row in rows]
    by_speed = sorted(rows, key=lambda row: float(row["speedup"]))
    return [
        entry(name),
        entry(count(len(series))),
        entry(count(verdicts.count(Verdict.PAYS))),
        entry(count(verdicts.count(Verdict.COSTS))),
        entry(ratio(median(speedups) if speedups else None)),
        entry(interval_text(by_speed[0]) if by_speed else ratio(None)),
        entry(interval_text(by_speed[-1]) if by_speed else ratio(None)),
        entry(percent(median(rates) if rates else None)),
    ]
