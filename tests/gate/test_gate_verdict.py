from __future__ import annotations

import pytest

from harness.gate.verdict import Verdict, overall

PASS, BETTER, WORSE = Verdict.PASS, Verdict.IMPROVEMENT, Verdict.REGRESSION
UNKNOWN, NONE, ERROR = Verdict.INCONCLUSIVE, Verdict.INCOMPARABLE, Verdict.ERROR


def test_every_verdict_has_its_own_exit_code_and_only_good_ones_have_zero() -> None:
    codes = {verdict: verdict.exit_code for verdict in (PASS, WORSE, ERROR, UNKNOWN, NONE)}
    assert codes == {PASS: 0, WORSE: 1, ERROR: 2, UNKNOWN: 3, NONE: 4}
    assert BETTER.exit_code == 0
    assert Verdict.REPORTED.exit_code != 0


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([], NONE),
        ([Verdict.REPORTED], Verdict.REPORTED),
        ([PASS, PASS], PASS),
        ([PASS, BETTER], BETTER),
        ([PASS, BETTER, UNKNOWN], UNKNOWN),
        ([PASS, UNKNOWN, NONE], NONE),
        ([NONE, WORSE, UNKNOWN, PASS], WORSE),
        ([WORSE, ERROR], ERROR),
    ],
)
def test_the_worst_check_decides(found: list[Verdict], expected: Verdict) -> None:
    assert overall(found) is expected
