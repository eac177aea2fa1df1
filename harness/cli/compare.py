"""`python -m harness compare BASE HEAD [gate=NAME]`: did HEAD get worse? The exit code says."""

from __future__ import annotations

import argparse
import io
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from harness.errors import ConfigError, HarnessError
from harness.gate.check import Comparison
from harness.gate.comparison import compare
from harness.gate.document import json_text
from harness.gate.junit import junit_xml
from harness.gate.markdown import markdown_text
from harness.gate.settings import DEFAULT_GATE, load_gate
from harness.gate.terminal import terminal_text
from harness.results import load
from harness.results.storage import storage_errors, write_atomic

_WRITERS: dict[str, Callable[[Comparison], bytes]] = {
    "markdown": lambda found: markdown_text(found).encode(),
    "junit": junit_xml,
    "json": lambda found: json_text(found).encode(),
}
_EPILOG = (
    "exit codes: 0 pass or improvement, 1 regression, 2 bad input or an error, 3 inconclusive, 4 incomparable"
)


def main(arguments: list[str]) -> int:
    """Compare two results folders, write what was asked for, and return the verdict's exit code."""
    options = _parser().parse_args(arguments)
    comparison = _compared(options)
    try:
        _write_all(options, comparison)
        text = terminal_text(comparison, every_check=options.all)
    except Exception as error:  # any other exit code would read as a verdict
        _trace(error)
        comparison = replace(comparison, checks=(), error=_told(error))
        text = terminal_text(comparison)
        # What was written before the trouble says something else.
        for kind in _WRITERS:
            with suppress(Exception):
                _write_all(options, comparison, only=kind)
    _print(text, failed=comparison.error is not None)
    return comparison.verdict.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m harness compare", description=__doc__, epilog=_EPILOG, allow_abbrev=False
    )
    parser.add_argument("base", type=Path, help="results folder that is known to be good")
    parser.add_argument("head", type=Path, help="results folder to judge")
    parser.add_argument(
        "gate", nargs="?", default=f"gate={DEFAULT_GATE}", help="gate=NAME or gate=FILE.yaml (%(default)s)"
    )
    parser.add_argument("--all", action="store_true", help="list checks that passed or aren't gated too")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write a job summary")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write JUnit XML")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything")
    return parser


def _compared(options: argparse.Namespace) -> Comparison:
    """The comparison, or why there is none: every output then says so, instead of being absent or stale."""
    settings = None
    base, head = (path.resolve().name for path in (options.base, options.head))
    try:
        key, _, gate = options.gate.partition("=")
        if key != "gate" or not gate:
            raise ConfigError("command line", "takes gate=NAME or gate=FILE.yaml", options.gate)
        settings = load_gate(gate)
        return compare(load(options.base), load(options.head), settings)
    except Exception as error:  # Python would end with 1, which says "regression"
        _trace(error)
        return Comparison(base, head, settings, error=_told(error))


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, HarnessError) else f"{type(error).__name__}: {error}"


def _trace(error: Exception) -> None:
    """Show where a defect is; what the harness raises on purpose says it all by itself."""
    if not isinstance(error, HarnessError):
        traceback.print_exception(error)


def _write_all(options: argparse.Namespace, comparison: Comparison, *, only: str | None = None) -> None:
    for kind, write in _WRITERS.items():
        path: Path | None = getattr(options, kind)
        if path is not None and only in (None, kind):
            _write(path, write(comparison))


def _write(path: Path, content: bytes) -> None:
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, lambda file: file.write(content))


def _print(text: str, *, failed: bool) -> None:
    stream = sys.stderr if failed else sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")
    try:
        print(text, file=stream, flush=True)
    except OSError:
        # whoever read our output has gone, as `| head` does, or its disk is full; the exit code stands
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
