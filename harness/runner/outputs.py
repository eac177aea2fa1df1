"""The outputs of a cell, kept for the lossless check."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pandas as pd

from harness.records import Observation, Phase, Status

Place = tuple[str, int, int]
"""prompt_id, repeat, block."""

_REPLAYED = ("variant_id", "prompt_id", "repeat", "block", "output_tokens")


class Outputs:
    """Output tokens of measured sequences, by variant and by prompt, repeat and block."""

    def __init__(self) -> None:
        """Start with none."""
        self._tokens: dict[str, dict[Place, tuple[int, ...]]] = defaultdict(dict)

    def add(self, trial: Sequence[Observation]) -> None:
        """Take over the measured sequences of a trial."""
        for row in trial:
            if row.phase == Phase.MEASURE and row.status == Status.OK and row.output_tokens:
                place = (row.prompt_id, row.repeat, row.block)
                self._tokens[row.variant_id][place] = tuple(row.output_tokens)

    def replay(self, stored: pd.DataFrame) -> None:
        """Take over the sequences an earlier run stored.

        Args:
            stored: observations as `harness.results` reads them.
        """
        keep = (stored["phase"] == Phase.MEASURE.value) & (stored["status"] == Status.OK.value)
        measured = stored[keep & stored["output_tokens"].notna()]
        columns = (measured[name].tolist() for name in _REPLAYED)
        for variant_id, prompt_id, repeat, block, tokens in zip(*columns, strict=True):
            self._tokens[variant_id][prompt_id, repeat, block] = tuple(int(token) for token in tokens)

    def of(self, variant_id: str) -> dict[Place, tuple[int, ...]]:
        """Outputs of one variant, in the order they were decoded."""
        found = self._tokens[variant_id]
        return {place: found[place] for place in sorted(found, key=lambda place: (place[2], place[0]))}
