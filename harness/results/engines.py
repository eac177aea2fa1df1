"""The same work on several engines: how fast, against their own baselines and against the fastest of them."""

from __future__ import annotations

from typing import Any

import pandas as pd

from harness.metrics.intervals import Interval, speedup_interval
from harness.results.frames import Frames

COLUMNS = ["cell_id", "variant_id", "group", "over_best", "over_best_low", "over_best_high", "best_backend"]
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


def across_engines(frames: Frames) -> pd.DataFrame:
    """One row per variant of work that more than one engine did.

    `over_best` is the end-to-end speed over that of the fastest engine without speculation, on the prompts
    both decoded. The two ran at different times, so drift of the machine between them is in the figure.
    """
    cells = frames.cells
    if "backend" not in cells.columns:
        return pd.DataFrame(columns=COLUMNS)
    work = [name for name in _WORK if name in cells.columns]
    rows: list[dict[str, Any]] = []
    for number, (_, group) in enumerate(cells.groupby(work, dropna=False, sort=False)):
        if group["backend"].nunique() > 1:
            members = frames.measured[frames.measured["cell_id"].isin(group["cell_id"])]
            rows += _group(members, number)
    return frames.with_facts(pd.DataFrame(rows, columns=COLUMNS))


def _group(measured: pd.DataFrame, number: int) -> list[dict[str, Any]]:
    sums = {key: _by_prompt(rows) for key, rows in measured.groupby(["cell_id", "variant_id"], sort=False)}
    baselines = measured[measured["is_baseline"].eq(True)]
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


def _by_prompt(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.groupby("prompt_id")[["num_output_tokens", "total_s"]].sum()


def _is_baseline(baselines: pd.DataFrame, key: tuple[Any, ...]) -> bool:
    return bool(((baselines["cell_id"] == key[0]) & (baselines["variant_id"] == key[1])).any())


def _over(own: pd.DataFrame, best: pd.DataFrame) -> Interval:
    both = own.merge(best, left_index=True, right_index=True, suffixes=("", "_best")).dropna()
    columns = ("num_output_tokens", "total_s", "num_output_tokens_best", "total_s_best")
    return speedup_interval(*(both[name].tolist() for name in columns))
