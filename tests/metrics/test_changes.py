from __future__ import annotations

import numpy as np
import pytest

from harness.metrics.changes import change_points


def noise(num_values: int, rng: np.random.Generator, *, outliers: float = 0.05) -> np.ndarray:
    values = rng.normal(0, 1, num_values)
    hit = rng.random(num_values) < outliers
    values[hit] += 10 * rng.choice([-1, 1], int(hit.sum()))
    return values


def test_a_step_is_found_where_it_is() -> None:
    values = noise(30, np.random.default_rng(0), outliers=0.0)
    values[18:] += 6
    assert change_points(values) == [18]


def test_two_steps_and_their_places() -> None:
    values = np.repeat([0.60, 0.55, 0.62], 20) + np.random.default_rng(1).normal(0, 0.004, 60)
    assert change_points(values) == [20, 40]


@pytest.mark.parametrize("place", [0, 14, 29])
def test_a_lone_outlier_is_no_change(place: int) -> None:
    values = noise(30, np.random.default_rng(2), outliers=0.0)
    values[place] += 1000
    assert change_points(values) == []


def test_too_few_or_equal_values_have_no_change() -> None:
    assert change_points([0, 0, 0, 9, 9, 9]) == []
    assert change_points([0.61] * 40) == []
    assert change_points([]) == []


def test_series_without_a_change_seldom_show_one() -> None:
    rng = np.random.default_rng(3)
    assert sum(bool(change_points(noise(30, rng))) for _ in range(150)) <= 12


def test_a_change_of_three_standard_deviations_is_mostly_found() -> None:
    rng, found = np.random.default_rng(4), 0
    for _ in range(60):
        values = noise(30, rng)
        values[15:] -= 3
        found += any(abs(change - 15) <= 2 for change in change_points(values))
    assert found >= 48
