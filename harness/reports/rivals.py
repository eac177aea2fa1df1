"""One variant over another, written as every other ratio: with its interval, and judged by it."""

from __future__ import annotations

from harness.metrics.intervals import Interval
from harness.reports.labels import Row
from harness.reports.words import Verdict, interval_text, verdict


def ratio_text(found: Interval) -> str:
    """The ratio with its interval, `1.05x [1.02, 1.08]`."""
    return interval_text(_row(found))


def judged(found: Interval) -> Verdict:
    """`pays` if the whole interval lies above 1, `costs` if below, else `unclear`."""
    return verdict(_row(found))


def _row(found: Interval) -> Row:
    return {"speedup": found.estimate, "speedup_low": found.low, "speedup_high": found.high}
