"""From stored results to a report on disk."""

from __future__ import annotations

from pathlib import Path

from harness.reports.capacity import read_advice
from harness.reports.html import render
from harness.reports.page import page_of
from harness.reports.sweep import Sweep
from harness.results import load
from harness.results.storage import storage_errors, write_atomic

REPORT_FILE = "index.html"


def build_report(results_dir: Path, out_dir: Path) -> Path:
    """Write the report of one run or sweep; measures nothing.

    Args:
        results_dir: the folder of one name, such as `results/k_temperature`.
        out_dir: where `index.html` goes; created where missing, an older report in it is replaced.

    Returns:
        The path of the written page.

    Raises:
        ResultFormatError: no cells are there, or they can't be read.
        StorageError: the page can't be written.
    """
    text = render(page_of(Sweep(load(results_dir)), advice=read_advice(out_dir)))
    with storage_errors(out_dir):
        out_dir.mkdir(parents=True, exist_ok=True)
    path = out_dir / REPORT_FILE
    write_atomic(path, lambda file: file.write(text.encode()))
    return path
