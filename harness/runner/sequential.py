"""A cell whose variants each need their own engine: one after another, between two runs of the baseline."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from harness.backends.base import Session
from harness.records import Variant
from harness.results.store import CellWriter
from harness.runner.cell import CellRun
from harness.runner.schedule import Block, blocks, turns


class SequentialRun(CellRun):
    """Starts an engine per variant; drift of the machine shows between the baseline before and after.

    The first engine, the baseline's, measures `min_repeats` passes, or as many blocks as its share of
    `max_time_s` holds; every other engine then decodes the same blocks.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.turns = turns(self.plan.variants, seed=self.plan.config.measure.seed)
        self.wanted_blocks = self.plan.config.measure.min_repeats * self.num_blocks
        self.expected_trials = self.wanted_blocks * len(self.turns)

    def _is_complete(self) -> bool:
        earlier = self.record.config["measure"]
        was_cut = self.record.stop_reason == "max_time"
        if was_cut and self.plan.config.measure.max_time_s <= earlier["max_time_s"]:
            return True
        return self._num_done(0) >= self.wanted_blocks

    def _stored_turn(self, variant_id: str, order: int) -> int:
        return order

    def _num_done(self, turn: int) -> int:
        return sum(done_turn == turn for _, _, done_turn in self.done)

    def _may_grow(self) -> bool:
        """Whether the number of blocks is open: no other engine has run yet, or all have done the same."""
        others = {self._num_done(turn) for turn in range(1, len(self.turns))}
        return others <= {0} or others == {self._num_done(0)}

    def _measure(self, writer: CellWriter) -> None:
        session = self._open()
        earlier_wall, earlier_decode = self.record.measured_wall_s or 0.0, self.record.decode_wall_s or 0.0
        self.record.measured_wall_s, self.record.decode_wall_s = earlier_wall, earlier_decode
        self.record.stop_reason = None
        epoch = session.clock()
        limit = self.wanted_blocks
        for turn, variant in enumerate(self.turns):
            if self.baseline not in self.alive:
                break
            limit = self._take_turn(session, writer, turn, variant, limit=limit, epoch=epoch)
        if self.record.stop_reason is None:
            self.record.stop_reason = "min_repeats"
        self._check_lossless(session)

    def _take_turn(
        self, session: Session, writer: CellWriter, turn: int, variant: Variant, *, limit: int, epoch: float
    ) -> int:
        """Let one engine decode its blocks.

        Returns:
            How many blocks the other engines decode.
        """
        if turn == 0 and not self._may_grow():
            limit = min(limit, self._num_done(0))
        if self._num_done(turn) >= limit:
            self._count(limit)
            return limit
        if variant in self.alive:
            self._prepare_one(session, variant)
            self.record.facts |= dict(session.facts())
        if variant in self.alive:
            self._warm_up(session, writer, [variant])
        gc.collect()
        gc.freeze()
        start = session.clock()
        try:
            return self._run_turn(session, writer, turn, variant, limit=limit, epoch=epoch)
        finally:
            gc.unfreeze()
            self.record.measured_wall_s = (self.record.measured_wall_s or 0.0) + session.clock() - start

    def _run_turn(
        self, session: Session, writer: CellWriter, turn: int, variant: Variant, *, limit: int, epoch: float
    ) -> int:
        share_s = self.plan.config.measure.max_time_s / len(self.turns)
        is_open = turn == 0 and self._may_grow()
        spent_s = 0.0
        for number, block in enumerate(self._blocks(turn, limit)):
            if is_open and number and spent_s >= share_s:
                self.record.stop_reason = "max_time"
                return number
            rows = self._trial(session, variant, block, epoch)
            writer.append(rows)
            trial_s = (rows[0].trial_s or 0.0) if rows else 0.0
            spent_s += trial_s
            self.record.decode_wall_s = (self.record.decode_wall_s or 0.0) + trial_s
        return limit

    def _blocks(self, turn: int, limit: int) -> Iterator[Block]:
        schedule = blocks(
            self.plan.prompts,
            self.plan.variants,
            batch_size=self.plan.config.batch_size,
            repeats=self.plan.config.measure.min_repeats,
            seed=self.plan.config.measure.seed,
        )
        for block in schedule:
            if block.number >= limit:
                return
            yield replace(block, turn=turn)
