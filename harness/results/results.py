"""The loader: a folder of stored cells in, data frames out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from harness.errors import ResultFormatError
from harness.results.breakdowns import best_k
from harness.results.cell_folder import CELL_FILE, StoredCell, latest_cells, read_digested
from harness.results.derived import derive, joined
from harness.results.digest import Digest
from harness.results.engines import across_engines
from harness.results.frames import Frames, rows_of
from harness.results.rivalry import Rivalry, rivalry
from harness.results.summary import with_facts_first

_HELD_BYTES = 256 * 2**20
"""Observations that stay in memory once read; those of further cells are read again when asked for."""


class Results(Frames):
    """The frames of a run or sweep, and the tables derived from them; units and columns: docs/results.md."""

    def cell_by_cell(self) -> Iterator[Results]:
        """Each cell on its own, its derived tables shared; what it reads is dropped with it."""
        for cell, tables in zip(self.stored, self.tables, strict=True):
            one = Results(self.path, [cell])
            one.tables = [tables]
            yield one

    @cached_property
    def tables(self) -> Sequence[Digest | dict[str, pa.Table]]:
        """The derived tables of each cell: kept ones, or derived now."""
        return [cell.digest or derive(self.path, cell) for cell in self.stored]

    @cached_property
    def _summary(self) -> pd.DataFrame:
        return with_facts_first(self, self.figures("summary"))

    def summary(self) -> pd.DataFrame:
        """One row per cell and variant: speeds, speedups with intervals, acceptance, latency, costs."""
        return self._summary.copy()

    @cached_property
    def summary_rows(self) -> Sequence[Mapping[str, Any]]:
        """The rows of `summary` as mappings."""
        return rows_of(self._summary)

    def by_task(self) -> pd.DataFrame:
        """One row per cell, variant and task: speedup and acceptance with intervals."""
        return self.with_facts(self.figures("by_task"))

    def per_position(self) -> pd.DataFrame:
        """One row per cell, variant and place in the draft: marginal and conditional acceptance."""
        return self.with_facts(self.figures("per_position"))

    def best_k(self) -> pd.DataFrame:
        """One row per cell and method: the fastest k, and the smallest that is as good."""
        return best_k(self._summary)

    def look_ahead(self) -> pd.DataFrame:
        """One row per cell and method with several k: the speedup had each prompt its fastest k."""
        return self.figures("look_ahead")

    def chosen_k(self) -> pd.DataFrame:
        """Mean drafted tokens per step, a row per cell and variant and a column per span of steps."""
        return self.figures("chosen_k").set_index(["cell_id", "variant_id"]).sort_index()

    def pace_by_step(self) -> pd.DataFrame:
        """One row per cell, variant and step: drafted tokens, mean and quartiles over the sequences."""
        return self.figures("pace_by_step")

    def pace_shares(self) -> pd.DataFrame:
        """One row per cell, variant and number of drafted tokens: its share of the steps."""
        return self.figures("pace_shares")

    def against(self, cell_id: str, variant_id: str, rival_id: str) -> Rivalry:
        """A variant's speed and tokens per forward over another's of the same cell."""
        own = [cell for cell in self.stored if cell.record.cell_id == cell_id]
        return rivalry(Results(self.path, own), variant_id, rival_id)

    def spread(self) -> pd.DataFrame:
        """One row per cell and variant: spread between prompts, between repeats, and by drift."""
        return self.with_facts(self.figures("spread"))

    def greedy_agreement(self) -> pd.DataFrame:
        """One row per variant of the cells at temperature 0: does it write what the baseline writes?"""
        return self.with_facts(self.figures("greedy_agreement"))

    def num_repeats(self) -> pd.DataFrame:
        """One row per cell: measured passes over its prompts."""
        return self.figures("num_repeats")

    def across_engines(self) -> pd.DataFrame:
        """One row per variant of work that several engines did: its speed over the fastest baseline's."""
        return across_engines(self, self._prompt_sums)

    def figures(self, name: str) -> pd.DataFrame:
        """A derived table of all cells, without facts, by its name in `harness.results.derived.TABLES`."""
        if name not in self._joined:
            self._joined[name] = joined([of[name] for of in self.tables])
        return self._joined[name].copy(deep=False)

    @cached_property
    def _joined(self) -> dict[str, pd.DataFrame]:
        return {}

    def _prompt_sums(self, cell_ids: Collection[str]) -> pd.DataFrame:
        cells = zip(self.stored, self.tables, strict=True)
        return joined([of["prompt_sums"] for cell, of in cells if cell.record.cell_id in cell_ids])


def load(path: str | Path, *, every_cell: bool = False) -> Results:
    """Read the results of a run or sweep.

    Args:
        path: the folder of one name, such as `results/k_temperature`, or of a single cell.
        every_cell: read all that is stored, not only the cells of the latest command: those of other
            settings, or of an older version of the code.

    Raises:
        ResultFormatError: no cells are there, or a file is of another version or damaged.
    """
    folder = Path(path)
    files = [folder / CELL_FILE] if (folder / CELL_FILE).is_file() else sorted(folder.glob(f"*/{CELL_FILE}"))
    if not files:
        raise ResultFormatError(
            f"{folder}: no stored cells (no */{CELL_FILE}). Give the folder of one run or sweep, "
            "such as results/k_temperature, or measure first."
        )
    latest = None if every_cell else latest_cells(folder)
    folders = [file.parent for file in files if latest is None or file.parent.name in latest]
    return Results(folder, list(_read(folders)))


def _read(folders: Sequence[Path]) -> Iterator[StoredCell]:
    held = 0
    for folder in folders:
        cell = read_digested(folder)
        if isinstance(cell.rows, pa.Table):
            held += cell.rows.nbytes
            if held > _HELD_BYTES:
                cell = replace(cell, rows=folder)
        yield cell
