"""Is greedy output the baseline's, token for token?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from harness.results.frames import Frames
from harness.results.pairing import PAIR_KEYS

_COLUMNS = [
    "cell_id",
    "variant_id",
    "num_prompts",
    "num_equal",
    "share_equal",
    "first_divergence_tokens",
    "first_divergence_prompt_id",
    "median_divergence_tokens",
]


def first_divergence(tokens: Sequence[int], reference: Sequence[int]) -> int | None:
    """Index of the first token that differs, or the shorter length if one ends early; None if equal."""
    left, right = np.asarray(tokens), np.asarray(reference)
    common = min(left.size, right.size)
    differs = np.flatnonzero(left[:common] != right[:common])
    if differs.size:
        return int(differs[0])
    return None if left.size == right.size else common


def greedy_agreement(frames: Frames) -> pd.DataFrame:
    """One row per drafting variant of the cells at temperature 0.

    A prompt is equal when it is in every repeat. Divergence is counted in output tokens from 0; the earliest
    one is given with its prompt. Sequences without stored tokens are left out.
    """
    columns = ["cell_id", "variant_id", "is_baseline", "output_tokens", *PAIR_KEYS]
    measured = frames.measured
    if "temperature" not in measured.columns:
        return pd.DataFrame(columns=_COLUMNS)
    greedy = measured.loc[(measured["temperature"] == 0) & measured["output_tokens"].notna(), columns]
    is_baseline = greedy["is_baseline"].eq(True)
    reference = greedy[is_baseline].drop_duplicates(["cell_id", *PAIR_KEYS])
    compared = greedy[~is_baseline].merge(
        reference[["cell_id", *PAIR_KEYS, "output_tokens"]],
        on=["cell_id", *PAIR_KEYS],
        suffixes=("", "_baseline"),
    )
    pairs = zip(compared["output_tokens"], compared["output_tokens_baseline"], strict=True)
    compared["divergence"] = [np.nan if (d := first_divergence(a, b)) is None else d for a, b in pairs]
    groups = compared.groupby(["cell_id", "variant_id"], sort=False)
    rows = [{"cell_id": cell, "variant_id": variant, **_row(group)} for (cell, variant), group in groups]
    return frames.in_order(pd.DataFrame(rows, columns=_COLUMNS))


def _row(group: pd.DataFrame) -> dict[str, Any]:
    earliest = group.groupby("prompt_id")["divergence"].min()
    diverged = earliest.dropna()
    num_equal = len(earliest) - len(diverged)
    return {
        "num_prompts": len(earliest),
        "num_equal": num_equal,
        "share_equal": num_equal / len(earliest),
        "first_divergence_tokens": diverged.min(),
        "first_divergence_prompt_id": diverged.idxmin() if len(diverged) else None,
        "median_divergence_tokens": diverged.median(),
    }
