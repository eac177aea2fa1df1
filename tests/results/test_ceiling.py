from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from harness.records import CellRecord, Observation
from harness.results import ResultStore, load

MakeRecord = Callable[..., CellRecord]
MakeObservation = Callable[..., Observation]
# seconds of three prompts by variant: each has a fastest of its own
SECONDS = {
    "autoregressive": (0.4, 0.4, 0.4),
    "ngram-k2": (0.2, 0.5, 0.3),
    "ngram-k4": (0.1, 0.8, 0.35),
}


def write(store: ResultStore, make_record: MakeRecord, make_observation: MakeObservation) -> None:
    writer = store.open_cell(make_record(2, 4))
    for block in range(3):
        where = {"block": block, "prompt_id": f"p{block}"}
        rows = [
            make_observation(variant, **where, decode_s=seconds[block])
            for variant, seconds in SECONDS.items()
        ]
        writer.append(rows)


def test_the_ceiling_takes_each_prompts_fastest(
    store: ResultStore, make_record: MakeRecord, make_observation: MakeObservation
) -> None:
    write(store, make_record, make_observation)
    (row,) = load(store.path).look_ahead().to_dict("records")
    assert (row["method"], row["num_prompts"], row["num_k"]) == ("ngram", 3, 2)
    assert row["ceiling_speedup"] == pytest.approx(1.2 / (0.1 + 0.4 + 0.3))
    assert row["share_without_drafts"] == pytest.approx(1 / 3)


def test_no_fixed_k_is_above_the_ceiling(
    store: ResultStore, make_record: MakeRecord, make_observation: MakeObservation
) -> None:
    write(store, make_record, make_observation)
    results = load(store.path)
    assert results.summary()["speedup"].max() < results.look_ahead()["ceiling_speedup"].min()


def test_one_k_has_no_ceiling(
    store: ResultStore, make_record: MakeRecord, make_observation: MakeObservation
) -> None:
    store.open_cell(make_record(2)).append([make_observation(), make_observation("ngram-k2")])
    assert load(store.path).look_ahead().empty


def test_chosen_k_is_the_mean_over_spans_of_steps(
    store: ResultStore, make_record: MakeRecord, make_observation: MakeObservation
) -> None:
    proposed = [2] * 8 + [1] * 4
    counts = {"step_proposed": proposed, "step_accepted": [0] * 12, "step_emitted": [1] * 12}
    timed = {"step_draft_s": [0.0] * 12, "step_verify_s": [0.1] * 12, "num_output_tokens": 13}
    row = make_observation("ngram-k2", **counts, **timed)
    store.open_cell(make_record(2)).append([make_observation(), row])
    table = load(store.path).chosen_k()
    means = table.xs("ngram-k2", level="variant_id").iloc[0]
    np.testing.assert_allclose(means[["1 to 8", "9 to 16"]].to_numpy(dtype=float), [2.0, 1.0])
    assert pd.isna(means["33 on"])
