"""From stored results to a report on disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from harness.reports.capacity import read_advice
from harness.reports.excerpt import TABLES_FOLDER
from harness.reports.page import page_of
from harness.reports.publish import publish
from harness.reports.sweep import Sweep
from harness.results import load
from harness.results.export import write_frame
from harness.results.storage import storage_errors

if TYPE_CHECKING:
    import pandas as pd


def build_report(results_dir: Path, out_dir: Path) -> Path:
    """Write the report of one run or sweep; measures nothing.

    Args:
        results_dir: the folder of one name, such as `results/k_temperature`.
        out_dir: where it goes; created where missing, an older report in it is replaced.

    Returns:
        The path of the written page, `index.html`; its twins lie beside it.

    Raises:
        ResultFormatError: no cells are there, or they can't be read.
        StorageError: the page can't be written.
    """
    return write_report(Sweep(load(results_dir)), out_dir)


def write_report(sweep: Sweep, out_dir: Path) -> Path:
    """Write the report of loaded results; see `build_report`."""
    path = publish(page_of(sweep, advice=read_advice(out_dir)), out_dir)
    _replace_tables(sweep.whole_tables if sweep.is_cut else {}, out_dir / TABLES_FOLDER)
    return path


def _replace_tables(tables: Mapping[str, pd.DataFrame], folder: Path) -> None:
    with storage_errors(folder):
        for old in folder.glob("*.parquet"):
            old.unlink()
        if tables:
            folder.mkdir(exist_ok=True)
    for name, frame in tables.items():
        write_frame(folder / f"{name}.parquet", frame)
