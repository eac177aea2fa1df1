"""Which rows may enter a ratio: the same prompts of the same block, decoded by variant and baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from harness.metrics.intervals import (
    Interval,
    group_sums,
    proportion_interval,
    ratio_interval,
    speedup_interval,
)
from harness.metrics.latency import num_decoded_tokens, num_first_tokens

PAIR_KEYS = ["prompt_id", "repeat", "block"]
_SHARES = ["decode_share_s", "total_share_s", "trial_share_s"]
_VALUES = ["num_output_tokens", "num_decoded_tokens", "num_target_forwards", "decode_s", *_SHARES]


@dataclass(frozen=True, slots=True)
class Rate:
    """A kind of tokens per second: which tokens over which seconds.

    Sequences of a batch share their seconds: each takes an even share of the batch's, so that sums count
    every second once. `SEQUENCE` counts each sequence's own seconds in full: what its reader waits for.
    """

    tokens: str
    seconds: str


DECODE = Rate("num_decoded_tokens", "decode_share_s")
END_TO_END = Rate("num_output_tokens", "total_share_s")
THROUGHPUT = Rate("num_output_tokens", "trial_share_s")
SEQUENCE = Rate("num_decoded_tokens", "decode_s")


def prepare(cell: pd.DataFrame) -> pd.DataFrame:
    """Add what ratios need to the counting observations of one cell.

    Returns:
        The frame with `unit` (which rows are resampled together), `num_first_tokens`, `num_decoded_tokens`,
        and the trial's seconds split evenly over its sequences: `decode_share_s` from its first output token
        to its last, `total_share_s` from the call to its last output token, `trial_share_s` the whole call.
    """
    trial = cell.groupby(["variant_id", "repeat", "block", "order", "started_s"], dropna=False)
    sizes = trial["prompt_id"].transform("size")
    ended_s = trial["total_s"].transform("max")
    decoding_s = ended_s - trial["ttft_s"].transform("min")
    pairs = zip(cell["step_emitted"], cell["num_output_tokens"], strict=True)
    num_first = np.array([num_first_tokens(emitted, total) for emitted, total in pairs], dtype=np.int64)
    return cell.assign(
        unit=_units(cell),
        num_first_tokens=num_first,
        num_decoded_tokens=num_decoded_tokens(cell["num_output_tokens"], num_first),
        decode_share_s=cell["decode_s"].where((sizes == 1) | cell["decode_s"].isna(), decoding_s / sizes),
        total_share_s=cell["total_s"].where((sizes == 1) | cell["total_s"].isna(), ended_s / sizes),
        trial_share_s=cell["trial_s"] / sizes,
    )


def pair(variant: pd.DataFrame, baseline: pd.DataFrame) -> pd.DataFrame:
    """Join a variant's rows to the baseline's on prompt, repeat and block.

    Rows that share a key (a baseline measured before and after the variants) are averaged first.

    Returns:
        One row per key both have; the baseline's columns end in `_baseline`.
    """
    means = [
        rows.groupby([*PAIR_KEYS, "unit", "task"])[_VALUES].mean().reset_index()
        for rows in (variant, baseline)
    ]
    return means[0].merge(means[1].drop(columns=["unit", "task"]), on=PAIR_KEYS, suffixes=("", "_baseline"))


def speedup(paired: pd.DataFrame, rate: Rate) -> Interval:
    """Variant over baseline in tokens per second, over the paired rows that have both times."""
    columns = [rate.tokens, rate.seconds, f"{rate.tokens}_baseline", f"{rate.seconds}_baseline"]
    known = paired.dropna(subset=columns)
    return speedup_interval(*group_sums(known["unit"], *(known[column] for column in columns)))


def rate_interval(rows: pd.DataFrame, rate: Rate) -> Interval:
    """Tokens per second of a variant's rows that have a time."""
    known = rows.dropna(subset=[rate.tokens, rate.seconds])
    return ratio_interval(*group_sums(known["unit"], known[rate.tokens], known[rate.seconds]))


def acceptance_interval(rows: pd.DataFrame) -> Interval:
    """Accepted over proposed tokens of a variant's rows whose steps are known."""
    known = rows[rows["step_proposed"].notna()]
    proposed = [int(np.sum(steps)) for steps in known["step_proposed"]]
    accepted = [int(np.sum(steps)) for steps in known["step_accepted"]]
    return proportion_interval(*group_sums(known["unit"], accepted, proposed))


def alpha_interval(rows: pd.DataFrame) -> Interval:
    """Accepted over tested tokens, those up to a step's first rejection, of rows whose steps are known."""
    known = rows[rows["step_proposed"].notna()]
    steps = list(zip(known["step_proposed"], known["step_accepted"], strict=True))
    accepted = [int(np.sum(stood)) for _, stood in steps]
    tested = [int(np.minimum(np.add(stood, 1), drafted).sum()) for drafted, stood in steps]
    return proportion_interval(*group_sums(known["unit"], accepted, tested))


def _units(cell: pd.DataFrame) -> np.ndarray[Any, Any]:
    """[num_rows] number of the group of prompts that are resampled together.

    Sequences of one batch share their seconds, so prompts that ever met in a block form one unit; with one
    prompt per block every prompt is its own.
    """
    prompts, _ = pd.factorize(cell["prompt_id"])
    blocks = cell.groupby(["repeat", "block"]).ngroup().to_numpy()
    if not len(cell):
        return np.zeros(0, dtype=np.int64)
    num_prompts, num_nodes = prompts.max() + 1, prompts.max() + 1 + blocks.max() + 1
    links = coo_array((np.ones(len(cell)), (prompts, blocks + num_prompts)), shape=(num_nodes, num_nodes))
    labels: np.ndarray[Any, Any] = connected_components(links, directed=False)[1]
    return labels[prompts]
