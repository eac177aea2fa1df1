"""The results of a sweep as plain rows, read from the frames once and shared by every section."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING

from harness.findings import Finding, find
from harness.records import CellRecord
from harness.reports.labels import Row, cell_labels, in_reading_order, varying_facts
from harness.reports.series import Series, series_of
from harness.results.frames import rows_of

if TYPE_CHECKING:
    import pandas as pd

    from harness.results import Results
    from harness.results.rivalry import Rivalry

MOST_CELLS = 48
"""Cells that a page lists one by one; of more it shows an excerpt."""
NUM_SHOWN = 12
"""Cells of an excerpt."""


class Sweep:
    """Rows by topic, derived when first asked for; every row has a `cell_id`, most a `variant_id`."""

    def __init__(self, results: Results) -> None:
        """Wrap what was loaded; no statistic is computed here that the results don't define."""
        self._results = results

    @cached_property
    def name(self) -> str:
        """Of the run or sweep."""
        return str(next((cell["name"] for cell in self.cells if cell.get("name")), self._results.path.name))

    @cached_property
    def cells(self) -> Sequence[Row]:
        """One row per cell, in reading order."""
        return in_reading_order(rows_of(self._results.cells))

    @cached_property
    def variants(self) -> Sequence[Row]:
        """Summary rows of all variants, baselines included, in reading order."""
        rows = self._results.summary_rows
        order = {cell["cell_id"]: place for place, cell in enumerate(self.cells)}
        return sorted(rows, key=lambda row: (order[row["cell_id"]], *_variant_order(row)))

    @cached_property
    def tasks(self) -> Sequence[Row]:
        """Speedup and acceptance by task."""
        return self._rows(self._results.by_task())

    @cached_property
    def positions(self) -> Sequence[Row]:
        """Acceptance by place in the draft."""
        return self._rows(self._results.per_position())

    @cached_property
    def ceilings(self) -> Sequence[Row]:
        """What choosing k could gain at most, per cell and method."""
        return self._rows(self._results.look_ahead())

    @cached_property
    def chosen_k(self) -> pd.DataFrame:
        """Mean drafted tokens per step by cell and variant, over time."""
        return self._results.chosen_k()

    @cached_property
    def pace_by_step(self) -> Sequence[Row]:
        """Drafted tokens over the steps."""
        return self._rows(self._results.pace_by_step())

    @cached_property
    def pace_shares(self) -> Sequence[Row]:
        """The share of steps at each number of drafted tokens."""
        return self._rows(self._results.pace_shares())

    def against(self, row: Row, rival: Row) -> Rivalry:
        """A variant over another of the same cell, by their summary rows."""
        return self._results.against(row["cell_id"], row["variant_id"], rival["variant_id"])

    @cached_property
    def spread(self) -> Sequence[Row]:
        """Where the spread of times and speedups comes from."""
        return self._rows(self._results.spread())

    @cached_property
    def agreement(self) -> Sequence[Row]:
        """Greedy output compared with the baseline's."""
        return self._rows(self._results.greedy_agreement())

    @cached_property
    def engines(self) -> Sequence[Row]:
        """Work that several engines did, compared over them."""
        return self._rows(self._results.across_engines())

    @cached_property
    def lossless(self) -> Sequence[Row]:
        """The lossless check, cells and variants in reading order."""
        rows = self._rows(self._results.lossless)
        order = {cell["cell_id"]: place for place, cell in enumerate(self.cells)}
        return sorted(rows, key=lambda row: (order[row["cell_id"]], *_variant_order(row)))

    @cached_property
    def divergences(self) -> Sequence[Row]:
        """Where greedy outputs leave the baseline's."""
        return self._rows(self._results.divergences)

    @cached_property
    def findings(self) -> Sequence[Finding]:
        """What the rules found."""
        return find(self._results)

    @cached_property
    def cold_start(self) -> Sequence[Row]:
        """Timed set-up parts."""
        return self._rows(self._results.cold_start)

    @cached_property
    def failures(self) -> Sequence[Row]:
        """What went wrong."""
        return self._rows(self._results.failures)

    @cached_property
    def records(self) -> dict[str, CellRecord]:
        """Full records by cell id."""
        return dict(self._results.records)

    @cached_property
    def facts(self) -> Sequence[str]:
        """Names of the cell columns that hold facts."""
        return list(self._results.fact_columns)

    @cached_property
    def num_repeats(self) -> dict[str, int]:
        """Measured passes over the prompts, by cell id."""
        rows = self._rows(self._results.num_repeats())
        return {str(row["cell_id"]): int(row["num_repeats"]) for row in rows}

    @cached_property
    def labels(self) -> dict[str, str]:
        """A label per cell id."""
        return cell_labels(self.cells)

    @cached_property
    def varying(self) -> list[str]:
        """Names of the facts that differ between cells."""
        return varying_facts(self.cells)

    @cached_property
    def series(self) -> list[Series]:
        """The speculating variants, grouped for reading."""
        return series_of(self.cells, self.variants, self._rows(self._results.best_k()))

    @cached_property
    def whole_tables(self) -> dict[str, pd.DataFrame]:
        """The tables that an excerpt leaves rows of out, by name."""
        results = self._results
        return {
            "cells": results.cells,
            "summary": results.summary(),
            "best_k": results.best_k(),
            "by_task": results.by_task(),
            "per_position": results.per_position(),
            "spread": results.spread(),
            "lossless": results.lossless,
            "cold_start": results.cold_start,
            "failures": results.failures,
        }

    @cached_property
    def excerpt(self) -> Sweep:
        """What a page shows in full: itself, or some of its cells where there are too many to read."""
        return self if len(self.cells) <= MOST_CELLS else _Excerpt(self, self._results)

    @property
    def is_cut(self) -> bool:
        """Whether the excerpt leaves cells out."""
        return self.excerpt is not self

    @property
    def has_many_cells(self) -> bool:
        """Whether a row needs to say which cell it belongs to."""
        return len(self.cells) > 1

    def baseline(self, cell_id: str) -> Row | None:
        """The row without speculation of a cell."""
        return next((row for row in self.variants_of(cell_id) if row["is_baseline"]), None)

    def variants_of(self, cell_id: str) -> Sequence[Row]:
        """Summary rows of a cell, the baseline first, then by method and k."""
        return self._variants_by_cell.get(cell_id, ())

    @cached_property
    def _variants_by_cell(self) -> dict[str, list[Row]]:
        return by_cell(self.variants)

    def _rows(self, frame: pd.DataFrame) -> list[Row]:
        return rows_of(frame)


