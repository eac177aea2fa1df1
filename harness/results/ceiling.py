"""What choosing k could gain at most: the best fixed k of each prompt, chosen afterwards."""

from __future__ import annotations

from typing import Any

import pandas as pd

from harness.results.frames import Frames
from harness.results.pairing import DECODE, pair, speedup

_ADAPTIVE = '"adaptive": true'
_SPAN_ENDS = (8, 16, 32)
_SPANS = ("1 to 8", "9 to 16", "17 to 32", "33 on")
_COLUMNS = [
    "cell_id",
    "method",
    "num_prompts",
    "num_k",
    "ceiling_speedup",
    "ceiling_speedup_low",
    "ceiling_speedup_high",
    "share_without_drafts",
]


def look_ahead(frames: Frames) -> pd.DataFrame:
    """One row per cell and method with several fixed k: the speedup had each prompt its fastest k.

    The baseline is one of the choices. Nobody can choose like that, as it takes having measured: it's a
    ceiling for every rule that chooses k once per prompt. It is too high by what the fastest of several noisy
    times is below the mean; more repeats make that less. Cells that decode batches are left out: their
    sequences share seconds, so that no prompt has a fastest k of its own.
    """
    rows = []
    fixed = frames.variants[~frames.variants["options"].str.contains(_ADAPTIVE, regex=False)]
    batch_sizes = frames.cells.set_index("cell_id").get("batch_size", pd.Series(dtype=float))
    for cell in frames.prepared:
        if batch_sizes.get(cell.cell_id, 1) != 1:
            continue
        variants = fixed[fixed["cell_id"] == cell.cell_id]
        for method, of_method in variants[~variants["is_baseline"].eq(True)].groupby("method", sort=False):
            ids = set(of_method["variant_id"])
            if len(ids) > 1:
                keys = {"cell_id": cell.cell_id, "method": method, "num_k": len(ids)}
                rows.append(keys | _ceiling(cell.rows, ids, cell.baseline_ids))
    return pd.DataFrame(rows, columns=_COLUMNS)


def chosen_k(frames: Frames) -> pd.DataFrame:
    """Mean drafted tokens per step, by how many steps the sequence had behind it.

    Returns:
        One row per cell and variant whose steps are known, one column per span of steps; NaN where no
        sequence went that far.
    """
    steps = frames.steps
    spans = pd.cut(steps["step"], [-1, *(last - 1 for last in _SPAN_ENDS), float("inf")], labels=_SPANS)
    means = steps.groupby(["cell_id", "variant_id", spans], observed=False)["proposed"].mean()
    table = means.unstack().reindex(columns=_SPANS).reset_index()
    return table.set_axis(["cell_id", "variant_id", *_SPANS], axis=1)


def _ceiling(cell: pd.DataFrame, variants: set[str], baselines: set[str]) -> dict[str, Any]:
    choices = cell[cell["variant_id"].isin(variants | baselines)].dropna(subset=[DECODE.seconds])
    sums = choices.groupby(["prompt_id", "variant_id"])[[DECODE.tokens, DECODE.seconds]].sum()
    fastest = (sums[DECODE.tokens] / sums[DECODE.seconds]).groupby("prompt_id").idxmax()
    chosen = choices.set_index(["prompt_id", "variant_id"]).loc[fastest.tolist()].reset_index()
    reached = speedup(pair(chosen, cell[cell["variant_id"].isin(baselines)]), DECODE)
    idle = [variant in baselines for _, variant in fastest]
    return {
        "num_prompts": len(fastest),
        "ceiling_speedup": reached.estimate,
        "ceiling_speedup_low": reached.low,
        "ceiling_speedup_high": reached.high,
        "share_without_drafts": sum(idle) / len(idle) if idle else None,
    }
