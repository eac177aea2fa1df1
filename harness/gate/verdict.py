"""What a comparison can say, and the exit code that says the same."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Verdict(StrEnum):
    """What was found, for one check or for the whole comparison."""

    PASS = "pass"
    IMPROVEMENT = "improvement"
    REGRESSION = "regression"
    ERROR = "error"
    INCONCLUSIVE = "inconclusive"
    INCOMPARABLE = "incomparable"
    REPORTED = "reported"

    @property
    def exit_code(self) -> int:
        """The code of a command that ends with this verdict."""
        return _EXIT_CODES[self]

    @property
    def severity(self) -> int:
        """Its place in a list that starts with the worst."""
        return _WORST_FIRST.index(self)


_EXIT_CODES = {
    Verdict.PASS: 0,
    Verdict.IMPROVEMENT: 0,
    Verdict.REGRESSION: 1,
    Verdict.ERROR: 2,
    Verdict.INCONCLUSIVE: 3,
    Verdict.INCOMPARABLE: 4,
    # A figure that is only shown decides nothing: a comparison made of such figures compared nothing.
    Verdict.REPORTED: 4,
}
_WORST_FIRST = (
    Verdict.ERROR,
    Verdict.REGRESSION,
    Verdict.INCOMPARABLE,
    Verdict.INCONCLUSIVE,
    Verdict.IMPROVEMENT,
    Verdict.PASS,
    Verdict.REPORTED,
)


def overall(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict of a comparison: the worst of its gated checks; nothing gated is incomparable."""
    return min(verdicts, key=lambda verdict: verdict.severity, default=Verdict.INCOMPARABLE)
