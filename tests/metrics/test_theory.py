from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.metrics import (
    break_even_alpha,
    expected_emitted,
    iid_acceptance,
    optimal_k,
    predicted_speedup,
    speedup_from_emitted,
)

alphas = st.floats(0, 1)
ks = st.integers(1, 12)
costs = st.floats(0, 0.5)


@pytest.mark.parametrize(
    ("alpha", "k", "expected"),
    [(0.0, 5, 1.0), (1.0, 5, 6.0), (0.5, 1, 1.5), (0.5, 2, 1.75), (0.8, 4, 3.3616), (0.3, 0, 1.0)],
)
def test_expected_emitted_by_hand(alpha: float, k: int, expected: float) -> None:
    assert expected_emitted(alpha, k) == pytest.approx(expected, rel=1e-12)


@given(st.floats(0, 0.99), ks)
def test_expected_emitted_is_the_papers_quotient(alpha: float, k: int) -> None:
    assert expected_emitted(alpha, k) == pytest.approx((1 - alpha ** (k + 1)) / (1 - alpha), rel=1e-9)


def test_expected_emitted_near_one_keeps_its_digits() -> None:
    assert expected_emitted(1 - 1e-15, 9) == pytest.approx(10, rel=1e-12)


def test_expected_emitted_equals_simulated_steps() -> None:
    rng = np.random.default_rng(0)
    stood = np.cumprod(rng.random((200_000, 5)) < 0.7, axis=1).sum(1)
    assert expected_emitted(0.7, 5) == pytest.approx(stood.mean() + 1, abs=0.02)


def test_expected_emitted_refuses_what_is_no_probability() -> None:
    with pytest.raises(ValueError, match=r"alpha: must lie in \[0, 1\], got 1.2"):
        expected_emitted(1.2, 3)
    with pytest.raises(ValueError, match="k: must be 0 or more"):
        expected_emitted(0.5, -1)


def test_predicted_speedup_by_hand() -> None:
    # 1.75 tokens for 2 * 0.1 + 1.05 baseline steps.
    assert predicted_speedup(0.5, 2, draft_cost=0.1, verify_cost=1.05) == pytest.approx(1.75 / 1.25)
    assert speedup_from_emitted(2.5, 4, draft_cost=0.2, verify_cost=1.2) == pytest.approx(1.25)
    with pytest.raises(ValueError, match="cost"):
        speedup_from_emitted(2.5, 0, draft_cost=0.2, verify_cost=0.0)


def test_iid_acceptance_counts_tested_tokens_only() -> None:
    # Drafts of 4: accepted 4 (no rejection), 1 and 0 (one each): 5 of 7 tested, though 5 of 12 drafted.
    assert iid_acceptance(5, 2) == pytest.approx(5 / 7)
    assert iid_acceptance(0, 0) is None


def test_iid_acceptance_recovers_the_alpha_of_simulated_steps() -> None:
    rng = np.random.default_rng(1)
    accepted = np.cumprod(rng.random((50_000, 6)) < 0.65, axis=1).sum(1)
    estimate = iid_acceptance(int(accepted.sum()), int((accepted < 6).sum()))
    assert estimate == pytest.approx(0.65, abs=0.005)


@given(ks, costs, st.floats(0.5, 2))
def test_break_even_alpha_neither_gains_nor_loses(k: int, c: float, v: float) -> None:
    alpha = break_even_alpha(k, draft_cost=c, verify_cost=v)
    if alpha is None:
        assert predicted_speedup(1.0, k, draft_cost=c, verify_cost=v) < 1
    elif alpha == 0:
        assert predicted_speedup(0.0, k, draft_cost=c, verify_cost=v) >= 1
    else:
        assert predicted_speedup(alpha, k, draft_cost=c, verify_cost=v) == pytest.approx(1, rel=1e-6)


def test_break_even_alpha_for_one_token_is_its_cost() -> None:
    assert break_even_alpha(1, draft_cost=0.2) == pytest.approx(0.2)


@given(alphas, costs, st.floats(0.5, 1.5))
def test_optimal_k_equals_trying_them_all(alpha: float, c: float, v: float) -> None:
    tried = [1.0] + [predicted_speedup(alpha, k, draft_cost=c, verify_cost=v) for k in range(1, 9)]
    assert optimal_k(alpha, draft_cost=c, verify_cost=v, max_k=8) == int(np.argmax(tried))


def test_optimal_k_is_zero_when_drafting_does_not_pay() -> None:
    assert optimal_k(0.1, draft_cost=0.3) == 0


def test_optimal_k_takes_a_verify_cost_that_grows() -> None:
    flat = optimal_k(0.8, draft_cost=0.05)
    growing = optimal_k(0.8, draft_cost=0.05, verify_cost=lambda num_tokens: 1 + 0.2 * (num_tokens - 1))
    assert 0 < growing < flat
