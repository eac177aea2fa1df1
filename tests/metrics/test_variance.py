from __future__ import annotations

import numpy as np
import pytest

from harness.metrics import paired_change, variance_components


def test_components_by_hand() -> None:
    # Means 1 and 3 (and no slope): within 4 x 0.25 / 1 degree left of 4 - 2 - 1; between 4 less half of that.
    found = variance_components(["a", "a", "b", "b"], [0.5, 1.5, 2.5, 3.5], [0, 0, 0, 0])
    assert found.repeats == pytest.approx(1.0)
    assert found.prompts == pytest.approx(np.sqrt((4 - 1.0) / 2))
    assert found.drift == 0
    assert found.total == pytest.approx(np.std([0.5, 1.5, 2.5, 3.5], ddof=1))


def test_what_was_put_in_comes_out() -> None:
    rng = np.random.default_rng(1)
    num_prompts, num_repeats = 300, 6
    prompts = np.tile(np.arange(num_prompts), num_repeats)
    times = np.arange(prompts.size) / prompts.size
    values = rng.normal(0, 0.3, num_prompts)[prompts] + rng.normal(0, 0.1, prompts.size) + 0.5 * times
    found = variance_components(prompts, values, times)
    assert found.prompts == pytest.approx(0.3, rel=0.1)
    assert found.repeats == pytest.approx(0.1, rel=0.05)
    assert found.drift == pytest.approx(0.5 / np.sqrt(12), rel=0.1)


def test_an_order_of_prompts_is_no_drift() -> None:
    prompts = np.tile(np.arange(50), 4)
    values = prompts / 50 + np.random.default_rng(0).normal(0, 0.01, 200)
    found = variance_components(prompts, values, np.arange(200))
    assert found.drift is not None
    assert found.drift < 0.005
    assert found.prompts == pytest.approx(np.std(np.arange(50) / 50, ddof=1), rel=0.02)


def test_one_repeat_cannot_be_split() -> None:
    found = variance_components(["a", "b", "c"], [1.0, 2.0, 4.0], [0, 1, 2])
    assert (found.prompts, found.repeats, found.drift) == (None, None, None)
    assert found.total == pytest.approx(np.std([1, 2, 4], ddof=1))


def test_paired_change_by_hand() -> None:
    found = paired_change([1, 2, 3], [10, 10, 10], [2, 3, 7], [10, 10, 10])
    assert found is not None
    assert (found.before, found.after) == (pytest.approx(0.2), pytest.approx(0.4))
    # equal denominators: Student's interval of the mean difference 0.1, 0.1, 0.4
    half = 4.302653 * np.std([0.1, 0.1, 0.4], ddof=1) / np.sqrt(3)
    assert (found.low, found.high) == (pytest.approx(0.2 - half), pytest.approx(0.2 + half))
    assert paired_change([1], [2], [1], [2]) is None
    assert paired_change([1, 1], [0, 0], [1, 1], [2, 2]) is None


def test_paired_change_covers() -> None:
    rng, hits = np.random.default_rng(3), 0
    for _ in range(400):
        alphas = rng.beta(6, 3, 12)
        tested = rng.integers(10, 60, (2, 12))
        accepted = rng.binomial(tested, [alphas, alphas - 0.1 * alphas])
        found = paired_change(accepted[0], tested[0], accepted[1], tested[1])
        assert found is not None
        hits += found.low <= -0.1 * 6 / 9 <= found.high
    assert 0.91 <= hits / 400 <= 0.985
