"""The script that measures how often intervals hold the truth, on few experiments."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

import interval_coverage

from harness.metrics import Interval


def test_intervals_cover_the_simulators_truth_about_as_often_as_they_say() -> None:
    drawn = interval_coverage.draw("all together", num_experiments=80, num_prompts=8, output_tokens=24)
    for interval, names in interval_coverage.FIGURES.values():
        truth = interval_coverage.truth_of(drawn, interval, names)
        share, half_width = interval_coverage.coverage(drawn, interval, names, truth)
        assert 0.86 <= share <= 1.0
        assert 0.01 < half_width < 1.0


def test_an_interval_that_is_too_short_is_found_out() -> None:
    drawn = interval_coverage.draw("independent noise", num_experiments=80, num_prompts=8, output_tokens=24)
    interval, names = interval_coverage.FIGURES["speedup"]

    def halved(*columns: np.ndarray) -> Interval:
        found = interval(*columns)
        assert found.estimate is not None
        assert found.low is not None
        assert found.high is not None
        ends = ((found.estimate + found.low) / 2, (found.estimate + found.high) / 2)
        return Interval(found.estimate, *ends, 0.95, found.num_units)

    share, _ = interval_coverage.coverage(
        drawn, halved, names, interval_coverage.truth_of(drawn, interval, names)
    )
    assert share < 0.86


def test_experiments_with_fewer_prompts_are_the_first_of_the_same() -> None:
    drawn = interval_coverage.draw("drift", num_experiments=2, num_prompts=4, output_tokens=16)
    assert drawn.first(3).seconds == pytest.approx(drawn.seconds[:, :3])
    # the machine gets slower, so later prompts take longer
    assert drawn.baseline_s[:, -1].mean() > drawn.baseline_s[:, 0].mean()
