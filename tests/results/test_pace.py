from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness.records import CellRecord, Observation
from harness.results import ResultStore, load

MakeRecord = Callable[..., CellRecord]
MakeObservation = Callable[..., Observation]


def write(
    store: ResultStore, make_record: MakeRecord, make_observation: MakeObservation, drafts: list[list[int]]
) -> None:
    def drafted(proposed: list[int], block: int) -> Observation:
        count = len(proposed)
        steps: dict[str, Any] = {"step_proposed": proposed, "step_accepted": [0] * count}
        steps |= {"step_emitted": [1] * count, "step_draft_s": [0.0] * count, "step_verify_s": [0.1] * count}
        where = {"block": block, "prompt_id": f"p{block}", "num_output_tokens": count + 1}
        return make_observation("ngram-k4", **where, **steps)

    store.open_cell(make_record(4)).append([drafted(own, block) for block, own in enumerate(drafts)])


def test_mean_and_quartiles_are_over_the_sequences_that_got_so_far(
    store: ResultStore, make_record: MakeRecord, make_observation: MakeObservation
) -> None:
    write(store, make_record, make_observation, [[0, 4], [1, 4, 2], [2, 2], [4], [3, 2, 2]])
    table = load(store.path).pace_by_step()
    # step 2 was reached by two sequences alone
    assert table["step"].tolist() == [0, 1]
    assert table["num_sequences"].tolist() == [5, 4]
    assert table["mean"].tolist() == pytest.approx([2.0, 3.0])
    assert table[["low", "high"]].to_numpy().tolist() == [[1.0, 3.0], [2.0, 4.0]]


def test_the_shares_of_a_variant_add_up(
    store: ResultStore, make_record: MakeRecord, make_observation: MakeObservation
) -> None:
    write(store, make_record, make_observation, [[0, 4], [4, 4], [2, 0], [4, 2]])
    table = load(store.path).pace_shares()
    assert table.set_index("drafted")["share"].to_dict() == pytest.approx({0: 0.25, 2: 0.25, 4: 0.5})
