"""`python -m harness report RESULTS`: render a report again without measuring."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.reports.build import build_report
from harness.reports.index import write_index
from harness.reports.terminal import summary_table
from harness.results import load


def main(arguments: list[str]) -> int:
    """Render the report of a results folder and print its path."""
    parser = argparse.ArgumentParser(prog="python -m harness report", description=__doc__)
    parser.add_argument("results", type=Path, help="a folder such as results/k_temperature")
    parser.add_argument("--out", type=Path, help="where to write; reports/NAME by default")
    options = parser.parse_args(arguments)
    out = options.out or Path("reports") / options.results.resolve().name
    page = build_report(options.results, out)
    if options.out is None:
        write_index(out.parent)
    print(summary_table(load(options.results)))
    print(f"report: {page}")
    return 0
