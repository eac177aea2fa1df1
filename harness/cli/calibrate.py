"""`python -m harness calibrate RESULTS...`: how often does the gate call mere noise a regression?"""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.errors import ConfigError
from harness.gate.calibration import Calibration, calibrate
from harness.gate.settings import DEFAULT_GATE, load_gate
from harness.gate.verdict import Verdict
from harness.results import load

_EPILOG = (
    "One folder is split at random into halves of its repeats, many times; several folders are compared pair "
    "by pair. All must come from one version of the code on one machine."
)


def main(arguments: list[str]) -> int:
    """Print how often each verdict came when nothing had changed."""
    parser = argparse.ArgumentParser(
        prog="python -m harness calibrate", description=__doc__, epilog=_EPILOG, allow_abbrev=False
    )
    parser.add_argument("results", type=Path, nargs="+", help="folders, and gate=NAME or gate=FILE.yaml")
    parser.add_argument("--splits", type=int, default=100, help="of a single folder (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if options.splits < 1:
        raise ConfigError("--splits", "must be at least 1", options.splits)
    gates = [str(path) for path in options.results if str(path).startswith("gate=")]
    folders = [path for path in options.results if not str(path).startswith("gate=")]
    if not folders:
        raise ConfigError("command line", "must name a results folder", gates)
    settings = load_gate(gates[-1].removeprefix("gate=") if gates else DEFAULT_GATE)
    found = calibrate(
        [load(path) for path in folders], settings, num_splits=options.splits, seed=options.seed
    )
    print(_text(found, settings.name))
    return 0


def _text(found: Calibration, gate: str) -> str:
    source = "halves of one run" if found.num_runs == 1 else f"{found.num_runs} runs, pair by pair"
    share, low, high = found.false_alarms()
    lines = [f"{found.num_comparisons} comparisons of {source} with gate={gate}, nothing changed:"]
    lines += [
        f"  {verdict:13s} {found.verdicts[verdict]:5d}" for verdict in Verdict if found.verdicts[verdict]
    ]
    lines.append(f"false alarms: {share:.1%} [{low:.1%}, {high:.1%}]")
    if found.verdicts[Verdict.INCONCLUSIVE] > found.num_comparisons / 2:
        lines.append("Mostly inconclusive: margins are narrower than the noise. Measure more, or widen them.")
    return "\n".join(lines)
