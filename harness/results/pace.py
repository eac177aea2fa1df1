"""How many tokens a variant drafted, step by step."""

from __future__ import annotations

import pandas as pd

from harness.results.frames import Frames

FEWEST_SEQUENCES = 3
_KEYS = ["cell_id", "variant_id"]


def pace_by_step(frames: Frames) -> pd.DataFrame:
    """One row per cell, variant and step (from 0) that enough sequences reached.

    Returns:
        Columns: `cell_id`, `variant_id`, `step`, `mean`, `low` and `high` (quartiles over sequences),
        `num_sequences`. Steps that under a quarter of the sequences, or under `FEWEST_SEQUENCES`, reached are
        left out: their mean would be that of a few long outputs.
    """
    grouped = frames.steps.groupby([*_KEYS, "step"], sort=True)["proposed"]
    parts = {
        "mean": grouped.mean(),
        "low": grouped.quantile(0.25),
        "high": grouped.quantile(0.75),
        "num_sequences": grouped.size(),
    }
    table = pd.DataFrame(parts).reset_index()
    most = table.groupby(_KEYS)["num_sequences"].transform("max")
    enough = (table["num_sequences"] >= FEWEST_SEQUENCES) & (4 * table["num_sequences"] >= most)
    return table[enough].reset_index(drop=True)


def pace_shares(frames: Frames) -> pd.DataFrame:
    """One row per cell, variant and number of drafted tokens: the `share` of its steps that drafted so many.

    Returns:
        Columns: `cell_id`, `variant_id`, `drafted`, `share`; the shares of a variant add up to 1.
    """
    steps = frames.steps.assign(drafted=frames.steps["proposed"].astype(int))
    counts = steps.groupby([*_KEYS, "drafted"]).size().rename("share").reset_index()
    counts["share"] = counts["share"] / counts.groupby(_KEYS)["share"].transform("sum")
    return counts