class _Excerpt(Sweep):
    """Some cells of a sweep, spread evenly over the ranking of all by their best speedup."""

    def __init__(self, whole: Sweep, results: Results) -> None:
        super().__init__(results)
        best = {one.cell_id: one.chosen["speedup"] for one in whole.series if one.chosen}
        ranked = sorted(whole.cells, key=lambda cell: -best.get(cell["cell_id"], -inf))
        last = len(ranked) - 1
        self._cell_ids = {ranked[round(i * last / (NUM_SHOWN - 1))]["cell_id"] for i in range(NUM_SHOWN)}
        self._whole = whole

    @cached_property
    def cells(self) -> Sequence[Row]:
        return [cell for cell in self._whole.cells if cell["cell_id"] in self._cell_ids]

    @cached_property
    def variants(self) -> Sequence[Row]:
        return [row for row in self._whole.variants if row["cell_id"] in self._cell_ids]

    @cached_property
    def labels(self) -> dict[str, str]:
        return {cell["cell_id"]: self._whole.labels[cell["cell_id"]] for cell in self.cells}

    @cached_property
    def varying(self) -> list[str]:
        return self._whole.varying

    @cached_property
    def records(self) -> dict[str, CellRecord]:
        return {cell_id: self._whole.records[cell_id] for cell_id in self.labels}

    def _rows(self, frame: pd.DataFrame) -> list[Row]:
        return rows_of(frame[frame["cell_id"].isin(self._cell_ids)])


def by_cell(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows by their cell, in order."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["cell_id"], []).append(row)
    return found


def _variant_order(row: Row) -> tuple[bool, str, float]:
    return not row["is_baseline"], str(row["method"]), float(row["k"] or 0)
