"""One stored run as the gate reads it: its rows and its figures, by cell and variant."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import pandas as pd

from harness.records import CellRecord, Phase, Status
from harness.results import Results
from harness.results.agreement import greedy_agreement

BASE, HEAD = "BASE", "HEAD"
Key = tuple[str, str]
"""cell_id, variant_id."""


class Run:
    """BASE or HEAD, grouped once so that a sweep of many cells isn't searched for each."""

    def __init__(self, side: str, results: Results) -> None:
        """Name the side and take the loaded results."""
        self.side = side
        self.results = results

    def measured(self, cell_id: str) -> pd.DataFrame:
        """Rows of a cell's measured phase, failed ones included."""
        return self._measured.get(cell_id, self.results.observations.iloc[:0])

    def counting(self, cell_id: str) -> pd.DataFrame:
        """Those of them that are ok."""
        return self._counting.get(cell_id, self.results.measured.iloc[:0])

    def summary(self, key: Key) -> Mapping[str, Any]:
        """A variant's row of `Results.summary()`; empty where there is none."""
        return self._summary.get(key, {})

    def agreement(self, key: Key) -> Mapping[str, Any]:
        """A variant's row of `Results.greedy_agreement()`; empty where there is none."""
        return self._agreement.get(key, {})

    def damage(self, record: CellRecord) -> str | None:
        """Why nothing of a cell can be trusted; None if there's no such reason."""
        if record.status == Status.FAILED:
            first = record.failures[0].error if record.failures else "no reason was stored"
            return f"the cell failed in {self.side}: {first}"
        for cell in self.results.stored:
            if cell.record.cell_id == record.cell_id and cell.problems:
                return f"stored data of {self.side} is damaged: {cell.problems[0]}"
        return None

    @cached_property
    def _measured(self) -> dict[str, pd.DataFrame]:
        rows = self.results.observations
        return _by_cell(rows[rows["phase"] == Phase.MEASURE.value])

    @cached_property
    def _counting(self) -> dict[str, pd.DataFrame]:
        return _by_cell(self.results.measured)

    @cached_property
    def _summary(self) -> dict[Key, Mapping[str, Any]]:
        return _by_key(self.results.summary())

    @cached_property
    def _agreement(self) -> dict[Key, Mapping[str, Any]]:
        # not the derived table: deriving it derives all of a cell's tables
        return _by_key(greedy_agreement(self.results))


def _by_cell(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    return {str(cell_id): of_cell for cell_id, of_cell in rows.groupby("cell_id", sort=False)}


def _by_key(table: pd.DataFrame) -> dict[Key, Mapping[str, Any]]:
    rows: list[dict[Any, Any]] = table.to_dict("records")
    return {(str(row["cell_id"]), str(row["variant_id"])): row for row in rows}
