"""Cells whose trials are stored together, when the cell is finished."""

from __future__ import annotations

from collections.abc import Callable

from harness.records import CellRecord, Observation
from harness.results import ResultStore

MakeRecord = Callable[..., CellRecord]
MakeObservation = Callable[..., Observation]


def test_nothing_but_the_record_is_written_before_the_end(
    store: ResultStore, make_record: MakeRecord, make_observation: MakeObservation
) -> None:
    rows = [make_observation(prompt_id=f"p{number}", block=number) for number in range(3)]
    writer = store.open_cell(make_record(2), at_once=True)
    for row in rows:
        writer.append([row])
    assert [file.name for file in writer.folder.rglob("*") if file.is_file()] == ["cell.json"]
    writer.finish(make_record(2))
    cell = store.load_cell("c0")
    assert cell is not None
    assert cell.table.to_pylist() == [row.row() for row in rows]
    assert not (writer.folder / "observations").exists()


def test_a_reopened_cell_keeps_what_it_had(
    store: ResultStore, make_record: MakeRecord, make_observation: MakeObservation
) -> None:
    for number in range(2):
        writer = store.open_cell(make_record(2), at_once=True)
        writer.append([make_observation(block=number)])
        writer.finish(make_record(2))
    nothing_new = store.open_cell(make_record(2), at_once=True)
    nothing_new.finish(make_record(2))
    cell = store.load_cell("c0")
    assert cell is not None
    assert cell.table["block"].to_pylist() == [0, 1]
