"""One command's cells: plan them all, measure one after another, and conclude."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from types import TracebackType

from harness.config.schema import HarnessConfig
from harness.errors import ConfigError, HarnessError, StorageError
from harness.records import CellRecord, Status
from harness.reports.build import build_report
from harness.reports.index import write_index
from harness.reports.language import speaking
from harness.reports.terminal import summary_table
from harness.results import load
from harness.results.store import ResultStore
from harness.runner.cell import Interrupted, measure_cell
from harness.runner.plan import CellPlan, plan_cell
from harness.runner.progress import SweepProgress
from harness.runner.sessions import SessionPool
from harness.verdicts import LosslessVerdict

EXIT_DEFECT = 5
"""A variant's output isn't the target's, though it should be; all that was measured is stored."""


class Sweep:
    """The cells of one command line.

    Every cell is planned before the first is measured, so that a mistake in the last one shows at once.

    Attributes:
        records: of the cells that were measured or found measured.
        interrupted: whether Ctrl-C ended the sweep.
    """

    def __init__(self, cells: Sequence[HarnessConfig]) -> None:
        """Plan every cell and check that results can be written.

        Raises:
            HarnessError: a cell can't be measured.
        """
        self._config = cells[0]
        _check_one_place(cells)
        self._store = ResultStore(Path(self._config.results_dir), self._config.name)
        _check_writable(self._store)
        self._plans = {_key(cell): plan_cell(cell) for cell in cells}
        self._cell_ids = {plan.cell_id for plan in self._plans.values()}
        if self._config.resume:
            for cell_id in self._cell_ids:
                self._store.load_cell(cell_id)
        self._store.select(sorted(self._cell_ids))
        self._pool = SessionPool()
        self._progress = SweepProgress(sum(_least_trials(plan) for plan in self._plans.values()))
        self.records: list[CellRecord] = []
        self.interrupted = False

    def __enter__(self) -> Sweep:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the bar and the engine."""
        self._progress.__exit__(kind, error, trace)
        self._pool.close()

    def measure(self, config: HarnessConfig) -> str:
        """Measure one cell, as Hydra hands it over; what fails is stored and the sweep goes on."""
        plan = self._plans.get(_key(config)) or plan_cell(config)
        try:
            record = measure_cell(plan, store=self._store, pool=self._pool, progress=self._progress)
        except Interrupted:
            self.interrupted = True
            raise
        self.records.append(record)
        return record.status

    def conclude(self) -> int:
        """Render the report, print its path and the table, and return the exit code."""
        if not self._store.cell_ids():
            return 130 if self.interrupted else 1
        reported = self._report() if self._config.report else True
        for record in self.records:
            for failure in record.failures:
                where = failure.variant_id or "the cell"
                print(f"failed: {where} ({failure.stage}): {failure.error}", file=sys.stderr)
        if self.interrupted:
            print("interrupted: the same command measures what is missing.", file=sys.stderr)
            return 130
        if any(has_defect(record) for record in self.records):
            print(
                f"lossless check failed: see the report's section on losslessness (exit code {EXIT_DEFECT}).",
                file=sys.stderr,
            )
            return EXIT_DEFECT
        complete = {record.cell_id for record in self.records} == self._cell_ids
        return 0 if complete and reported and all(r.status == Status.OK for r in self.records) else 1

    def _report(self) -> bool:
        try:
            reports_dir = Path(self._config.reports_dir)
            with speaking(self._config.report_language):
                page = build_report(self._store.path, reports_dir / self._store.name)
                write_index(reports_dir)
            print(summary_table(load(self._store.path)))
            print(f"report: {page}")
            return True
        except HarnessError as error:
            print(
                f"error: the results are stored in {self._store.path}, but no report: {error}",
                file=sys.stderr,
            )
            return False


def has_defect(record: CellRecord) -> bool:
    """Whether the lossless check of a cell found one."""
    return any(row["verdict"] == LosslessVerdict.DEFECT for row in record.lossless)


def _check_writable(store: ResultStore) -> None:
    try:
        store.check_writable()
    except StorageError as error:
        # nothing was measured yet, so this is bad input rather than a failed run
        error.exit_code = 2
        raise


def _check_one_place(cells: Sequence[HarnessConfig]) -> None:
    for field in ("name", "results_dir", "reports_dir", "resume", "report", "report_language"):
        values = list(dict.fromkeys(str(getattr(cell, field)) for cell in cells))
        if len(values) > 1:
            remedy = "The cells of a sweep share their folders: start one command for each."
            raise ConfigError(field, "takes one value in a sweep", ",".join(values), remedy)


def _key(config: HarnessConfig) -> str:
    return repr(astuple(config))


def _least_trials(plan: CellPlan) -> int:
    blocks = -(-len(plan.prompts) // plan.config.batch_size)
    return plan.config.measure.min_repeats * blocks * len(plan.variants)
