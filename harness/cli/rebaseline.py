"""`python -m harness rebaseline COMMIT -- OVERRIDES`: measure a commit and this tree in turns; compare."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.cli import compare
from harness.errors import ConfigError, MeasurementError
from harness.gate.verdict import Verdict

_EPILOG = (
    "Example: python -m harness rebaseline origin/main --rounds 4 -- +sweep=smoke. Both sides run in this "
    "environment unless --base-python names another one; each round adds one repeat to either side."
)
_OWNED = ("name", "results_dir", "report", "resume", "measure.min_repeats", "measure.max_repeats")


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two: its name, the tree whose code and configuration run, and the Python that runs it."""

    name: str
    tree: Path
    python: str


def main(arguments: list[str]) -> int:
    """Measure both sides round by round and return the verdict's exit code."""
    own, overrides = _split(arguments)
    options, for_compare = _parser().parse_known_args(own)
    if options.rounds < 1:
        raise ConfigError("--rounds", "must be at least 1", options.rounds)
    _refuse_owned(overrides)
    root = Path(_git("rev-parse", "--show-toplevel"))
    commit = _git("rev-parse", "--verify", f"{options.commit}^{{commit}}")
    results = options.results.resolve()
    with _checked_out(commit) as tree:
        sides = (
            Side("base", tree, options.base_python or sys.executable),
            Side("head", root, sys.executable),
        )
        try:
            _measure_in_turns(sides, overrides, results=results, rounds=options.rounds)
        except MeasurementError as error:
            print(f"error: {error}", file=sys.stderr)
            return Verdict.ERROR.exit_code  # its own exit code, 1, would read as a regression
    return compare.main([str(results / "base"), str(results / "head"), *for_compare])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m harness rebaseline",
        description=__doc__,
        epilog=_EPILOG,
        usage="%(prog)s COMMIT [options] [gate=NAME and options of compare] -- OVERRIDES",
        allow_abbrev=False,
    )
    parser.add_argument("commit", help="what to compare with: a commit, tag or branch of this repository")
    parser.add_argument("--rounds", type=int, default=3, help="repeats of each side (default: %(default)s)")
    parser.add_argument("--base-python", help="Python of another environment for COMMIT")
    parser.add_argument("--results", type=Path, default=Path("results/rebaseline"), help="(%(default)s)")
    return parser


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    if "--" not in arguments:
        return list(arguments), []
    place = list(arguments).index("--")
    return list(arguments[:place]), list(arguments[place + 1 :])


def _refuse_owned(overrides: Sequence[str]) -> None:
    for override in overrides:
        key = override.lstrip("+~").partition("=")[0]
        if key in _OWNED:
            raise ConfigError(key, "is set by rebaseline itself", override, "Leave it out.")


def _git(*command: str) -> str:
    try:
        done = subprocess.run(["git", *command], check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise ConfigError("git", "isn't installed", " ".join(command), "Install it.") from error
    except subprocess.CalledProcessError as error:
        remedy = error.stderr.strip().splitlines()[-1] if error.stderr.strip() else "Check the commit."
        raise ConfigError("git", "can't do what rebaseline needs", " ".join(command), remedy) from error
    return done.stdout.strip()


@contextmanager
def _checked_out(commit: str) -> Iterator[Path]:
    """The tree of a commit, beside the repository's own, for as long as it is needed."""
    with tempfile.TemporaryDirectory(prefix="harness-base-") as scratch:
        tree = Path(scratch) / "tree"
        _git("worktree", "add", "--detach", str(tree), commit)
        try:
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _measure_in_turns(sides: Sequence[Side], overrides: Sequence[str], *, results: Path, rounds: int) -> None:
    for number in range(rounds):
        # there and back again, so that a steady drift of the machine hits both sides alike
        for side in sides if number % 2 == 0 else sides[::-1]:
            print(f"round {number + 1} of {rounds}: {side.name}", flush=True)
            _measure(side, overrides, results=results, repeats=number + 1)


def _measure(side: Side, overrides: Sequence[str], *, results: Path, repeats: int) -> None:
    command = [side.python, "-m", "harness", *overrides]
    command += [f"name={side.name}", f"results_dir={results}", "report=false"]
    command += [f"measure.min_repeats={repeats}", f"measure.max_repeats={repeats}"]
    done = subprocess.run(
        command,
        cwd=side.tree,
        env={**os.environ, "PYTHONPATH": str(side.tree)},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise MeasurementError(f"measuring {side.name} ended with exit code {done.returncode}:\n{tail}")
