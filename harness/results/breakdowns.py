"""Where a figure comes from: by task, by place in the draft, and over k."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from harness.metrics.acceptance import position_rates
from harness.metrics.intervals import Interval
from harness.results.frames import Frames
from harness.results.pairing import NO_PAIRS, SEQUENCE, acceptance_interval, rate_interval, speedup

_INTERVALS = ["decode_tok_per_s", "speedup", "acceptance_rate"]
_TASK_COLUMNS = [
    "cell_id",
    "variant_id",
    "task",
    "num_prompts",
    "num_output_tokens",
    *(f"{name}{end}" for name in _INTERVALS for end in ("", "_low", "_high")),
]
_POSITION_COLUMNS = [
    "cell_id",
    "variant_id",
    "position",
    "marginal",
    "conditional",
    "num_steps",
    "num_reached",
]
_BEST_COLUMNS = [
    "cell_id",
    "method",
    "best_k",
    "best_speedup",
    "best_speedup_low",
    "best_speedup_high",
    "recommended_k",
    "recommended_variant_id",
    "recommended_speedup",
    "recommended_speedup_low",
    "recommended_speedup_high",
    "faster",
]


def by_task(frames: Frames) -> pd.DataFrame:
    """One row per cell, variant and task: speeds, speedup and acceptance over the task's prompts.

    Speeds are those of sequences: the tasks of a batch share its seconds, which no task has for itself.
    """
    rows = []
    for cell in frames.prepared:
        for variant_id, of_variant in cell.variants.items():
            is_baseline = variant_id in cell.baseline_ids
            pairs = cell.paired.get(variant_id, NO_PAIRS) if not is_baseline else NO_PAIRS
            paired = dict(iter(pairs.groupby("task")))
            for task, sample in of_variant.groupby("task"):
                keys = {"cell_id": cell.cell_id, "variant_id": variant_id, "task": task}
                rows.append(keys | _task_row(sample, None if is_baseline else paired.get(task, pairs[:0])))
    return frames.in_order(pd.DataFrame(rows, columns=_TASK_COLUMNS))


def _task_row(sample: pd.DataFrame, paired: pd.DataFrame | None) -> dict[str, Any]:
    """Figures of one task; `paired` with the baseline, None for the baseline itself."""
    row = {
        "num_prompts": sample["prompt_id"].nunique(),
        "num_output_tokens": int(sample["num_output_tokens"].sum()),
        **_columns("decode_tok_per_s", rate_interval(sample, SEQUENCE)),
    }
    if paired is None:
        return row | {"speedup": 1.0}
    return (
        row
        | _columns("speedup", speedup(paired, SEQUENCE))
        | _columns("acceptance_rate", acceptance_interval(sample))
    )


def _columns(name: str, interval: Interval) -> dict[str, Any]:
    return {name: interval.estimate, f"{name}_low": interval.low, f"{name}_high": interval.high}


def per_position(frames: Frames) -> pd.DataFrame:
    """One row per cell, drafting variant and position (1 is the first drafted token)."""
    parts = []
    for (cell_id, variant_id), steps in frames.steps.groupby(["cell_id", "variant_id"], sort=False):
        rates = position_rates(steps["proposed"], steps["accepted"])
        part = pd.DataFrame(
            {
                "cell_id": cell_id,
                "variant_id": variant_id,
                "position": np.arange(1, len(rates.marginal) + 1),
                "marginal": rates.marginal,
                "conditional": rates.conditional,
                "num_steps": rates.num_steps,
                "num_reached": rates.num_reached,
            }
        )
        if len(part):
            parts.append(part)
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=_POSITION_COLUMNS)
    return frames.in_order(table[_POSITION_COLUMNS])


def best_k(summary: pd.DataFrame) -> pd.DataFrame:
    """The fastest k per cell and method, and the smallest k that is as good.

    A k is as good as the fastest if its speedup lies in the fastest one's interval: among equals the smallest
    wins, since it wastes the least work when the load grows. `faster` says whether the recommended k beats
    the baseline: `yes` or `no` if its whole interval lies on one side of 1, else `unclear`; where it is `no`,
    `recommended_k` is 0: don't speculate.
    """
    drafting = summary[~summary["is_baseline"].eq(True) & summary["speedup"].notna()]
    keys = ["cell_id", "method"]
    rows = drafting.assign(group=drafting.groupby(keys, sort=False).ngroup())
    rows = rows.sort_values(["group", "k"], kind="stable").reset_index(drop=True)
    best = rows.loc[rows.groupby("group")["speedup"].idxmax()].set_index("group")
    bar = best["speedup_low"].fillna(best["speedup"])
    as_good = rows[rows["speedup"] >= rows["group"].map(bar)]
    chosen = as_good.drop_duplicates("group").set_index("group")
    faster = np.select([chosen["speedup_low"] > 1, chosen["speedup_high"] < 1], ["yes", "no"], "unclear")
    ends = ("", "_low", "_high")
    table = best[keys].assign(
        best_k=best["k"],
        **{f"best_speedup{end}": best[f"speedup{end}"] for end in ends},
        recommended_k=chosen["k"].where(faster != "no", 0),
        recommended_variant_id=chosen["variant_id"].where(faster != "no", None),
        **{f"recommended_speedup{end}": chosen[f"speedup{end}"] for end in ends},
        faster=faster,
    )
    return table[_BEST_COLUMNS].reset_index(drop=True)
