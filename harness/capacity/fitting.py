"""Least squares with no negative cost: how the seconds of a step follow from what the step does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

FloatArray = npt.NDArray[np.float64]

MAX_KNOTS = 8
_FAR = 1e9
_MIN_KNOT_SHARE = 0.02


@dataclass(frozen=True)
class Curve:
    """A piecewise linear curve through (knot, value), continued past its ends with their slopes.

    Attributes:
        knots: increasing places, at least one.
        values: seconds at the knots; one knot makes a constant.
    """

    knots: tuple[float, ...]
    values: tuple[float, ...]

    @cached_property
    def _extended(self) -> tuple[FloatArray, FloatArray]:
        """Knots and values with far ends on the outer segments."""
        far = np.array([self.knots[0] - _FAR, self.knots[-1] + _FAR])
        values = hat_basis(far, self.knots) @ np.array(self.values)
        return np.r_[far[0], self.knots, far[1]], np.r_[values[0], self.values, values[1]]

    def __call__(self, at: npt.ArrayLike) -> FloatArray:
        """Values at the places asked for, never negative."""
        return np.maximum(np.interp(np.asarray(at, dtype=np.float64), *self._extended), 0.0)


def hat_basis(at: FloatArray, knots: Sequence[float]) -> FloatArray:
    """Weights of the knots in a piecewise linear curve.

    Args:
        at: [...] places.
        knots: increasing.

    Returns:
        [..., num_knots]; rows sum to 1. Past an end the outer segment goes on, so weights may be negative.
    """
    places = np.asarray(knots, dtype=np.float64)
    weights = np.zeros((*at.shape, places.size))
    if places.size == 1:
        weights[..., 0] = 1.0
        return weights
    segment = np.clip(np.searchsorted(places, at, side="right") - 1, 0, places.size - 2)
    share = (at - places[segment]) / (places[segment + 1] - places[segment])
    np.put_along_axis(weights, segment[..., None], (1 - share)[..., None], axis=-1)
    np.put_along_axis(weights, segment[..., None] + 1, share[..., None], axis=-1)
    return weights


def knots_of(at: FloatArray, weights: FloatArray) -> tuple[float, ...]:
    """Places with enough data to bear a knot: at most `MAX_KNOTS`, both ends among them."""
    places, index = np.unique(at, return_inverse=True)
    share = np.bincount(index, weights) / weights.sum()
    bearing = places[share >= _MIN_KNOT_SHARE]
    ends = np.unique(np.concatenate([places[:1], bearing, places[-1:]]))
    if ends.size > MAX_KNOTS:
        ends = ends[np.unique(np.linspace(0, ends.size - 1, MAX_KNOTS).round().astype(int))]
    return tuple(float(place) for place in ends)


def fit_nonnegative(features: FloatArray, seconds: FloatArray, weights: FloatArray) -> FloatArray:
    """Coefficients, none negative, with the least weighted relative error.

    Args:
        features: [num_rows, num_features].
        seconds: [num_rows] not negative; rows near zero count absolutely, on the scale of the mean.
        weights: [num_rows] how many steps a row stands for.

    Returns:
        [num_features]; zeros where nothing was measured.
    """
    if not len(seconds) or not seconds.max() > 0:
        return np.zeros(features.shape[1])
    scale = np.sqrt(weights) / np.maximum(seconds, 0.05 * np.average(seconds, weights=weights))
    # columns of one size keep the solver from losing small coefficients
    size = np.maximum(np.abs(features * scale[:, None]).max(axis=0), 1e-300)
    found, _ = nnls(features * scale[:, None] / size, seconds * scale, maxiter=50 * features.shape[1] + 200)
    return np.asarray(found / size, dtype=np.float64)
