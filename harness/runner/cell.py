"""Measure one cell: open the engine, prepare the variants, warm up, run the blocks, keep everything."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import Any, TypeVar

from harness.backends.base import ColdStart, Session
from harness.errors import HarnessError, StorageError
from harness.privacy import clean
from harness.records import CellRecord, Failure, Observation, Phase, Status, Variant
from harness.results.store import CellWriter, ResultStore
from harness.runner.derived import keep_derived
from harness.runner.losslessness import check_lossless
from harness.runner.machine import watched
from harness.runner.outputs import Outputs
from harness.runner.plan import CellPlan
from harness.runner.progress import SweepProgress, variant_line
from harness.runner.record import new_record, now
from harness.runner.schedule import Block, blocks
from harness.runner.sessions import SessionPool
from harness.runner.stop import StopRule
from harness.runner.trial import run_trial, unmeasured, warmup_blocks

Result = TypeVar("Result")


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a cell, after everything measured was stored."""


def measure_cell(
    plan: CellPlan, *, store: ResultStore, pool: SessionPool, progress: SweepProgress
) -> CellRecord:
    """Measure what is missing of a cell.

    Failures of a variant or of the cell are stored, not raised.

    Returns:
        The stored record; `status` says whether all of it was measured.

    Raises:
        StorageError: results can't be written.
        Interrupted: Ctrl-C; what was measured is stored.
    """
    if getattr(plan.backend, "switches_variants", True):
        return CellRun(plan, store, pool, progress).run()
    # below this module: it extends what is defined here
    from harness.runner.sequential import SequentialRun

    return SequentialRun(plan, store, pool, progress).run()


