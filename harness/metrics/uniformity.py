"""Do tokens come from the distribution they should come from? Judged by their places in it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.stats import chi2, chisquare, ncx2

NUM_BINS = 5
MIN_EXPECTED = 10
"""Tokens a bin must expect, so that the chi-square law holds far out in its tail."""

MIN_TOKENS = NUM_BINS * MIN_EXPECTED


def places(
    mass_above: Sequence[float], mass: Sequence[float], rng: np.random.Generator
) -> npt.NDArray[np.float64]:
    """Where each token lies in its own distribution, the likeliest tokens first.

    A token that owns the stretch [above, above + mass] of the unit interval gets a random point of it. If
    every token is drawn from its distribution, given all before it, these points are independent and uniform.

    Args:
        mass_above: [num_tokens] probability of likelier tokens.
        mass: [num_tokens] probability of the token itself.
        rng: draws the points.

    Returns:
        [num_tokens] in [0, 1].

    Source:
        Rosenblatt. Remarks on a Multivariate Transformation. Annals of Mathematical Statistics 23, 1952;
        randomised for discrete distributions.
    """
    above, own = np.asarray(mass_above, dtype=float), np.asarray(mass, dtype=float)
    return np.clip(above + own * rng.random(above.size), 0.0, 1.0)


def uniformity_p(points: npt.NDArray[np.float64]) -> float:
    """Pearson's test of uniformity in `NUM_BINS` equal bins.

    Args:
        points: [num_tokens] in [0, 1], at least `MIN_TOKENS`.

    Returns:
        The p-value.
    """
    counts, _ = np.histogram(points, bins=NUM_BINS, range=(0.0, 1.0))
    return float(chisquare(counts).pvalue)


def binned_distance(points: npt.NDArray[np.float64]) -> float:
    """Total variation distance between points in `NUM_BINS` equal bins and a uniform spread.

    Without any deviation it is about 0.8 / sqrt(num_tokens), not 0: the noise of the counts.

    Args:
        points: [num_tokens] in [0, 1], at least one.

    Returns:
        In [0, 1 - 1 / NUM_BINS].
    """
    counts, _ = np.histogram(points, bins=NUM_BINS, range=(0.0, 1.0))
    return float(np.abs(counts / counts.sum() - 1 / NUM_BINS).sum() / 2)


def detectable_distance(num_tokens: int, *, significance: float, power: float = 0.9) -> float | None:
    """The total variation distance from uniform that the test finds with probability `power`, or more.

    A distance d in the binned places gives the statistic a noncentrality of at least 4 n d^2, by
    Cauchy-Schwarz, however the deviation is spread over the bins.

    Args:
        num_tokens: n.
        significance: p-value below which the test speaks.
        power: probability of finding it.

    Returns:
        In (0, 1]; None where not even the largest distance would be found.
    """
    critical = chi2.isf(significance, NUM_BINS - 1)

    def missing(noncentrality: float) -> float:
        return float(ncx2.sf(critical, NUM_BINS - 1, noncentrality)) - power

    needed = brentq(missing, 1e-6, 1e4)
    distance = math.sqrt(needed / (4 * num_tokens)) if num_tokens else math.inf
    # the bins can't be further from uniform than all tokens in one of them
    return distance if distance <= 1 - 1 / NUM_BINS else None
