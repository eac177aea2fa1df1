"""Measuring from the command line: check everything, let Hydra run the cells, then report."""

from __future__ import annotations

import atexit
import shutil
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import hydra
from hydra._internal.utils import get_args_parser
from omegaconf import DictConfig, OmegaConf

from harness.cli.compose import CONFIG_NAME, compose_cells
from harness.cli.sweep import Sweep
from harness.config.store import register_schemas, to_config
from harness.errors import HarnessError
from harness.paths import conf_dir


class _PastHydra(BaseException):
    """Carries an error out of a job: Hydra would print a traceback and start the next job."""

    def __init__(self, error: HarnessError) -> None:
        super().__init__(str(error))
        self.error = error


def main(arguments: list[str]) -> int:
    """Measure what the command line asks for; see `harness.__main__.main` for exit codes."""
    register_schemas()
    OmegaConf.register_new_resolver("harness.scratch", _scratch_dir, replace=True)
    parsed = get_args_parser().parse_args(arguments)
    if _only_shows(parsed):
        _run_hydra(arguments, lambda config: None)
        return 0
    cells = compose_cells(
        parsed.overrides,
        config_dir=parsed.config_dir,
        config_name=parsed.config_name or CONFIG_NAME,
        multirun=parsed.multirun,
    )
    with Sweep(cells) as sweep:
        try:
            _run_hydra(arguments, lambda config: sweep.measure(to_config(config)))
        except KeyboardInterrupt:
            sweep.interrupted = True
    return sweep.conclude()


def _only_shows(parsed: Any) -> bool:
    shows = ("help", "hydra_help", "cfg", "info", "shell_completion")
    return any(getattr(parsed, name, None) for name in shows)


def _run_hydra(arguments: Sequence[str], task: Any) -> None:
    @hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name=CONFIG_NAME)
    def run(config: DictConfig) -> Any:
        try:
            return task(config)
        except HarnessError as error:
            raise _PastHydra(error) from error

    before = sys.argv
    sys.argv = [before[0], *arguments]
    try:
        run()
    except _PastHydra as carried:
        raise carried.error from None
    finally:
        sys.argv = before


@cache
def _scratch_dir() -> str:
    """A folder for what Hydra insists on writing in a sweep; gone when the process ends."""
    folder = tempfile.mkdtemp(prefix="harness-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return str(Path(folder))
