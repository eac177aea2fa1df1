from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.metrics import position_rates, summarise_steps, tokens_per_target_forward

# Four steps: all of 3 stand; 1 of 3; an n-gram that found nothing; none of 2.
PROPOSED, ACCEPTED, EMITTED = [3, 3, 0, 2], [3, 1, 0, 0], [4, 2, 1, 1]


def test_counts_and_rates_by_hand() -> None:
    counts = summarise_steps(PROPOSED, ACCEPTED, EMITTED)
    assert (counts.num_steps, counts.num_drafting_steps, counts.num_empty_steps) == (4, 3, 1)
    assert (counts.num_proposed, counts.num_accepted, counts.num_rejections) == (8, 4, 2)
    assert counts.acceptance_rate == 4 / 8
    assert counts.mean_emitted_per_step == 8 / 4
    assert counts.mean_accepted_per_drafting_step == 4 / 3
    assert counts.mean_proposed_per_step == 2.0


def test_a_cut_last_step_lowers_emitted_but_not_acceptance() -> None:
    whole = summarise_steps([4, 4], [2, 4], [3, 5])
    cut = summarise_steps([4, 4], [2, 4], [3, 1])
    assert cut.acceptance_rate == whole.acceptance_rate == 6 / 8
    assert (whole.mean_emitted_per_step, cut.mean_emitted_per_step) == (4.0, 2.0)


def test_nothing_drafted_is_none_not_zero() -> None:
    counts = summarise_steps([0, 0], [0, 0], [1, 1])
    assert counts.acceptance_rate is None
    assert counts.mean_accepted_per_drafting_step is None
    assert counts.mean_emitted_per_step == 1.0
    assert summarise_steps([], [], []).mean_emitted_per_step is None


def test_position_rates_by_hand() -> None:
    rates = position_rates(PROPOSED, ACCEPTED)
    assert rates.num_steps.tolist() == [3, 3, 2]
    assert rates.num_reached.tolist() == [3, 2, 1]
    np.testing.assert_allclose(rates.marginal, [2 / 3, 1 / 3, 1 / 2])
    np.testing.assert_allclose(rates.conditional, [2 / 3, 1 / 2, 1.0])


steps = st.lists(
    st.integers(0, 6).flatmap(lambda k: st.tuples(st.just(k), st.integers(0, k))), min_size=0, max_size=40
)


@given(steps)
def test_position_rates_equal_counting_one_by_one(pairs: list[tuple[int, int]]) -> None:
    rates = position_rates([p for p, _ in pairs], [a for _, a in pairs])
    assert len(rates.marginal) == max([p for p, _ in pairs], default=0)
    for place in range(1, len(rates.marginal) + 1):
        drafted = [(p, a) for p, a in pairs if p >= place]
        reached = [(p, a) for p, a in drafted if a >= place - 1]
        stood = sum(a >= place for _, a in drafted)
        assert rates.num_steps[place - 1] == len(drafted)
        assert rates.num_reached[place - 1] == len(reached)
        assert rates.marginal[place - 1] == stood / len(drafted)
        if reached:
            assert rates.conditional[place - 1] == stood / len(reached)
        else:
            assert np.isnan(rates.conditional[place - 1])


@given(steps)
def test_marginal_counts_add_up_to_the_accepted_tokens(pairs: list[tuple[int, int]]) -> None:
    rates = position_rates([p for p, _ in pairs], [a for _, a in pairs])
    assert round(float((rates.marginal * rates.num_steps).sum())) == sum(a for _, a in pairs)
    assert int(rates.num_steps.sum()) == sum(p for p, _ in pairs)


def test_more_accepted_than_proposed_is_refused() -> None:
    with pytest.raises(ValueError, match=r"accepted\[1\].*proposed \(2\), got 3"):
        position_rates([2, 2], [1, 3])
    with pytest.raises(ValueError, match="needs 2 steps"):
        summarise_steps([2, 2], [1], [2, 2])
    with pytest.raises(ValueError, match="emitted: needs 2 steps"):
        summarise_steps([2, 2], [1, 1], [2])


def test_tokens_per_target_forward() -> None:
    assert tokens_per_target_forward(30, 12) == 2.5
    assert tokens_per_target_forward(0, 0) is None
