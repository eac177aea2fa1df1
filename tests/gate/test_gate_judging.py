from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from harness.gate.judging import Change, judge, judge_exactly
from harness.gate.metric import Scale
from harness.gate.resampling import Effect
from harness.gate.verdict import Verdict
from harness.metrics import holm


def _change(
    estimate: float,
    error: float | None,
    *,
    margin: float = 0.05,
    higher_is_better: bool = True,
    num_units: int = 20,
    scale: Scale = Scale.DIFFERENCE,
) -> Change:
    effect = Effect(1.0, 1.0 + estimate, estimate, error, num_units, scale)
    return Change(effect, margin, higher_is_better)


def _verdict(*changes: Change) -> list[Verdict]:
    return [judgement.verdict for judgement in judge(changes, confidence=0.95)]


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.mark.parametrize(
    ("estimate", "error", "expected"),
    [
        (0.0, 0.01, Verdict.PASS),
        (0.0, 0.03, Verdict.INCONCLUSIVE),
        (-0.04, 0.01, Verdict.INCONCLUSIVE),
        (-0.06, 0.01, Verdict.INCONCLUSIVE),
        (-0.10, 0.01, Verdict.REGRESSION),
        (0.10, 0.01, Verdict.IMPROVEMENT),
        (-0.02, 0.0, Verdict.PASS),
        (-0.06, 0.0, Verdict.REGRESSION),
        (0.06, 0.0, Verdict.IMPROVEMENT),
        (-0.50, None, Verdict.INCONCLUSIVE),
    ],
)
def test_a_verdict_follows_from_where_the_interval_lies(
    estimate: float, error: float | None, expected: Verdict
) -> None:
    (found,) = judge([_change(estimate, error)], confidence=0.95)
    assert found.verdict is expected
    if error:
        half = stats.t.ppf(0.975, 19) * error
        assert (found.low, found.high) == pytest.approx((estimate - half, estimate + half))


def test_where_lower_is_better_a_rise_is_the_regression() -> None:
    assert _verdict(_change(0.10, 0.01, higher_is_better=False)) == [Verdict.REGRESSION]
    assert _verdict(_change(-0.10, 0.01, higher_is_better=False)) == [Verdict.IMPROVEMENT]


def test_margins_of_ratios_are_relative() -> None:
    at = [math.log(0.951), math.log(0.949), math.log(1.049), math.log(1.051)]
    verdicts = _verdict(*(_change(value, 0.0, scale=Scale.RATIO) for value in at))
    assert verdicts == [Verdict.PASS, Verdict.REGRESSION, Verdict.PASS, Verdict.IMPROVEMENT]


def test_a_lone_find_among_many_needs_more_and_both_directions_share_a_family() -> None:
    suspect = _change(-0.076, 0.01)
    assert _verdict(suspect) == [Verdict.REGRESSION]
    quiet = [_change(0.0, 0.01, higher_is_better=bool(i % 2)) for i in range(60)]
    verdicts = judge([suspect, *quiet], confidence=0.95)
    assert verdicts[0].verdict is Verdict.INCONCLUSIVE
    assert "61 comparisons" in (verdicts[0].reason or "")
    assert {one.verdict for one in verdicts[1:]} == {Verdict.PASS}


def test_false_regressions_at_the_margin_stay_within_the_family_level() -> None:
    # The worst case allowed: every true change sits exactly on the margin's end.
    rng, alarms = np.random.default_rng(0), 0
    for _ in range(400):
        data = rng.normal(-0.05, 0.1, size=(12, 20))
        changes = [_change(row.mean(), row.std(ddof=1) / np.sqrt(20)) for row in data]
        alarms += Verdict.REGRESSION in _verdict(*changes)
    assert alarms / 400 < 0.05


def test_the_number_of_prompts_that_decides_does_so_in_four_of_five_cases() -> None:
    rng, error = np.random.default_rng(1), 0.04
    (first,) = judge([_change(0.0, error)], confidence=0.95)
    assert first.times_more is not None
    num_units = math.ceil(20 * first.times_more)
    spread = error * np.sqrt(20 / num_units)
    passed = [
        _verdict(_change(rng.normal(0, spread), spread, num_units=num_units)) == [Verdict.PASS]
        for _ in range(600)
    ]
    assert 0.74 < np.mean(passed) < 0.88


def test_a_change_on_the_margins_end_can_not_be_decided_by_more() -> None:
    (found,) = judge([_change(-0.05, 0.01)], confidence=0.95)
    assert (found.verdict, found.times_more) == (Verdict.INCONCLUSIVE, None)


@pytest.mark.parametrize(
    ("change", "expected"),
    [(0.0, Verdict.PASS), (-0.05, Verdict.PASS), (-0.0625, Verdict.REGRESSION), (0.1, Verdict.IMPROVEMENT)],
)
def test_counts_are_judged_without_an_interval(change: float, expected: Verdict) -> None:
    effect = Effect(0.9, 0.9 + change, change, None, 16, Scale.DIFFERENCE)
    assert judge_exactly(effect, 0.05).verdict is expected
