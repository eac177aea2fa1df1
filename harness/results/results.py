"""The loader: a folder of stored cells in, data frames out."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import pandas as pd

from harness.errors import ResultFormatError
from harness.results.agreement import greedy_agreement
from harness.results.breakdowns import best_k, by_task, per_position
from harness.results.ceiling import chosen_k, look_ahead
from harness.results.cell_folder import CELL_FILE, latest_cells, read_cell
from harness.results.engines import across_engines
from harness.results.frames import Frames
from harness.results.pace import pace_by_step, pace_shares
from harness.results.rivalry import Rivalry, rivalry
from harness.results.spread import spread
from harness.results.summary import summarise


class Results(Frames):
    """The frames of a run or sweep, and the tables derived from them; units and columns: docs/results.md."""

    @cached_property
    def _summary(self) -> pd.DataFrame:
        return summarise(self)

    def summary(self) -> pd.DataFrame:
        """One row per cell and variant: speeds, speedups with intervals, acceptance, latency, costs."""
        return self._summary.copy()

    def by_task(self) -> pd.DataFrame:
        """One row per cell, variant and task: speedup and acceptance with intervals."""
        return by_task(self)

    def per_position(self) -> pd.DataFrame:
        """One row per cell, variant and place in the draft: marginal and conditional acceptance."""
        return per_position(self)

    def best_k(self) -> pd.DataFrame:
        """One row per cell and method: the fastest k, and the smallest that is as good."""
        return best_k(self._summary)

    def look_ahead(self) -> pd.DataFrame:
        """One row per cell and method with several k: the speedup had each prompt its fastest k."""
        return look_ahead(self)

    def chosen_k(self) -> pd.DataFrame:
        """Mean drafted tokens per step, a row per cell and variant and a column per span of steps."""
        return chosen_k(self)

    def pace_by_step(self) -> pd.DataFrame:
        """One row per cell, variant and step: drafted tokens, mean and quartiles over the sequences."""
        return pace_by_step(self)

    def pace_shares(self) -> pd.DataFrame:
        """One row per cell, variant and number of drafted tokens: its share of the steps."""
        return pace_shares(self)

    def against(self, cell_id: str, variant_id: str, rival_id: str) -> Rivalry:
        """A variant's speed and tokens per forward over another's of the same cell."""
        own = [cell for cell in self.stored if cell.record.cell_id == cell_id]
        return rivalry(Results(self.path, own), variant_id, rival_id)

    def spread(self) -> pd.DataFrame:
        """One row per cell and variant: spread between prompts, between repeats, and by drift."""
        return spread(self)

    def greedy_agreement(self) -> pd.DataFrame:
        """One row per variant of the cells at temperature 0: does it write what the baseline writes?"""
        return greedy_agreement(self)

    def across_engines(self) -> pd.DataFrame:
        """One row per variant of work that several engines did: its speed over the fastest baseline's."""
        return across_engines(self)


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
    cells = [read_cell(file.parent) for file in files if latest is None or file.parent.name in latest]
    return Results(folder, cells)
