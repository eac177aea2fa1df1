"""Where a series of measurements changes its level, told apart from outliers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

FEWEST_VALUES = 8
_LEAST_SEGMENT = 3
_PENALTY_PER_LOG = 2.5


def change_points(values: npt.ArrayLike) -> list[int]:
    """Indices at which a new level begins.

    Values are replaced by their ranks, so an outlier counts for no more than its place in the order; a level
    needs at least three of them. The penalty was chosen by false changes in series without any, 5% of their
    values outliers: docs/trend.md has the rates.

    Args:
        values: [num_values] in order of time, finite.

    Returns:
        In order, each between 3 and num_values - 3; none for fewer than `FEWEST_VALUES` values.

    Raises:
        ImportError: the package `ruptures` isn't installed.

    Source: rank statistic of Lung-Yut-Fong, Levy-Leduc and Cappe 2015; search by PELT, Killick, Fearnhead and
    Eckley 2012; both in the package `ruptures` (Truong, Oudre and Vayatis 2020).
    """
    series = np.asarray(values, dtype=np.float64)
    # equal values have ranks without spread, which the statistic divides by
    if series.size < FEWEST_VALUES or np.ptp(series) == 0:
        return []
    from ruptures import Pelt

    search = Pelt(model="rank", min_size=_LEAST_SEGMENT, jump=1).fit(series[:, None])
    ends: Sequence[int] = search.predict(pen=_PENALTY_PER_LOG * float(np.log(series.size)))
    return [int(end) for end in ends[:-1]]
