"""A comparison as JUnit XML: one suite per cell, one case per check, and one for the whole."""

from __future__ import annotations

from io import BytesIO

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from harness.gate import words
from harness.gate.check import Check, Comparison
from harness.gate.verdict import Verdict

_GOOD = frozenset({Verdict.PASS, Verdict.IMPROVEMENT})
_SUITE = "harness.compare"


def junit_xml(comparison: Comparison) -> bytes:
    """The document, UTF-8 with its declaration.

    A regression is a failure; what couldn't be decided or compared is an error, so that no reader of the
    file counts it as passed; what isn't gated is skipped. The case `verdict` has the result of the whole.
    """
    document = JUnitXml(_SUITE)
    whole = TestSuite(f"{_SUITE}.overall")
    whole.add_testcase(_case("verdict", _SUITE, comparison.verdict, words.headline(comparison)))
    document.add_testsuite(whole)
    for cell in dict.fromkeys(check.cell for check in comparison.checks):
        suite = TestSuite(words.name(cell))
        for check in comparison.checks:
            if check.cell == cell:
                suite.add_testcase(_check_case(check))
        document.add_testsuite(suite)
    document.update_statistics()
    file = BytesIO()
    document.write(file)
    return file.getvalue()


def _check_case(check: Check) -> TestCase:
    title = f"{words.name(check.variant)}: {check.metric}"
    detail = (
        f"BASE {words.figure(check, check.base)}, HEAD {words.figure(check, check.head)}, "
        f"change {words.change(check)}, margin {words.margin(check)}"
    )
    if remark := words.remark(check):
        detail = f"{detail}; {remark}"
    if not check.gated:
        case = TestCase(title, classname=words.name(check.cell))
        case.result = [Skipped(f"not gated ({check.verdict}): {detail}")]
        return case
    return _case(title, words.name(check.cell), check.verdict, f"{check.verdict}: {detail}")


def _case(title: str, classname: str, verdict: Verdict, detail: str) -> TestCase:
    case = TestCase(title, classname=classname)
    if verdict in _GOOD:
        case.system_out = detail
    else:
        case.result = [Failure(detail) if verdict is Verdict.REGRESSION else Error(detail, str(verdict))]
    return case
