"""Memory of a sequence, from how peaks grow with the batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from harness.records import BASELINE_METHOD


@dataclass(frozen=True, slots=True)
class Memory:
    """What peaks tell; None where they don't, and then `reason` says why.

    Attributes:
        fixed_bytes: of a replica without any sequence, the drafter not counted.
        token_bytes: of each token of context a sequence may reach.
        drafter_bytes: what loading a drafter adds.
        reason: why the first two are unknown.
    """

    fixed_bytes: float | None = None
    token_bytes: float | None = None
    drafter_bytes: float | None = None
    reason: str | None = None

    def tokens_in(self, capacity_bytes: float, *, with_drafter: bool) -> int | None:
        """Cache tokens that fit a memory, None where unknown; 0 where not even the weights fit."""
        if self.fixed_bytes is None or self.token_bytes is None:
            return None
        drafter = (self.drafter_bytes or 0.0) if with_drafter else 0.0
        return max(0, int((capacity_bytes - self.fixed_bytes - drafter) / self.token_bytes))


def measured_memory(rows: pd.DataFrame) -> Memory:
    """Regress the lowest peaks of each batch size on the tokens its sequences may reach.

    A peak never falls while an engine runs, so cells after a larger one read too high: the lowest of each
    size counts. Sizes must differ, and peaks must grow with them.

    Args:
        rows: counting observations of one configuration.
    """
    known = rows[rows["peak_memory_bytes"].notna()]
    plain = known[known["method"] == BASELINE_METHOD]
    if plain.empty:
        return Memory(reason="the backend tells no memory")
    drafter = _drafter_bytes(known)
    reach = plain["num_prompt_tokens"] + plain["max_output_tokens"]
    context = reach.groupby(plain["batch_size"]).max() * np.sort(plain["batch_size"].unique())
    peaks = plain.groupby("batch_size")["peak_memory_bytes"].min()
    if len(peaks) < 2:
        return Memory(drafter_bytes=drafter, reason="one batch size alone was measured")
    slope, fixed = np.polyfit(context.to_numpy(float), peaks.to_numpy(float), 1)
    if not slope > 0:
        return Memory(drafter_bytes=drafter, reason="peaks don't grow with the batch")
    return Memory(float(fixed), float(slope), drafter)


def _drafter_bytes(known: pd.DataFrame) -> float | None:
    """Peaks with a drafter over those without, in cells that have both."""
    with_drafter = known[known["drafter"].notna()].groupby("cell_id")["peak_memory_bytes"].min()
    without = known[known["method"] == BASELINE_METHOD].groupby("cell_id")["peak_memory_bytes"].min()
    found = (with_drafter - without).dropna()
    return max(0.0, float(found.median())) if len(found) else None
