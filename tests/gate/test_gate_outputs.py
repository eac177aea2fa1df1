from __future__ import annotations

import html
import json
import re
from collections import Counter
from xml.etree import ElementTree

import pytest
from gate_runs import gate, judged, made_up
from synthetic_results import Truth

from harness.gate.check import Check, Comparison
from harness.gate.comparison import compare
from harness.gate.document import json_text
from harness.gate.judging import Judgement
from harness.gate.junit import junit_xml
from harness.gate.markdown import inert, markdown_text
from harness.gate.settings import MetricSettings
from harness.gate.terminal import terminal_text
from harness.gate.verdict import Verdict

HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(1)> | a | `b` **c** _d_ $e$ [f](https://evil.example) "
    "![g](x.png) @someone #12 www.evil.example ]]> --> &amp; \"q\" 'r' \x00\x1b[31m\r\n## h\n| - |"
    "\ufffe\ud800"
)
NUMBERS = {"base": 0.7, "head": 0.6, "margin": 0.01}


def _comparison(*verdicts: Verdict, text: str = "x", gated: bool = True) -> Comparison:
    checks = [
        Check(text, text, "acceptance_rate", verdict, gated=gated, reason=text, num_prompts=8, **NUMBERS)
        for verdict in verdicts
    ]
    return Comparison(text, text, gate(), checks, (text,))


OUTCOMES = {
    "pass": _comparison(Verdict.PASS),
    "improvement": _comparison(Verdict.PASS, Verdict.IMPROVEMENT),
    "regression": _comparison(Verdict.PASS, Verdict.REGRESSION, Verdict.INCOMPARABLE),
    "inconclusive": _comparison(Verdict.PASS, Verdict.INCONCLUSIVE),
    "incomparable": _comparison(Verdict.INCONCLUSIVE, Verdict.INCOMPARABLE),
    "nothing gated": _comparison(Verdict.REGRESSION, Verdict.PASS, gated=False),
    "nothing at all": _comparison(),
    "error": Comparison("a", "b", None, error="no such folder"),
}
CODES = {"pass": 0, "improvement": 0, "regression": 1, "error": 2, "inconclusive": 3, "incomparable": 4}


@pytest.mark.parametrize("name", OUTCOMES)
def test_every_output_tells_the_same_verdict_and_exit_code(name: str) -> None:
    found = OUTCOMES[name]
    word = name if name in CODES else "incomparable"
    last = terminal_text(found).splitlines()[-1]
    assert last.startswith(f"{word}: ")
    assert last.endswith(f"(exit code {CODES[word]})")
    document = json.loads(json_text(found))
    assert (document["verdict"], document["exit_code"]) == (word, CODES[word])
    assert f" {word}&#58; " in markdown_text(found).splitlines()[0]
    assert f"(exit code {CODES[word]})" in markdown_text(found).splitlines()[0]
    root = ElementTree.fromstring(junit_xml(found))
    bad = int(root.get("failures", "")) + int(root.get("errors", ""))
    assert (bad == 0) is (CODES[word] == 0)
    assert (int(root.get("failures", "")) > 0) is (word == "regression")
    assert found.verdict.exit_code == CODES[word]


def test_junit_counts_every_check_once() -> None:
    root = ElementTree.fromstring(junit_xml(OUTCOMES["regression"]))
    cases = list(root.iter("testcase"))
    assert len(cases) == 1 + 3 == int(root.get("tests", ""))
    kinds = Counter(child.tag for case in cases for child in case)
    # The overall verdict and the metric itself; incomparable is an error.
    assert (kinds["failure"], kinds["error"]) == (2, 1)
    ungated = ElementTree.fromstring(junit_xml(OUTCOMES["nothing gated"]))
    assert (ungated.get("skipped"), ungated.get("failures"), ungated.get("errors")) == ("2", "0", "1")


