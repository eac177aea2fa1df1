"""`python -m harness plan RESULTS [traffic=NAME slo=NAME ...]`: how many replicas, at which k and cost."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.capacity.plan import make_plan
from harness.capacity.settings import GROUPS, group_names, load_settings
from harness.capacity.validation_table import read_validation
from harness.cli.language import add_language
from harness.config.languages import check_language
from harness.reports.index import write_index
from harness.reports.language import speaking
from harness.reports.plan_build import write_plan
from harness.reports.plan_terminal import plan_table
from harness.results import load

_EXIT_LIMITS_NOT_MET = 1


def main(arguments: list[str]) -> int:
    """Plan, or validate a plan's model; returns 1 where no configuration keeps the limits."""
    if arguments[:1] == ["validate"]:
        from harness.cli.plan_validate import main as validate

        return validate(arguments[1:])
    options = _parser().parse_intermixed_args(arguments)
    check_language(options.language, field="--language")
    settings = load_settings(options.settings, config_dir=options.config_dir)
    plan = make_plan(load(options.results), settings)
    out = options.out or Path("reports") / plan.name
    with speaking(options.language):
        page = write_plan(plan, out, read_validation(options.results))
        if options.out is None:
            write_index(out.parent)
    print(plan_table(plan))
    print(f"plan: {page}")
    return 0 if any(one.recommended for one in plan.configurations) else _EXIT_LIMITS_NOT_MET


def _parser() -> argparse.ArgumentParser:
    groups = "; ".join(f"{group}={'|'.join(group_names(group))}" for group in GROUPS)
    parser = argparse.ArgumentParser(
        prog="python -m harness plan",
        description=__doc__,
        epilog=f"Groups: {groups}. Values: traffic.requests_per_s=20 slo.tpot_p95_s=0.05 ... "
        "(docs/capacity.md). 'plan validate RESULTS' drives the engine under load and compares.",
        allow_abbrev=False,
    )
    parser.add_argument("results", type=Path, help="a folder such as results/k_temperature")
    parser.add_argument("settings", nargs="*", help="GROUP=NAME, GROUP=FILE.yaml or KEY=VALUE")
    parser.add_argument("--out", type=Path, help="where to write; reports/NAME by default")
    add_language(parser)
    parser.add_argument("--config-dir", type=Path, help="a folder with further plan/GROUP/NAME.yaml")
    return parser
