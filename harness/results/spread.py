"""Where the spread of times and speedups comes from, so that a reader knows what would narrow an interval."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from harness.metrics.variance import Components, variance_components
from harness.results.frames import Frames
from harness.results.pairing import NO_PAIRS, pair
from harness.results.prepared import PreparedCell

_SOURCES = ("total", "prompts", "repeats", "drift")
_COLUMNS = [
    "cell_id",
    "variant_id",
    "num_prompts",
    "num_repeats",
    *(f"time_{source}_sd" for source in _SOURCES),
    *(f"speedup_{source}_sd" for source in _SOURCES),
    "narrowed_by",
]


def spread(frames: Frames) -> pd.DataFrame:
    """One row per cell and variant: relative standard deviations of decoding, by source.

    `time_` is of a block's seconds per token, `speedup_` of its ratio to the baseline's in the same block and
    repeat; prompts decoded in one batch are one here, as they share their seconds. `narrowed_by` says what
    the speedup's interval needs: `prompts` or `repeats`; null where one repeat can't tell.
    """
    rows = [
        {"cell_id": cell.cell_id, "variant_id": variant_id, **_row(cell, variant_id)}
        for cell in frames.prepared
        for variant_id in cell.variants
    ]
    return frames.in_order(pd.DataFrame(rows, columns=_COLUMNS))


def _row(cell: PreparedCell, variant_id: str) -> dict[str, Any]:
    sample = cell.variants[variant_id]
    started = sample.groupby(["repeat", "block"])["started_s"].first()
    has_own = variant_id not in cell.baseline_ids and len(cell.baseline) > 0
    paired = cell.paired.get(variant_id, NO_PAIRS) if has_own else pair(sample, sample)
    blocks = paired.groupby(["repeat", "block"]).agg(
        prompt=("prompt_id", "min"),
        tokens=("num_decoded_tokens", "sum"),
        seconds=("decode_s", "sum"),
        baseline_tokens=("num_decoded_tokens_baseline", "sum"),
        baseline_s=("decode_s_baseline", "sum"),
    )
    blocks = _positive(blocks)
    times = started.reindex(blocks.index).to_numpy(dtype=np.float64)
    own = np.log(blocks["seconds"] / blocks["tokens"])
    ratio = np.log(blocks["baseline_s"] / blocks["baseline_tokens"]) - own
    num_repeats = int(sample["repeat"].nunique())
    found: dict[str, Any] = {"num_prompts": sample["prompt_id"].nunique(), "num_repeats": num_repeats}
    found |= _columns("time", variance_components(blocks["prompt"], own, times))
    if not has_own:
        return found
    of_speedup = variance_components(blocks["prompt"], ratio, times)
    return found | _columns("speedup", of_speedup) | {"narrowed_by": _narrowed_by(of_speedup, num_repeats)}


def _positive(blocks: pd.DataFrame) -> pd.DataFrame:
    """Blocks with tokens and seconds on both sides; a logarithm needs them."""
    return blocks[blocks.drop(columns="prompt").gt(0).all(axis=1)]


def _columns(name: str, components: Components) -> dict[str, float | None]:
    return {f"{name}_{source}_sd": getattr(components, source) for source in _SOURCES}


def _narrowed_by(components: Components, num_repeats: int) -> str | None:
    """A prompt's mean over repeats varies by both; the larger part says what there is too little of."""
    if components.prompts is None or components.repeats is None:
        return None
    return "prompts" if components.prompts**2 >= components.repeats**2 / num_repeats else "repeats"
