"""Which rows may enter a ratio: the same prompts of the same block, decoded by variant and baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
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

FloatArray = npt.NDArray[np.float64]

PAIR_KEYS = ["prompt_id", "repeat", "block"]
_SHARES = ["decode_share_s", "total_share_s", "trial_share_s"]
_VALUES = ["num_output_tokens", "num_decoded_tokens", "num_target_forwards", "decode_s", *_SHARES]


_PAIRED_VALUES = [*_VALUES, *(f"{name}_baseline" for name in _VALUES)]
NO_PAIRS = pd.DataFrame(columns=[*PAIR_KEYS, "unit", "task", *_PAIRED_VALUES]).astype(
    dict.fromkeys(_PAIRED_VALUES, float)
)
"""What `pair` returns where nothing pairs."""


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
        the sequence's drafted, accepted and tested tokens (NaN where its steps aren't known), and the trial's
        seconds split evenly over its sequences: `decode_share_s` from its first output token to its last,
        `total_share_s` from the call to its last output token, `trial_share_s` the whole call.
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
        **_step_counts(cell),
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
    return _joined(_means(variant), _means(baseline))


def pair_each(rows: pd.DataFrame, baseline: pd.DataFrame) -> dict[Any, pd.DataFrame]:
    """`pair` every variant of a cell with the baseline, in one join; those without a pair are left out."""
    joined = _joined(_means(rows, "variant_id"), _means(baseline))
    return dict(iter(joined.groupby("variant_id", sort=False)))


def _means(rows: pd.DataFrame, *further: str) -> pd.DataFrame:
    return rows.groupby([*further, *PAIR_KEYS, "unit", "task"])[_VALUES].mean().reset_index()


def _joined(variant: pd.DataFrame, baseline: pd.DataFrame) -> pd.DataFrame:
    return variant.merge(baseline.drop(columns=["unit", "task"]), on=PAIR_KEYS, suffixes=("", "_baseline"))


def speedup(paired: pd.DataFrame, rate: Rate) -> Interval:
    """Variant over baseline in tokens per second, over the paired rows that have both times."""
    own = (rate.tokens, rate.seconds)
    return speedup_interval(*_unit_sums(paired, *own, *(f"{name}_baseline" for name in own)))


def rate_interval(rows: pd.DataFrame, rate: Rate) -> Interval:
    """Tokens per second of a variant's rows that have a time."""
    return ratio_interval(*_unit_sums(rows, rate.tokens, rate.seconds))


def acceptance_interval(rows: pd.DataFrame) -> Interval:
    """Accepted over proposed tokens of a variant's rows whose steps are known."""
    return proportion_interval(*_unit_sums(rows, "num_accepted", "num_proposed"))


def alpha_interval(rows: pd.DataFrame) -> Interval:
    """Accepted over tested tokens, those up to a step's first rejection, of rows whose steps are known."""
    return proportion_interval(*_unit_sums(rows, "num_accepted", "num_tested"))


def _unit_sums(rows: pd.DataFrame, *columns: str) -> tuple[FloatArray, ...]:
    """Sums per unit over the rows that have all of the columns."""
    values = [rows[name].to_numpy(dtype=np.float64) for name in columns]
    known = ~np.isnan(values).any(axis=0)
    return group_sums(rows["unit"].to_numpy()[known], *(column[known] for column in values))


def _step_counts(cell: pd.DataFrame) -> dict[str, FloatArray]:
    """[num_rows] drafted, accepted and tested tokens of each sequence; NaN where its steps aren't known."""
    known = cell["step_proposed"].notna().to_numpy()
    lists = [cell[name].to_numpy()[known] for name in ("step_proposed", "step_accepted")]
    lengths = np.array([len(steps) for steps in lists[0]], dtype=np.int64)
    proposed, accepted = (
        np.concatenate([np.zeros(0, dtype=np.int64), *(np.asarray(steps) for steps in own)]) for own in lists
    )
    counts = {
        "num_proposed": proposed,
        "num_accepted": accepted,
        "num_tested": np.minimum(accepted + 1, proposed),
    }
    return {name: _spread(_sums(steps, lengths), known) for name, steps in counts.items()}


def _sums(values: np.ndarray[Any, Any], lengths: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Sums over consecutive stretches of these lengths, which may be 0."""
    totals = np.concatenate([[0], np.cumsum(values)])
    ends = np.cumsum(lengths)
    sums: np.ndarray[Any, Any] = totals[ends] - totals[ends - lengths]
    return sums


def _spread(values: np.ndarray[Any, Any], known: np.ndarray[Any, Any]) -> FloatArray:
    placed = np.full(known.size, np.nan)
    placed[known] = values
    return placed


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
