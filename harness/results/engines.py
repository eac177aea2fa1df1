"""The same work on several engines: how fast, against their own baselines and against the fastest of them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pandas as pd

from harness.metrics.intervals import Interval, speedup_interval
from harness.results.frames import Frames

COLUMNS = ["cell_id", "variant_id", "group", "over_best", "over_best_low", "over_best_high", "best_backend"]
_SUMS = ["num_output_tokens", "total_s"]
_WORK = (
    "target_revision",
    "dtype",
    "target_quantization",
    "drafter_quantization",
    "batch_size",
    "temperature",
    "top_k",
    "top_p",
    "workload_sha256",
    "max_output_tokens",
    "ignore_eos",
)


def prompt_sums(frames: Frames) -> pd.DataFrame:
    """Tokens and seconds per cell, variant and prompt, in the order they were measured."""
    return (
        frames.measured.groupby(["cell_id", "variant_id", "prompt_id"], sort=False)[_SUMS].sum().reset_index()
    )


def across_engines(frames: Frames, sums_of: Callable[[Collection[str]], pd.DataFrame]) -> pd.DataFrame:
    """One row per variant of work that more than one engine did.

    Args:
        frames: of the run.
        sums_of: `prompt_sums` of the cells with these ids.

    `over_best` is the end-to-end speed over that of the fastest engine without speculation, on the prompts
    both decoded. The two ran at different times, so drift of the machine between them is in the figure.
    """
    cells = frames.cells
    if "backend" not in cells.columns:
        return pd.DataFrame(columns=COLUMNS)
    work = [name for name in _WORK if name in cells.columns]
    rows: list[dict[str, Any]] = []
    groups = cells.groupby(work, dropna=False, sort=False) if cells["backend"].nunique() > 1 else ()
    for number, (_, group) in enumerate(groups):
        if group["backend"].nunique() > 1:
            rows += _group(frames.with_facts(sums_of(set(group["cell_id"]))), number)
    return frames.with_facts(pd.DataFrame(rows, columns=COLUMNS))


def _group(members: pd.DataFrame, number: int) -> list[dict[str, Any]]:
    keys = ["cell_id", "variant_id"]
    sums = {
        key: rows.set_index("prompt_id")[_SUMS].sort_index()
        for key, rows in members.groupby(keys, sort=False)
    }
    baselines = members[members["is_baseline"].eq(True)]
    backends = dict(zip(baselines["cell_id"], baselines["backend"], strict=True))
    best = max(
        (key for key in sums if key[0] in backends and _is_baseline(baselines, key)),
        key=lambda key: sums[key]["num_output_tokens"].sum() / sums[key]["total_s"].sum(),
        default=None,
    )
    if best is None:
        return []
    found = []
    for key, own in sums.items():
        over = _over(own, sums[best])
        found.append(
            {
                "cell_id": key[0],
                "variant_id": key[1],
                "group": number,
                "over_best": over.estimate,
                "over_best_low": over.low,
                "over_best_high": over.high,
                "best_backend": backends[best[0]],
            }
        )
    return found


def _is_baseline(baselines: pd.DataFrame, key: tuple[Any, ...]) -> bool:
    return bool(((baselines["cell_id"] == key[0]) & (baselines["variant_id"] == key[1])).any())


def _over(own: pd.DataFrame, best: pd.DataFrame) -> Interval:
    both = own.merge(best, left_index=True, right_index=True, suffixes=("", "_best")).dropna()
    columns = ("num_output_tokens", "total_s", "num_output_tokens_best", "total_s_best")
    return speedup_interval(*(both[name].tolist() for name in columns))
