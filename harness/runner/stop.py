"""When a cell has been measured enough."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pandas as pd

from harness.config.schema import MeasureConfig
from harness.metrics.intervals import Interval, speedup_interval
from harness.metrics.latency import num_first_tokens
from harness.records import Observation, Phase, Status

_REPLAYED = ("num_output_tokens", "ttft_s", "decode_s", "total_s", "step_emitted")


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
        self._decoded: dict[str, dict[int, tuple[int, float]]] = defaultdict(dict)

    @property
    def elapsed_s(self) -> float:
        """Seconds inside measured trials so far, over all runs that added to the cell."""
        return self._elapsed_s

    def add(self, trial: Sequence[Observation]) -> None:
        """Count one trial; warmup and failed ones don't move the interval."""
        measured = [row for row in trial if row.phase == Phase.MEASURE and row.status == Status.OK]
        if measured:
            self._elapsed_s += measured[0].trial_s or 0.0
            sequences = [tuple(getattr(row, name) for name in _REPLAYED) for row in measured]
            self._count(measured[0].variant_id, measured[0].block, sequences)

    def replay(self, stored: pd.DataFrame) -> None:
        """Count the trials an earlier run stored.

        Args:
            stored: observations as `harness.results` reads them.
        """
        measured = stored[(stored["phase"] == Phase.MEASURE.value) & (stored["status"] == Status.OK.value)]
        for _, trial in measured.groupby(["variant_id", "block", "order"]):
            self._elapsed_s += float(trial["trial_s"].iloc[:1].sum())
            sequences = list(trial[list(_REPLAYED)].itertuples(index=False, name=None))
            self._count(trial["variant_id"].iloc[0], int(trial["block"].iloc[0]), sequences)

    def _count(self, variant_id: str, block: int, sequences: Sequence[tuple[Any, ...]]) -> None:
        """Note a trial's tokens and seconds, those of a batch once."""
        decoding_s = _decoding_s(sequences)
        if decoding_s is not None and all(num_tokens for num_tokens, *_ in sequences):
            # a baseline measured before and after the variants counts with the mean speed of the two
            tokens, seconds = self._decoded[variant_id].get(block, (0, 0.0))
            tokens += sum(total - num_first_tokens(emitted, total) for total, *_, emitted in sequences)
            self._decoded[variant_id][block] = (tokens, seconds + decoding_s)

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
        sums: dict[int, list[float]] = defaultdict(lambda: [0.0] * 4)
        for block in sorted(baseline.keys() & variant.keys()):
            row, prompts = (*variant[block], *baseline[block]), block % self._num_blocks
            sums[prompts] = [total + value for total, value in zip(sums[prompts], row, strict=True)]
        return speedup_interval(*map(list, zip(*sums.values(), strict=True))) if sums else None

    def _is_precise(self) -> bool:
        widths = [self._half_width(name) for name in self._decoded if name != self._baseline_id]
        return all(width is not None and width <= self._config.target_precision for width in widths)

    def _half_width(self, variant_id: str) -> float | None:
        interval = self.speedup(variant_id)
        return None if interval is None else interval.relative_half_width


def _decoding_s(sequences: Sequence[tuple[Any, ...]]) -> float | None:
    """From a trial's first output token to its last; None where a time is missing."""
    _, ttft_s, decode_s, total_s, _ = zip(*sequences, strict=True)
    if len(sequences) == 1:
        return None if pd.isna(decode_s[0]) else float(decode_s[0])
    if any(map(pd.isna, (*ttft_s, *total_s))):
        return None
    return float(max(total_s) - min(ttft_s))
