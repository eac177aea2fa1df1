"""`python -m harness report RESULTS...`: render without measuring; several runs go on one page together."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli.language import add_language
from harness.cli.report_runs import write_runs
from harness.config.languages import ENGLISH, check_language
from harness.findings import keep
from harness.reports.build import write_report
from harness.reports.index import write_index
from harness.reports.language import speaking
from harness.reports.sweep import Sweep
from harness.reports.terminal import table_of
from harness.results import load
from harness.results.cell_folder import CELL_FILE


def main(arguments: list[str]) -> int:
    """Render the report of a results folder, or one page over several, and print its path."""
    parser = argparse.ArgumentParser(prog="python -m harness report", description=__doc__)
    parser.add_argument(
        "results",
        type=Path,
        nargs="+",
        help="a folder such as results/k_temperature; several are compared with the first",
    )
    parser.add_argument("--out", type=Path, help="where to write; reports/NAME by default")
    parser.add_argument(
        "--keep",
        action="store_true",
        help="keep finished cells' derived tables beside them, so that the next report is quick",
    )
    add_language(parser)
    options = parser.parse_args(arguments)
    check_language(options.language, field="--language")
    for path in options.results if options.keep else ():
        for file in path.glob(f"*/{CELL_FILE}"):
            keep(file.parent)
    out = options.out or Path("reports") / "-vs-".join(path.resolve().name for path in options.results)
    runs = [load(path) for path in options.results]
    with speaking(options.language):
        sweep = Sweep(runs[0])
        page = write_runs(runs, out) if len(runs) > 1 else write_report(sweep, out)
        if options.out is None:
            write_index(out.parent)
    if len(runs) == 1:
        # a sweep keeps its labels in the language they were first asked for; terminals get English
        print(table_of(sweep if options.language == ENGLISH else Sweep(runs[0])))
    print(f"report: {page}")
    return 0
