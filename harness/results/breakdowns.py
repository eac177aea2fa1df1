"""Where a figure comes from: by task, by place in the draft, and over k."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from harness.metrics.acceptance import position_rates
from harness.metrics.intervals import Interval
from harness.results.frames import Frames
from harness.results.pairing import SEQUENCE, acceptance_interval, pair, prepare, rate_interval, speedup

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
    baselines = set(frames.variants.loc[frames.variants["is_baseline"].eq(True), "variant_id"])
    rows = []
    for cell_id, cell in frames.measured.groupby("cell_id", sort=False):
        prepared = prepare(cell)
        baseline = prepared[prepared["variant_id"].isin(baselines)]
        for variant_id, of_variant in prepared.groupby("variant_id", sort=False):
            # paired once for all tasks: joining is what takes the time
            paired = None if variant_id in baselines else pair(of_variant, baseline)
            for task, sample in of_variant.groupby("task"):
                keys = {"cell_id": cell_id, "variant_id": variant_id, "task": task}
                of_task = None if paired is None else paired[paired["task"] == task]
                rows.append(keys | _task_row(sample, of_task))
    return frames.with_facts(frames.in_order(pd.DataFrame(rows, columns=_TASK_COLUMNS)))


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
    return frames.with_facts(frames.in_order(table[_POSITION_COLUMNS]))


def best_k(summary: pd.DataFrame) -> pd.DataFrame:
    """The fastest k per cell and method, and the smallest k that is as good.

    A k is as good as the fastest if its speedup lies in the fastest one's interval: among equals the smallest
    wins, since it wastes the least work when the load grows. `faster` says whether the recommended k beats
    the baseline: `yes` or `no` if its whole interval lies on one side of 1, else `unclear`; where it is `no`,
    `recommended_k` is 0: don't speculate.
    """
    drafting = summary[~summary["is_baseline"].eq(True) & summary["speedup"].notna()]
    rows = [
        {"cell_id": cell_id, "method": method, **_best(group.sort_values("k"))}
        for (cell_id, method), group in drafting.groupby(["cell_id", "method"], sort=False)
    ]
    return pd.DataFrame(rows, columns=_BEST_COLUMNS)


def _best(group: pd.DataFrame) -> dict[str, Any]:
    best = group.iloc[int(group["speedup"].argmax())]
    bar = best["speedup_low"] if pd.notna(best["speedup_low"]) else best["speedup"]
    chosen = group[group["speedup"] >= bar].iloc[0]
    faster = _faster(chosen["speedup_low"], chosen["speedup_high"])
    ends = ("", "_low", "_high")
    return {
        "best_k": best["k"],
        **{f"best_speedup{end}": best[f"speedup{end}"] for end in ends},
        "recommended_k": 0 if faster == "no" else chosen["k"],
        "recommended_variant_id": None if faster == "no" else chosen["variant_id"],
        **{f"recommended_speedup{end}": chosen[f"speedup{end}"] for end in ends},
        "faster": faster,
    }


def _faster(low: float, high: float) -> str:
    if low > 1:
        return "yes"
    return "no" if high < 1 else "unclear"
