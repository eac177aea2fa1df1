from __future__ import annotations

from typing import Any

import pytest

from harness.backends.vllm.sequences import decoded_sequences
from harness.backends.vllm.steps import Arrival, is_truncated, steps_of
from harness.errors import MeasurementError
from harness.records import FinishReason, Steps


def arrivals(*tokens: int, drafted: list[bool | None] | None = None) -> list[Arrival]:
    """The prefill's token at 0 s, then a step each second."""
    known = drafted or [None] * len(tokens)
    found = [Arrival(float(place + 1), count, known[place]) for place, count in enumerate(tokens)]
    return [Arrival(0.0, 1, False), *found]


def counts(steps: Steps) -> list[tuple[int, int, int]]:
    return list(zip(steps.proposed, steps.accepted, steps.emitted, strict=True))


def test_each_step_is_what_came_and_what_was_drafted() -> None:
    steps = steps_of(arrivals(3, 1, 4), per_step_drafted=[3, 3, 3], per_step_accepted=[2, 0, 3])
    assert counts(steps) == [(3, 2, 3), (3, 0, 1), (3, 3, 4)]
    assert steps.step_s == [1.0, 1.0, 1.0]
    assert (steps.draft_s, steps.verify_s) == ([], [])
    assert not is_truncated(steps)


def test_a_step_that_drafted_nothing_is_told_from_a_rejection_where_the_engine_knows() -> None:
    options = {"per_step_drafted": [2], "per_step_accepted": [0]}
    assert counts(steps_of(arrivals(1, 1, drafted=[False, True]), **options)) == [(0, 0, 1), (2, 0, 1)]
    assert counts(steps_of(arrivals(1, 1, drafted=[True, False]), **options)) == [(2, 0, 1), (0, 0, 1)]
    # known for a part only: the earliest place, whatever the part says
    assert counts(steps_of(arrivals(1, 1, drafted=[None, True]), **options)) == [(2, 0, 1), (0, 0, 1)]


def test_a_step_that_accepted_is_never_taken_for_an_empty_one() -> None:
    steps = steps_of(arrivals(1, 3, 1), per_step_drafted=[2, 2], per_step_accepted=[2, 0])
    assert counts(steps) == [(0, 0, 1), (2, 2, 3), (2, 0, 1)]


def test_a_last_step_cut_by_the_limit_keeps_what_was_accepted() -> None:
    for emitted in (1, 2, 3):
        steps = steps_of(arrivals(1, emitted), per_step_drafted=[3], per_step_accepted=[3])
        assert counts(steps) == [(0, 0, 1), (3, 3, emitted)]
        assert is_truncated(steps)


@pytest.mark.parametrize(
    ("tokens", "drafted", "accepted"),
    [
        ((2, 1), [], []),  # two tokens without a draft
        ((3, 1), [2], [1]),  # more than were accepted
        ((1, 1), [2, 2, 2], [0, 0, 0]),  # a step that nobody saw
        ((3, 1), [1], [2]),  # more accepted than drafted
    ],
)
def test_records_that_disagree_are_refused(
    tokens: tuple[int, ...], drafted: list[int], accepted: list[int]
) -> None:
    with pytest.raises(MeasurementError, match="vLLM"):
        steps_of(arrivals(*tokens), per_step_drafted=drafted, per_step_accepted=accepted)


def answer(**changes: Any) -> dict[str, Any]:
    """Two sequences in three engine steps; the second one's only draft is cut by its end token."""
    first = {"request_id": "0", "tokens": [5, 6, 7, 8], "first_token_s": 11.0, "last_token_s": 13.0}
    first |= {"per_step_drafted": [2, 2], "per_step_accepted": [1, 0], "finish_reason": "length"}
    second = {"request_id": "1", "tokens": [9, 2], "first_token_s": 11.0, "last_token_s": 12.0}
    second |= {"per_step_drafted": [2], "per_step_accepted": [2], "finish_reason": "stop"}
    core = [
        {"at_s": 11.0, "arrived": [["0-ab", 1], ["1-cd", 1]], "num_drafts": 0},
        {"at_s": 12.0, "arrived": [["0-ab", 2], ["1-cd", 1]], "num_drafts": 2},
        {"at_s": 13.0, "arrived": [["0-ab", 1]], "num_drafts": 1},
    ]
    counted = {"drafts": 3, "proposed": 6, "accepted": 3}
    return {"start_s": 10.5, "sequences": [first, second], "core_steps": core, "counted": counted} | changes


def test_a_batch_is_decoded_with_times_of_the_engines_clock() -> None:
    first, second = decoded_sequences(answer(), eos_ids=frozenset({2}))
    assert (first.tokens, first.finish_reason) == ([5, 6, 7, 8], FinishReason.LENGTH)
    assert (first.ttft_s, first.decode_s, first.total_s) == (0.5, 2.0, 2.5)
    assert (first.num_target_forwards, first.last_step_truncated) == (3, False)
    assert first.steps is not None
    assert counts(first.steps) == [(2, 1, 2), (2, 0, 1)]
    assert (second.finish_reason, second.last_step_truncated) == (FinishReason.EOS, True)
    assert second.steps is not None
    assert counts(second.steps) == [(2, 2, 1)]


def test_counters_that_moved_otherwise_are_refused() -> None:
    counted = {"drafts": 3, "proposed": 6, "accepted": 4}
    with pytest.raises(MeasurementError, match="counters moved by"):
        decoded_sequences(answer(counted=counted), eos_ids=frozenset())


def test_outputs_nobody_asked_for_or_that_are_missing_are_refused() -> None:
    stranger = [{"at_s": 11.0, "arrived": [["7-ab", 1]], "num_drafts": 0}]
    with pytest.raises(MeasurementError, match="unknown request '7-ab'"):
        decoded_sequences(answer(core_steps=stranger), eos_ids=frozenset())
    with pytest.raises(MeasurementError, match="brought 3 tokens, the output has 4"):
        decoded_sequences(answer(core_steps=answer()["core_steps"][:2]), eos_ids=frozenset())
