from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from harness.metrics import Interval, group_sums, proportion_interval, ratio_interval, speedup_interval

positive = st.floats(0.5, 50)
rows = st.lists(st.tuples(positive, positive, positive, positive), min_size=2, max_size=12)


def _prompts(num_prompts: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Tokens and seconds of prompts whose speedups scatter by 30 % around 1.5."""
    baseline_tokens = np.clip(rng.lognormal(4, 0.5, num_prompts), 5, 256)
    tokens = np.clip(baseline_tokens * rng.lognormal(0, 0.2, num_prompts), 5, 256)
    seconds = tokens * 0.02 / (1.5 * rng.lognormal(0, 0.3, num_prompts))
    return tokens, seconds, baseline_tokens, baseline_tokens * 0.02 * rng.lognormal(0, 0.03, num_prompts)


def test_speedup_is_a_ratio_of_sums_by_hand() -> None:
    found = speedup_interval([100, 20], [1.0, 1.0], [80, 20], [2.0, 0.5])
    assert found.estimate == pytest.approx((120 / 2) / (100 / 2.5))
    assert found.num_units == 2
    assert found.confidence == 0.95


def test_ends_by_hand() -> None:
    # Without one unit: 9/10, 6/10, 3/10 twice over; all: 0.6. Student's t of 2 degrees is 4.3027.
    found = ratio_interval([3, 6, 9], [10, 10, 10])
    without_each = np.log([15 / 20, 12 / 20, 9 / 20])
    error = np.sqrt(np.sum((without_each - np.log(0.6)) ** 2))
    assert found.estimate == pytest.approx(0.6)
    assert found.low == pytest.approx(0.6 * np.exp(-4.302653 * error))
    assert found.high == pytest.approx(0.6 * np.exp(4.302653 * error))
    share = proportion_interval([3, 6, 9], [10, 10, 10])
    logits = np.log([15 / 5, 12 / 8, 9 / 11]) - np.log(1.5)
    end = np.log(1.5) + 4.302653 * np.sqrt(np.sum(logits**2))
    assert share.high == pytest.approx(1 / (1 + np.exp(-end)))
    assert share.high < found.high


def test_for_equal_denominators_it_is_students_interval_of_a_mean() -> None:
    # Nearly equal units: the logarithm is straight there, and leaving one out is what a mean's variance is.
    values = 100 + np.array([0.1, -0.2, 0.05, 0.15, -0.1, 0.0])
    found = ratio_interval(values, np.ones(6))
    half = stats.t.ppf(0.975, 5) * values.std(ddof=1) / np.sqrt(6) * np.sqrt(6 / 5)
    assert found.high - found.estimate == pytest.approx(half, rel=1e-3)
    assert found.estimate - found.low == pytest.approx(half, rel=1e-3)


def test_two_units_are_little_to_go_by() -> None:
    found = ratio_interval([4, 5], [10, 10])
    assert found.low < 0.2
    assert found.high > 1.0


def test_a_share_stays_between_0_and_1() -> None:
    found = proportion_interval([10, 10, 10, 9], [10, 10, 10, 10])
    assert 0 < found.low < 39 / 40 < found.high <= 1
    assert proportion_interval([0, 0, 4], [10, 10, 10]).low == 0
    assert proportion_interval([10, 10], [10, 10]).low == 1


def test_what_one_unit_alone_holds_has_no_interval() -> None:
    found = ratio_interval([3, 1], [4, 0])
    assert (found.estimate, found.low, found.high) == (1.0, None, None)
    assert "single prompt" in str(found.reason)


def test_p_value_is_that_of_the_interval() -> None:
    columns = _prompts(12, np.random.default_rng(2))
    found = speedup_interval(*columns)
    assert found.p_value is not None
    # at the confidence 1 - p the interval just touches 1
    touching = speedup_interval(*columns, confidence=1 - found.p_value)
    assert min(abs(touching.low - 1), abs(touching.high - 1)) < 1e-6
    assert ratio_interval(*columns[:2]).p_value is None
    assert speedup_interval([5, 5], [1, 1], [5, 5], [1, 1]).p_value == 1
    assert speedup_interval([5, 5], [1, 1], [5, 5], [2, 2]).p_value == 0


def test_equal_units_leave_no_doubt() -> None:
    found = ratio_interval([3] * 5, [4] * 5)
    assert (found.low, found.estimate, found.high) == (0.75, 0.75, 0.75)


@pytest.mark.parametrize(
    ("numerator", "denominator", "estimate", "reason"),
    [
        ([], [], None, "nothing was measured"),
        ([3], [4], 0.75, "two or more prompts"),
        ([3, 1], [0, 0], None, "denominator is zero"),
    ],
)
def test_what_cannot_be_computed_is_none_with_a_reason(
    numerator: list[float], denominator: list[float], estimate: float | None, reason: str
) -> None:
    found = ratio_interval(numerator, denominator)
    assert (found.estimate, found.low, found.high) == (estimate, None, None)
    assert reason in str(found.reason)
    assert found.relative_half_width is None


def test_relative_half_width() -> None:
    assert Interval(2.0, 1.8, 2.4, 0.95, 9).relative_half_width == pytest.approx(0.15)


def test_unequal_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="one entry per unit"):
        ratio_interval([1, 2], [1])


def test_repeats_of_a_prompt_are_one_unit() -> None:
    tokens, seconds = group_sums(["b", "a", "b"], [1, 10, 2], [0.5, 4, 0.25])
    assert tokens.tolist() == [10, 3]
    assert seconds.tolist() == [4, 0.75]
    tripled = ratio_interval(*group_sums(["a", "b", "c"] * 3, [1, 2, 6] * 3, [4] * 9))
    assert tripled.num_units == 3
    assert tripled.low == pytest.approx(ratio_interval([1, 2, 6], [4, 4, 4]).low)


def test_variant_and_baseline_are_resampled_together() -> None:
    # Per prompt the speedup is exactly 2, though the prompts differ a hundredfold: paired, nothing varies.
    baseline_s = np.geomspace(0.1, 10, 8)
    tokens = np.geomspace(5, 200, 8)
    found = speedup_interval(tokens, baseline_s / 2, tokens, baseline_s)
    assert found.low == pytest.approx(2)
    assert found.high == pytest.approx(2)


@settings(max_examples=40, deadline=None)
@given(rows, st.floats(0.1, 10))
def test_scaling_the_clock_changes_no_speedup(data: list[tuple[float, ...]], factor: float) -> None:
    tokens, seconds, base_tokens, base_s = np.array(data).T
    plain = speedup_interval(tokens, seconds, base_tokens, base_s)
    scaled = speedup_interval(tokens, seconds * factor, base_tokens, base_s * factor)
    ends = [plain.low, plain.estimate, plain.high]
    np.testing.assert_allclose([scaled.low, scaled.estimate, scaled.high], ends, rtol=1e-9)


@settings(max_examples=40, deadline=None)
@given(rows)
def test_swapping_variant_and_baseline_inverts_the_speedup(data: list[tuple[float, ...]]) -> None:
    tokens, seconds, base_tokens, base_s = np.array(data).T
    forth = speedup_interval(tokens, seconds, base_tokens, base_s)
    back = speedup_interval(base_tokens, base_s, tokens, seconds)
    assert forth.estimate is not None
    assert back.estimate == pytest.approx(1 / forth.estimate)
    assert forth.low <= forth.estimate * (1 + 1e-9)
    assert forth.high >= forth.estimate * (1 - 1e-9)
    assert (back.low, back.high) == pytest.approx((1 / forth.high, 1 / forth.low))
    assert back.p_value == pytest.approx(forth.p_value)


@settings(max_examples=40, deadline=None)
@given(rows)
def test_an_interval_holds_its_estimate(data: list[tuple[float, ...]]) -> None:
    above, below = np.array(data).T[:2]
    found = ratio_interval(above, below)
    assert found.low <= found.estimate * (1 + 1e-9)
    assert found.high >= found.estimate * (1 - 1e-9)
    assert found.low >= 0


@pytest.mark.parametrize(("num_prompts", "least"), [(8, 0.92), (24, 0.92)])
def test_coverage_of_the_true_speedup(num_prompts: int, least: float) -> None:
    tokens, seconds, base_tokens, base_s = _prompts(1_000_000, np.random.default_rng(7))
    truth = (tokens.sum() / seconds.sum()) / (base_tokens.sum() / base_s.sum())
    rng = np.random.default_rng(11)
    hits = 0
    for _ in range(400):
        found = speedup_interval(*_prompts(num_prompts, rng))
        hits += found.low <= truth <= found.high
    assert least <= hits / 400 <= 0.99


def test_coverage_of_the_true_acceptance_rate() -> None:
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(400):
        proposed = np.clip(rng.lognormal(4, 0.6, 16), 5, 256).astype(int) * 2
        accepted = rng.binomial(proposed, rng.beta(1.2, 1.2, 16))
        found = proportion_interval(accepted, proposed)
        hits += found.low <= 0.5 <= found.high
    assert 0.92 <= hits / 400 <= 0.985
