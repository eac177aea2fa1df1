from __future__ import annotations

import numpy as np
import pytest

from harness.capacity.fitting import MAX_KNOTS, Curve, fit_nonnegative, hat_basis, knots_of


def test_a_curve_goes_through_its_knots_and_on() -> None:
    curve = Curve((1.0, 4.0, 16.0), (2.0, 5.0, 29.0))
    np.testing.assert_allclose(curve([1, 2.5, 4, 10, 16, 20]), [2, 3.5, 5, 17, 29, 37])
    assert curve(-5.0) == 0.0  # seconds are never negative
    assert Curve((3.0,), (0.7,))([0, 100]).tolist() == [0.7, 0.7]


def test_hat_weights_sum_to_one() -> None:
    weights = hat_basis(np.array([0.0, 1.0, 3.0, 9.0]), (1.0, 2.0, 4.0))
    np.testing.assert_allclose(weights.sum(axis=1), 1.0)
    np.testing.assert_allclose(weights @ [1.0, 2.0, 4.0], [0.0, 1.0, 3.0, 9.0])


def test_knots_are_few_and_borne_by_data() -> None:
    at = np.repeat(np.arange(1.0, 41.0), 10)
    knots = knots_of(at, np.ones_like(at))
    assert len(knots) <= MAX_KNOTS
    assert (knots[0], knots[-1]) == (1.0, 40.0)
    rare = knots_of(np.array([1.0, 2.0, 3.0]), np.array([100.0, 0.5, 100.0]))
    assert rare == (1.0, 3.0)


def test_coefficients_come_back_and_are_never_negative() -> None:
    rng = np.random.default_rng(0)
    features = np.column_stack([np.ones(200), rng.uniform(1, 50, 200), rng.uniform(0, 1e6, 200)])
    truth = np.array([0.01, 0.002, 3e-9])
    found = fit_nonnegative(features, features @ truth * rng.normal(1, 0.01, 200), np.ones(200))
    np.testing.assert_allclose(found[:2], truth[:2], rtol=0.05)
    np.testing.assert_allclose(found[2], truth[2], rtol=0.2)
    falling = fit_nonnegative(features[:, :2], 1.0 - 0.01 * features[:, 1], np.ones(200))
    assert (falling >= 0).all()
    assert fit_nonnegative(features, np.zeros(200), np.ones(200)).tolist() == [0.0, 0.0, 0.0]


def test_weights_count() -> None:
    features, seconds = np.ones((2, 1)), np.array([1.0, 2.0])
    assert fit_nonnegative(features, seconds, np.array([1e6, 1.0]))[0] == pytest.approx(1.0, rel=1e-3)
