"""Did the machine change between the baseline before the variants and the one after them?"""

from __future__ import annotations

import pandas as pd

from harness.metrics.intervals import Interval
from harness.results.pairing import END_TO_END, pair, speedup

LARGEST_DRIFT = 0.05
"""Share of the baseline's speed by which it may drift before no speedup of its cell is judged."""


def baseline_drift(baseline: pd.DataFrame) -> Interval | None:
    """End-to-end speed of the last engine of a cell over its first, both without speculation.

    Args:
        baseline: the baseline's counting rows of one cell, as `harness.results.pairing.prepare` returns them.

    Returns:
        The ratio with its interval; None where the baseline took turns with the variants, or ran once.
    """
    keys = ["prompt_id", "repeat", "block"]
    orders = sorted(baseline["order"].unique())
    if len(orders) != 2 or not baseline.duplicated(keys).any():
        return None
    before, after = (baseline[baseline["order"] == order] for order in orders)
    return speedup(pair(after, before), END_TO_END)
