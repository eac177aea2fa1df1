"""The test of places against distributions known exactly."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from harness.metrics.uniformity import (
    MIN_TOKENS,
    NUM_BINS,
    detectable_distance,
    places,
    uniformity_p,
)

NUM_EXPERIMENTS = 1000


def drawn_places(
    truth: npt.NDArray[np.float64], claimed: npt.NDArray[np.float64], size: int, rng: np.random.Generator
) -> npt.NDArray[np.float64]:
    """Places, under `claimed`, of tokens that are drawn from `truth`."""
    tokens = rng.choice(len(truth), size=size, p=truth)
    above = np.array([claimed[claimed > mass].sum() for mass in claimed])
    ties = np.array([claimed[claimed == mass].sum() for mass in claimed])
    return places(above[tokens], ties[tokens], rng)


def test_places_of_tokens_from_their_own_distribution_pass_as_often_as_promised() -> None:
    rng = np.random.default_rng(0)
    claimed = np.array([0.55, 0.15, 0.15, 0.1, 0.05])
    p_values = [uniformity_p(drawn_places(claimed, claimed, 200, rng)) for _ in range(NUM_EXPERIMENTS)]
    for level in (0.01, 0.05, 0.5):
        spread = 4 * np.sqrt(level * (1 - level) / NUM_EXPERIMENTS)
        assert np.mean(np.array(p_values) < level) == pytest.approx(level, abs=spread)


def test_a_place_lies_inside_what_its_token_owns() -> None:
    points = places([0.0, 0.5, 1.0], [0.5, 0.25, 0.0], np.random.default_rng(0))
    assert 0 <= points[0] < 0.5 <= points[1] < 0.75
    assert points[2] == 1.0


@pytest.mark.parametrize("spread_evenly", [True, False])
@pytest.mark.parametrize("num_tokens", [100, 400])
def test_the_stated_distance_is_found_with_the_stated_power(num_tokens: int, spread_evenly: bool) -> None:
    significance = 0.001
    distance = detectable_distance(num_tokens, significance=significance)
    assert distance is not None
    share = np.full(NUM_BINS, 1 / NUM_BINS)
    if spread_evenly:  # two bins up, two down: hardest to see
        share += distance / 2 * np.array([1, 1, 0, -1, -1])
    else:
        share += distance * np.array([1, -0.25, -0.25, -0.25, -0.25])
    assert np.abs(share - 1 / NUM_BINS).sum() / 2 == pytest.approx(distance)
    rng = np.random.default_rng(1)
    bins = rng.choice(NUM_BINS, size=(NUM_EXPERIMENTS, num_tokens), p=share)
    points = (bins + rng.random(bins.shape)) / NUM_BINS
    power = np.mean([uniformity_p(row) < significance for row in points])
    assert power > 0.87


def test_more_tokens_find_smaller_distances_and_too_few_none() -> None:
    distances = [detectable_distance(n, significance=0.001) for n in (MIN_TOKENS, 500, 5000)]
    assert distances == sorted(distances, key=lambda d: d or 0, reverse=True)
    assert distances[0] == pytest.approx(np.sqrt(10) * distances[1])  # type: ignore[operator]
    assert detectable_distance(5, significance=0.001) is None
    assert detectable_distance(0, significance=0.001) is None