def test_hostile_text_is_inert_in_xml() -> None:
    found = _comparison(*Verdict, text=HOSTILE)
    root = ElementTree.fromstring(junit_xml(found))
    tags = {element.tag for element in root.iter()}
    assert tags == {"testsuites", "testsuite", "testcase", "failure", "error", "system-out"} | (
        tags & {"skipped"}
    )
    text = "".join(value for element in root.iter() for value in element.attrib.values())
    assert "<script>" in text
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f]", text)


def test_hostile_text_is_inert_in_markdown() -> None:
    text = markdown_text(_comparison(*Verdict, text=HOSTILE))
    body = text.replace("<details><summary>", "").replace("</summary>", "").replace("</details>", "")
    assert "<" not in body
    assert "`" not in body
    assert "](" not in body
    assert "**" not in body
    assert "$" not in body
    assert "www." not in body
    assert "://" not in body
    assert not re.search(r"(?<!&)#(?!#? )\w", body)
    rows = [line for line in body.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {10}
    shown = html.unescape(body)
    assert "@someone" not in shown
    assert "<script>alert(1)</script>" in shown
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", shown)


def test_hostile_text_is_one_clean_line_on_a_terminal_and_valid_json() -> None:
    found = _comparison(*Verdict, text=HOSTILE)
    text = terminal_text(found, every_check=True)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text)
    assert len(text.splitlines()) == 1 + 2 + 2 * len(Verdict) + 1 + 2
    document = json.loads(json_text(found))
    assert len(document["checks"]) == len(Verdict)
    assert "\x1b" not in document["base"]


def test_plain_words_stay_readable() -> None:
    assert inert("tokens_per_forward +1.2% [-1, +3]").startswith("tokens_per_forward +1.2% &#91;-1, +3")


def test_json_holds_every_figure_and_no_nan() -> None:
    base = made_up(num_prompts=4, truth=Truth(luck=1))
    head = made_up(num_prompts=4, seed=1, truth=Truth(luck=1, noise=0.1))
    metrics = dict(gate().metrics) | {"tpot_p99_s": MetricSettings(), "ttft_p50_s": MetricSettings(0.1)}
    found = compare(base, head, gate(metrics))
    document = json.loads(json_text(found), parse_constant=lambda name: pytest.fail(name))
    assert document["format_version"] == 1
    assert document["gate"]["metrics"]["speedup"] == {"margin": 0.05, "gated": True}
    assert sum(document["counts"].values()) == sum(check["gated"] for check in document["checks"])
    for check, row in zip(found.checks, document["checks"], strict=True):
        assert row["base"] == check.base
        assert (row["needed_prompts"] is not None) <= (row["verdict"] == "inconclusive")


def test_the_terminal_names_what_failed_and_folds_the_rest() -> None:
    base = made_up(truth=Truth(luck=1))
    head = made_up(truth=Truth(luck=1, slowdown={"draft_model-k3": 1.2}))
    found = judged(base, head)
    text = terminal_text(found)
    assert "draft_model-k3  speedup" in text
    assert "draft_model-k1" not in text
    assert "draft_model-k1" in terminal_text(found, every_check=True)
    assert "10 gated checks: 8 pass, 2 regression; 8 checks aren't listed here" in text
    assert "-16.7%" in text
    assert "±5%" in text


def test_an_undecided_check_is_written_with_what_would_decide() -> None:
    check = Check("x", "v", "speedup", Verdict.INCONCLUSIVE, num_prompts=10, num_repeats=2, **NUMBERS)
    decided = check.judged(Judgement(Verdict.INCONCLUSIVE, -0.2, 0.1, times_more=3.2))
    text = terminal_text(Comparison("a", "b", gate(), [decided]))
    assert "about 32 prompts instead of 10" in text
    assert "7 repeats instead of 2" in text
    never = check.judged(Judgement(Verdict.INCONCLUSIVE, -0.2, 0.1))
    assert "too close to the margin" in terminal_text(Comparison("a", "b", gate(), [never]))


def test_long_lists_are_cut_and_say_so() -> None:
    many = _comparison(*[Verdict.INCONCLUSIVE] * 60, Verdict.REGRESSION)
    lines = terminal_text(many).splitlines()
    assert "regression" in lines[3]
    assert "21 checks aren't listed here" in lines[-2]
