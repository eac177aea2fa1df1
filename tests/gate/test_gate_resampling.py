from __future__ import annotations

import numpy as np
import pytest

from harness.gate.metric import Scale
from harness.gate.resampling import effect, median, sum_ratio


def _effect(base: np.ndarray, head: np.ndarray, scale: Scale = Scale.DIFFERENCE, **settings: int):
    ones = np.ones((len(base), 1))
    return effect(
        sum_ratio(base[:, None], ones),
        sum_ratio(head[:, None], ones),
        scale=scale,
        num_units=len(base),
        **{"num_resamples": 4000, "seed": 0, **settings},
    )


def test_ratio_of_products_of_sums_by_hand() -> None:
    above = np.array([[2.0, 3.0], [4.0, 5.0]])
    below = np.array([[1.0, 1.0], [1.0, 3.0]])
    figure = sum_ratio(above, below)(np.array([[1.0, 1.0], [2.0, 0.0], [0.0, 0.0]]))
    assert figure[:2] == pytest.approx([6 * 8 / (2 * 4), 4 * 6 / (2 * 2)])
    assert np.isnan(figure[2])


def test_weighted_median_is_the_median_of_the_repeated_rows() -> None:
    rng = np.random.default_rng(0)
    values, units = rng.normal(size=15), rng.integers(0, 4, size=15)
    weights = rng.multinomial(4, np.full(4, 0.25), size=50).astype(float)
    weights[0] = 1
    weights = weights[(weights[:, units].sum(1) > 0)]
    expected = [np.median(np.repeat(values, row[units].astype(int))) for row in weights]
    assert median(values, units)(weights) == pytest.approx(expected)


def test_standard_error_is_that_of_a_paired_mean() -> None:
    rng = np.random.default_rng(1)
    ease = rng.normal(10, 5, size=30)
    base, head = ease + rng.normal(0, 0.1, size=30), ease + 0.3 + rng.normal(0, 0.1, size=30)
    found = _effect(base, head)
    assert found.estimate == pytest.approx((head - base).mean())
    # Paired: the prompts' own spread, 5, cancels.
    assert found.standard_error == pytest.approx((head - base).std(ddof=1) / np.sqrt(30), rel=0.05)


def test_a_ratio_is_on_the_log_scale() -> None:
    base = np.array([1.0, 2.0, 3.0])
    found = _effect(base, base * 1.1, Scale.RATIO)
    assert found.change(found.estimate) == pytest.approx(0.1)
    assert found.standard_error == 0


def test_one_prompt_has_no_standard_error() -> None:
    assert _effect(np.array([1.0]), np.array([2.0])).standard_error is None


def test_equal_runs_have_no_spread_and_equal_seeds_the_same() -> None:
    values = np.random.default_rng(2).uniform(1, 2, size=9)
    same = _effect(values, values, Scale.RATIO)
    assert (same.estimate, same.standard_error) == (0, 0)
    other = values[::-1].copy()
    assert _effect(values, other, seed=3) == _effect(values, other, seed=3)


@pytest.mark.parametrize("bad", [0.0, float("nan"), float("inf"), -1.0])
def test_a_figure_without_a_ratio_is_refused(bad: float) -> None:
    base = np.array([1.0, 2.0])
    with pytest.raises(ValueError, match="ratio"):
        _effect(base, np.array([bad, bad]), Scale.RATIO)
