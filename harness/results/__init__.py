"""Results on disk and as data frames: `results = load("results/k_temperature")`."""

from __future__ import annotations

from harness.results.cell_folder import StoredCell
from harness.results.results import Results, load
from harness.results.store import CellWriter, ResultStore

__all__ = ["CellWriter", "ResultStore", "Results", "StoredCell", "load"]
