"""`python -m harness trend RESULTS...`: a page with each metric over many runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli.language import add_language
from harness.config.languages import check_language
from harness.reports.index import write_index
from harness.reports.language import speaking
from harness.reports.trend import build_trend


def main(arguments: list[str]) -> int:
    """Render the page, print the changes of level it marks, and its path; the exit code judges nothing."""
    parser = argparse.ArgumentParser(prog="python -m harness trend", description=__doc__)
    parser.add_argument(
        "results",
        type=Path,
        nargs="+",
        help="folders of runs, such as results/nightly, or one that holds several",
    )
    parser.add_argument("--out", type=Path, help="where to write; reports/trend by default")
    add_language(parser)
    options = parser.parse_args(arguments)
    check_language(options.language, field="--language")
    out = options.out or Path("reports/trend")
    with speaking(options.language):
        page, changes = build_trend(options.results, out)
        if options.out is None:
            write_index(out.parent)
    for sentence in changes:
        print(sentence)
    print(f"report: {page}")
    return 0
