"""When a cell has been measured enough."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pandas as pd

from harness.config.schema import MeasureConfig
from harness.metrics.intervals import Interval, speedup_interval
from harness.records import Observation, Phase, Status

Key = tuple[str, int]
_REPLAYED = ("variant_id", "prompt_id", "repeat", "num_output_tokens", "decode_s")


class StopRule:
    """Watches a cell's measured observations and says when to stop, and why.

    At least `min_repeats` passes, then until every speedup's interval is narrow enough, `max_repeats`
    are done, or `max_time_s` is over. Time is checked before each block, so that blocks stay whole.
    """

    def __init__(self, config: MeasureConfig, *, baseline_id: str, num_blocks: int) -> None:
        """Take the settings, the baseline's name and the number of blocks in one repeat."""
        self._config = config
        self._baseline_id = baseline_id
        self._num_blocks = num_blocks
        self._elapsed_s = 0.0
        self._decoded: dict[str, dict[Key, tuple[int, float]]] = defaultdict(dict)

    @property
    def elapsed_s(self) -> float:
        """Seconds inside measured trials so far, over all runs that added to the cell."""
        return self._elapsed_s

    def add(self, trial: Sequence[Observation]) -> None:
        """Count one trial; warmup and failed ones don't move the interval."""
        measured = [row for row in trial if row.phase == Phase.MEASURE and row.status == Status.OK]
        if measured and measured[0].trial_s is not None:
            self._elapsed_s += measured[0].trial_s
        for row in measured:
            if row.num_output_tokens and row.decode_s is not None:
                key = (row.prompt_id, row.repeat)
                self._decoded[row.variant_id][key] = (row.num_output_tokens - 1, row.decode_s)

    def replay(self, stored: pd.DataFrame) -> None:
        """Count the trials an earlier run stored.

        Args:
            stored: observations as `harness.results` reads them.
        """
        measured = stored[(stored["phase"] == Phase.MEASURE.value) & (stored["status"] == Status.OK.value)]
        trials = measured.drop_duplicates(["variant_id", "block"])
        self._elapsed_s += float(trials["trial_s"].sum())
        columns = (measured[name].tolist() for name in _REPLAYED)
        for variant_id, prompt_id, repeat, num_output_tokens, decode_s in zip(*columns, strict=True):
            self._decoded[variant_id][(prompt_id, repeat)] = (num_output_tokens - 1, decode_s)

    def reason(self, next_block: int) -> str | None:
        """Why to stop before block `next_block`, or None to go on."""
        if self._elapsed_s >= self._config.max_time_s:
            return "max_time"
        repeats, within = divmod(next_block, self._num_blocks)
        if within == 0 and repeats >= self._config.min_repeats:
            if repeats >= self._config.max_repeats:
                return "max_repeats"
            if self._is_precise():
                return "precision"
        return None

    def speedup(self, variant_id: str) -> Interval | None:
        """Decode speedup of a variant so far; None where nothing can be paired with the baseline."""
        baseline, variant = self._decoded[self._baseline_id], self._decoded[variant_id]
        sums: dict[str, list[float]] = defaultdict(lambda: [0.0] * 4)
        for key in baseline.keys() & variant.keys():
            row = (*variant[key], *baseline[key])
            sums[key[0]] = [total + value for total, value in zip(sums[key[0]], row, strict=True)]
        return speedup_interval(*map(list, zip(*sums.values(), strict=True))) if sums else None

    def _is_precise(self) -> bool:
        widths = [self._half_width(name) for name in self._decoded if name != self._baseline_id]
        return all(width is not None and width <= self._config.target_precision for width in widths)

    def _half_width(self, variant_id: str) -> float | None:
        interval = self.speedup(variant_id)
        return None if interval is None else interval.relative_half_width
