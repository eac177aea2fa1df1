"""Where a figure's spread comes from: the prompts, the repeats of a prompt, or the drift of the machine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Components:
    """Standard deviations by source, in the values' unit; None where the design can't tell.

    Attributes:
        total: of all values.
        prompts: between the true values of prompts.
        repeats: between repeats of one prompt, drift taken out.
        drift: of the straight line that runs through the repeats of all prompts over time.
    """

    total: float | None
    prompts: float | None
    repeats: float | None
    drift: float | None


def variance_components(prompts: npt.ArrayLike, values: npt.ArrayLike, times: npt.ArrayLike) -> Components:
    """Split the spread of values by source.

    The slope over time is that within prompts, so that an order in which easy prompts come first isn't taken
    for drift. What is left within prompts is the repeats'; what the means of prompts spread more than that
    explains is the prompts' own.

    Args:
        prompts: [num_values] label of the prompt.
        values: [num_values], logarithms where relative spreads are meant.
        times: [num_values] when each was measured.

    Source: analysis of variance of a random-effects model with a covariate; Searle, Casella and McCulloch,
    "Variance Components", 1992, chapter 3.
    """
    y, t = (np.asarray(one, dtype=np.float64) for one in (values, times))
    labels, index, sizes = np.unique(np.asarray(prompts), return_inverse=True, return_counts=True)
    total = float(y.std(ddof=1)) if y.size > 1 else None
    degrees = y.size - labels.size - 1
    if degrees < 1:
        return Components(total, None, None, None)
    centred_y, centred_t = (one - _means(one, index, sizes)[index] for one in (y, t))
    spread_t = float(centred_t @ centred_t)
    slope = float(centred_t @ centred_y) / spread_t if spread_t else 0.0
    within = float(np.sum(np.square(centred_y - slope * centred_t))) / degrees
    return Components(
        total=total,
        prompts=_between(y - slope * t, index, sizes, within),
        repeats=float(np.sqrt(within)),
        drift=float(abs(slope) * t.std()),
    )


def _between(
    y: FloatArray, index: npt.NDArray[np.intp], sizes: npt.NDArray[np.intp], within: float
) -> float | None:
    if sizes.size < 2:
        return None
    means = _means(y, index, sizes)
    between = float(np.sum(sizes * np.square(means - y.mean()))) / (sizes.size - 1)
    size = (y.size - float(np.sum(np.square(sizes))) / y.size) / (sizes.size - 1)
    return float(np.sqrt(max(0.0, (between - within) / size)))


def _means(values: FloatArray, index: npt.NDArray[np.intp], sizes: npt.NDArray[np.intp]) -> FloatArray:
    means: FloatArray = np.bincount(index, weights=values) / sizes
    return means
