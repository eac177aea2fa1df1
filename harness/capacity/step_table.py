"""Steps of batches out of stored sequences: how many of them, how wide, how deep, how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

_TRIAL = ["cell_id", "variant_id", "repeat", "block", "order", "started_s"]
_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class MeasuredSteps:
    """Steps as the engine took them.

    Attributes:
        batches: one row per step of a batch: `method`, `k`, `batch_size`, `num_sequences`, `proposed` (of
            all), `depth` (of the one with the most), `context` (cached tokens of all), `draft_s`, `verify_s`.
        sequences: one row per step of a sequence: `method`, `k`, `task`, `prompt_id`, `proposed`,
            `accepted`, `free` (whether the output limit left room for the whole draft).
        trials: one row per decode call: `method`, `k`, `batch_size`, `prompt_tokens` (of all), `ttft_s`.
        overheads: one row per sequence: `method`, `k`, `num_sequences` (mean over its steps), `num_steps`,
            `overhead_s` (per step).
        skipped: why some cells give no step times.
    """

    batches: pd.DataFrame
    sequences: pd.DataFrame
    trials: pd.DataFrame
    overheads: pd.DataFrame
    skipped: tuple[str, ...]


def measured_steps(observations: pd.DataFrame) -> MeasuredSteps:
    """Rebuild the steps of batches from the sequences that took them together.

    Args:
        observations: counting observations with cell and variant facts (`Frames.measured`).
    """
    known = observations[observations["step_proposed"].notna()].reset_index(drop=True)
    known["trial"] = known.groupby(_TRIAL, dropna=False, sort=False).ngroup()
    steps = _exploded(known)
    steps["num_sequences"] = steps.groupby(["trial", "step"])["proposed"].transform("size")
    batches, skipped = _batches(steps)
    return MeasuredSteps(batches, steps, _trials(known), _overheads(known, steps), skipped)


def _exploded(known: pd.DataFrame) -> pd.DataFrame:
    lengths = known["step_proposed"].map(len).to_numpy(dtype=np.int64)
    at = np.repeat(np.arange(len(known)), lengths)
    columns = ["cell_id", "trial", "method", "k", "batch_size", "task", "prompt_id"]
    steps = known[columns].take(at).reset_index(drop=True)
    starts = np.repeat(lengths.cumsum() - lengths, lengths)
    steps["sequence"] = at
    steps["step"] = np.arange(len(at)) - starts
    for name in ("proposed", "accepted", "emitted"):
        steps[name] = _flat(known[f"step_{name}"], lengths, np.int64)
    for name in ("draft_s", "verify_s"):
        steps[name] = _flat(known[f"step_{name}"], lengths, np.float64)
    written = steps["emitted"].cumsum().to_numpy() - steps["emitted"].to_numpy()
    before = np.repeat(
        written[starts[np.r_[True, at[1:] != at[:-1]]]] if len(at) else written, lengths[lengths > 0]
    )
    written = 1 + written - before
    limit = np.where(
        known["finish_reason"] == "length", known["num_output_tokens"], known["max_output_tokens"]
    )
    steps["free"] = written + steps["k"].to_numpy() + 1 <= limit[at]
    steps["context"] = known["num_prompt_tokens"].to_numpy()[at] + written
    return steps


def _flat(lists: pd.Series[Any], lengths: np.ndarray[Any, Any], dtype: type) -> np.ndarray[Any, Any]:
    if not len(lists):
        return np.zeros(0, dtype=dtype)
    parts = [
        np.asarray(values, dtype=dtype)
        if values is not None and len(values) == length
        else np.full(length, np.nan)
        for values, length in zip(lists, lengths, strict=True)
    ]
    return np.concatenate(parts)


def _batches(steps: pd.DataFrame) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Steps of batches whose sequences were stepped together; the others tell no step time."""
    grouped = steps.groupby(["cell_id", "method", "k", "batch_size", "trial", "step"], sort=False)
    table = grouped.agg(
        num_sequences=("proposed", "size"),
        proposed=("proposed", "sum"),
        depth=("proposed", "max"),
        context=("context", "sum"),
        draft_s=("draft_s", "mean"),
        verify_s=("verify_s", "mean"),
        fastest_s=("verify_s", "min"),
        slowest_s=("verify_s", "max"),
    ).reset_index()
    table = table[table["verify_s"].notna() & table["draft_s"].notna()]
    apart = table["slowest_s"] - table["fastest_s"] > _TOLERANCE * table["slowest_s"]
    odd = sorted(set(table.loc[apart, "cell_id"]))
    skipped = tuple(f"{cell}: the sequences of a batch don't share their steps" for cell in odd)
    return table[~table["cell_id"].isin(odd)].drop(columns=["fastest_s", "slowest_s"]), skipped


def _trials(known: pd.DataFrame) -> pd.DataFrame:
    timed = known[known["ttft_s"].notna()]
    grouped = timed.groupby(["cell_id", "method", "k", "batch_size", "trial"], sort=False)
    table = grouped.agg(
        prompt_tokens=("num_prompt_tokens", "sum"),
        longest_prompt_tokens=("num_prompt_tokens", "max"),
        ttft_s=("ttft_s", "max"),
    )
    return table.reset_index()


def _overheads(known: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """What is left of each sequence's decode time, per step."""
    sums = steps.groupby("sequence").agg(
        num_steps=("step", "size"),
        num_sequences=("num_sequences", "mean"),
        draft_s=("draft_s", "sum"),
        verify_s=("verify_s", "sum"),
        num_timed=("verify_s", "count"),
    )
    sums = sums[sums["num_timed"] == sums["num_steps"]]
    rows = known.loc[sums.index, ["cell_id", "method", "k", "decode_s"]].join(sums)
    rows["overhead_s"] = (rows["decode_s"] - rows["draft_s"] - rows["verify_s"]) / rows["num_steps"]
    kept = ["cell_id", "method", "k", "num_sequences", "num_steps", "overhead_s"]
    return rows.loc[rows["overhead_s"].notna(), kept].reset_index(drop=True)