class CellRun:
    """One cell whose variants take turns in every block."""

    def __init__(
        self, plan: CellPlan, store: ResultStore, pool: SessionPool, progress: SweepProgress
    ) -> None:
        self.plan, self.store, self.pool, self.progress = plan, store, pool, progress
        self.baseline = plan.variants[0]
        self.num_blocks = -(-len(plan.prompts) // plan.config.batch_size)
        self.stop = StopRule(
            plan.config.measure, baseline_id=self.baseline.variant_id, num_blocks=self.num_blocks
        )
        self.done: set[tuple[str, int, int]] = set()
        self.outputs = Outputs()
        self.record = new_record(plan)
        self.alive = list(plan.variants)
        self.expected_trials = plan.config.measure.min_repeats * self.num_blocks * len(plan.variants)
        self.trials_counted = 0

    def run(self) -> CellRecord:
        """Measure what is missing; see `measure_cell`."""
        self._load_earlier()
        is_measured = self.record.status == Status.OK and self._is_complete()
        if is_measured and not self._lacks_check():
            self._count(self.expected_trials)
            return self.record
        # a killed run can't say that it was killed: what is stored is partial until it is finished
        self.record.status = Status.PARTIAL.value
        writer = self.store.open_cell(self.record, at_once=self.plan.backend.is_simulated)
        try:
            self._measure(writer)
        except StorageError:
            raise
        except KeyboardInterrupt:
            self.record.stop_reason = "interrupted"
            self._finish(writer)
            raise Interrupted from None
        except Exception as error:
            self._fail("cell", None, error)
        self._finish(writer)
        self.progress.drop(self.expected_trials - self.trials_counted)
        return self.record

    def _is_complete(self) -> bool:
        return self.stop.reason(self._next_block()) is not None

    def _key(self, variant: Variant, block: Block) -> tuple[str, int, int]:
        """What a finished trial is remembered by: variant, block, and the turn of its engine."""
        return variant.variant_id, block.number, block.turn or 0

    def _stored_turn(self, variant_id: str, order: int) -> int:
        return 0

    def _measure(self, writer: CellWriter) -> None:
        session = self._open()
        self._prepare(session)
        gc.collect()
        # what is loaded by now stays: keep the collector from walking it between trials
        gc.freeze()
        try:
            self._warm_up(session, writer, self.alive)
            with self._watched_machine():
                self._run_blocks(session, writer)
        finally:
            gc.unfreeze()
        self._check_lossless(session)

    def _lacks_check(self) -> bool:
        return self.plan.config.measure.lossless.enabled and not self.record.lossless

    def _check_lossless(self, session: Session) -> None:
        self.record.lossless = []
        if not self.plan.config.measure.lossless.enabled:
            return
        self.progress.describe(f"{self._label()} lossless check")
        measured = {variant_id for variant_id, *_ in self.done}
        variants = [variant for variant in self.plan.variants if variant.variant_id in measured]
        if self.baseline not in variants:
            return
        try:
            rows = check_lossless(session, self.plan, variants, self.outputs)
            self.record.lossless = [asdict(row) for row in rows]
        except Exception as error:
            self._fail("lossless", None, error)

    def _open(self) -> Session:
        if self.plan.memory is not None and self.plan.config.check_memory:
            self.plan.memory.require_fit()
        for part, model in [("fetch_target", self.plan.engine.target), *self._named_drafters()]:
            if model.setup_s > 0:
                self._cold_start([ColdStart(part, model.setup_s)])
        session, is_new = self.pool.get(self.plan)
        if is_new:
            self._cold_start(session.cold_start)
        self.record.facts |= dict(session.facts())
        return session

    def _named_drafters(self) -> list[tuple[str, Any]]:
        return [("fetch_drafter", model) for model in self.plan.drafters.values()]

    def _prepare(self, session: Session) -> None:
        for variant in list(self.alive):
            self._prepare_one(session, variant)

    def _prepare_one(self, session: Session, variant: Variant) -> None:
        drafter = self.plan.drafters[variant.drafter] if variant.drafter else None
        with_parts = self._guarded(
            "prepare", variant, lambda: session.prepare(variant, drafter, self.plan.decoding)
        )
        if with_parts is not None:
            applied, parts = with_parts
            self._row(variant)["applied"] = dict(applied)
            self._cold_start(parts)

    def _warm_up(self, session: Session, writer: CellWriter, variants: Sequence[Variant]) -> None:
        epoch = session.clock()
        for block in warmup_blocks(self.plan, variants):
            for variant in block.order:
                if variant not in self.alive:
                    continue
                self.progress.describe(f"warmup {variant.variant_id}")
                rows = self._guarded(
                    "warmup",
                    variant,
                    lambda v=variant, b=block: run_trial(  # type: ignore[misc]
                        session, self.plan, v, b, phase=Phase.WARMUP, epoch=epoch
                    ),
                )
                if rows:
                    writer.append(rows)
                    part = "first_call" if block.number == 0 else "warmup"
                    self._cold_start([ColdStart(part, rows[0].trial_s or 0.0, variant.variant_id)])

    def _watched_machine(self) -> AbstractContextManager[None]:
        if self.plan.backend.is_simulated:
            return nullcontext()
        return watched(self.record.environment, gpu="cuda" in str(self.record.facts.get("device")))

    def _run_blocks(self, session: Session, writer: CellWriter) -> None:
        measure = self.plan.config.measure
        epoch = session.clock()
        earlier_wall, earlier_decode = self.record.measured_wall_s or 0.0, self.record.decode_wall_s or 0.0
        decoding = 0.0
        schedule = blocks(
            self.plan.prompts,
            self.plan.variants,
            batch_size=self.plan.config.batch_size,
            repeats=measure.max_repeats,
            seed=measure.seed,
        )
        for block in schedule:
            if self.baseline not in self.alive:
                break
            missing = [v for v in self.alive if self._key(v, block) not in self.done]
            if not missing:
                self._count(len(self.alive))
                continue
            # a block that an earlier run began is completed, so that variants share their prompts
            if len(missing) == len(self.alive):
                self.record.stop_reason = self.stop.reason(block.number)
                if self.record.stop_reason is not None:
                    break
            try:
                for variant in block.order:
                    rows = self._trial(session, variant, block, epoch)
                    writer.append(rows)
                    decoding += (rows[0].trial_s or 0.0) if rows else 0.0
            finally:
                self.record.measured_wall_s = earlier_wall + session.clock() - epoch
                self.record.decode_wall_s = earlier_decode + decoding
        else:
            self.record.stop_reason = "max_repeats"

    def _trial(self, session: Session, variant: Variant, block: Block, epoch: float) -> list[Observation]:
        if self._key(variant, block) in self.done:
            self._count(1)
            return []
        phase = Phase.MEASURE
        if variant not in self.alive:
            self._count(1)
            error = str(self._row(variant)["error"])
            return unmeasured(self.plan, variant, block, phase=phase, status=Status.SKIPPED, error=error)
        self.progress.describe(f"{self._label()} {variant.variant_id}")
        rows = self._guarded(
            "measure",
            variant,
            lambda: run_trial(session, self.plan, variant, block, phase=phase, epoch=epoch),
        )
        self._count(1)
        if rows is None:
            error = str(self._row(variant)["error"])
            return unmeasured(self.plan, variant, block, phase=phase, status=Status.FAILED, error=error)
        self.done.add(self._key(variant, block))
        self.stop.add(rows)
        self.outputs.add(rows)
        return rows

    def _guarded(self, stage: str, variant: Variant, action: Callable[[], Result]) -> Result | None:
        """Run one variant's action; its failure is kept, takes the variant out, and the cell goes on."""
        try:
            return action()
        except StorageError:
            raise
        except Exception as error:
            self._fail(stage, variant, error)
            self.alive.remove(variant)
            return None

    def _fail(self, stage: str, variant: Variant | None, error: Exception) -> None:
        text = str(error) if isinstance(error, HarnessError) else f"{type(error).__name__}: {error}"
        text, name = clean(text), variant.variant_id if variant else None
        self.record.failures.append(Failure(stage, name, text, clean(traceback.format_exc())))
        if variant is not None:
            self._row(variant).update(status=Status.FAILED.value, error=text)
        self.progress.line(f"failed: {name or self._label()} ({stage}): {text}")

    def _finish(self, writer: CellWriter) -> None:
        interrupted = self.record.stop_reason == "interrupted"
        if not interrupted and not self.record.failures:
            self.record.status = Status.OK.value
        elif not interrupted and not self.done:
            self.record.status = Status.FAILED.value
        self._mark_unmeasured("interrupted" if interrupted else "the cell ended before")
        self.record.finished_at = now()
        writer.finish(self.record)
        keep_derived(writer.folder, self.progress.line)
        for variant in self.plan.variants[1:]:
            line = variant_line(self._label(), variant.variant_id, self.stop.speedup(variant.variant_id))
            self.progress.line(line)

    def _mark_unmeasured(self, reason: str) -> None:
        measured = {variant_id for variant_id, _, _ in self.done}
        for row in self.record.variants:
            if row["status"] == Status.OK and row["variant_id"] not in measured:
                row.update(status=Status.SKIPPED.value, error=f"not measured: {reason}")

    def _load_earlier(self) -> None:
        """Take over what an earlier run of the same cell stored."""
        if not self.plan.config.resume:
            self.store.discard(self.plan.cell_id)
            return
        stored = self.store.load_cell(self.plan.cell_id)
        if stored is None:
            return
        frame = stored.observations
        counted = frame[(frame["phase"] == Phase.MEASURE.value) & (frame["status"] == Status.OK.value)]
        columns = (counted[name].tolist() for name in ("variant_id", "block", "order"))
        self.done = {
            (name, block, self._stored_turn(name, order)) for name, block, order in zip(*columns, strict=True)
        }
        self.record.measured_wall_s = stored.record.measured_wall_s
        self.record.decode_wall_s = stored.record.decode_wall_s
        if stored.record.status == Status.OK:
            self.record = stored.record
        self.stop.replay(frame)
        self.outputs.replay(frame)

    def _next_block(self) -> int:
        number = 0
        while all((variant.variant_id, number, 0) in self.done for variant in self.plan.variants):
            number += 1
        return number

    def _count(self, trials: int) -> None:
        self.trials_counted += trials
        self.progress.advance(trials)

    def _cold_start(self, parts: Any) -> None:
        self.record.cold_start += [asdict(part) for part in parts]

    def _row(self, variant: Variant) -> dict[str, Any]:
        return next(row for row in self.record.variants if row["variant_id"] == variant.variant_id)

    def _label(self) -> str:
        return f"T={self.plan.config.sampling.temperature:g} {self.plan.facts['workload']}"
