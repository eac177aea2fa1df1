from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from harness.metrics.intervals import speedup_interval
from harness.records import CellRecord, Observation
from harness.results import ResultStore, load

MakeRecord = Callable[..., CellRecord]
MakeObservation = Callable[..., Observation]


def test_a_variant_over_another_is_a_ratio_of_sums_over_their_common_prompts(
    store: ResultStore, make_record: MakeRecord, make_observation: MakeObservation
) -> None:
    writer = store.open_cell(make_record(2, 4))
    seconds = {"ngram-k2": (0.2, 0.5, 0.3), "ngram-k4": (0.1, 0.4, 0.4)}
    forwards = {"ngram-k2": (4, 4, 3), "ngram-k4": (2, 3, 3)}
    for block in range(3):
        where = {"block": block, "prompt_id": f"p{block}"}
        writer.append(
            [
                make_observation(
                    name, **where, decode_s=seconds[name][block], num_target_forwards=forwards[name][block]
                )
                for name in seconds
            ]
        )
    # a prompt that only one of them decoded counts for neither
    writer.append([make_observation("ngram-k4", block=3, prompt_id="p3", decode_s=9.0)])
    found = load(store.path).against("c0", "ngram-k4", "ngram-k2")
    assert found.speed.estimate == pytest.approx(1.0 / 0.9)
    assert found.tokens_per_forward.estimate == pytest.approx(11 / 8)
    tokens = np.full(3, 5.0)
    expected = speedup_interval(tokens, forwards["ngram-k4"], tokens, forwards["ngram-k2"])
    assert (found.tokens_per_forward.low, found.tokens_per_forward.high) == (expected.low, expected.high)
