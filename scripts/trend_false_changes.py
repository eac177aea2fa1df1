#!/usr/bin/env python
"""How often does the trend page mark a change where there is none, and how often where there is one?

Series are normal noise, 5% of the values outliers ten standard deviations off. Plain least squares, with the
usual penalty, stands beside it.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
import numpy.typing as npt
from ruptures import Pelt

from harness.metrics.changes import change_points

Array = npt.NDArray[np.float64]


def series(num_values: int, rng: np.random.Generator, *, shift: float = 0.0, outliers: float = 0.05) -> Array:
    """Noise of standard deviation 1; from the middle on `shift` higher."""
    values = rng.normal(0.0, 1.0, num_values)
    hit = rng.random(num_values) < outliers
    values[hit] += 10.0 * rng.choice([-1.0, 1.0], int(hit.sum()))
    values[num_values // 2 :] += shift
    return values


def least_squares(values: Array) -> list[int]:
    """The plain way: squared error, penalty 2 log(n) times the variance of neighbours' differences."""
    variance = float(np.median(np.abs(np.diff(values))) / 0.6745) ** 2 / 2
    search = Pelt(model="l2", min_size=3, jump=1).fit(values[:, None])
    ends: list[int] = search.predict(pen=2 * np.log(values.size) * variance)
    return ends[:-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=500, help="of each kind (default: %(default)s)")
    parser.add_argument("--lengths", type=int, nargs="+", default=[10, 20, 40, 80])
    options = parser.parse_args()
    print(f"{'values':>6s} {'false, ranks':>13s} {'false, squares':>15s} {'found, 2 sd':>12s} {'3 sd':>6s}")
    for num_values in options.lengths:
        rng = np.random.default_rng(num_values)
        flat = [series(num_values, rng) for _ in range(options.series)]
        stepped = {
            shift: [series(num_values, rng, shift=shift) for _ in range(options.series)]
            for shift in (2.0, 3.0)
        }
        false = np.mean([bool(change_points(one)) for one in flat])
        plain = np.mean([bool(least_squares(one)) for one in flat])
        found = [np.mean([_near_middle(one) for one in stepped[shift]]) for shift in (2.0, 3.0)]
        print(f"{num_values:6d} {false:13.1%} {plain:15.1%} {found[0]:12.1%} {found[1]:6.1%}", flush=True)
    return 0


def _near_middle(values: Array) -> bool:
    middle = values.size // 2
    return any(abs(change - middle) <= 2 for change in change_points(values))


if __name__ == "__main__":
    sys.exit(main())
