from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.errors import ConfigError
from harness.gate.metric import METRICS, Tier
from harness.gate.settings import gate_names, load_gate, parse_gate

GOOD = {"metrics": {"speedup": {"margin": 0.05}}}


@pytest.mark.parametrize("name", gate_names())
def test_shipped_gates_load_and_never_gate_an_absolute_time_or_a_tail(name: str) -> None:
    gate = load_gate(name)
    assert gate.name == name
    gated = {METRICS[metric].tier for metric, one in gate.metrics.items() if one.gated}
    assert Tier.TIGHT in gated
    assert gated <= {Tier.TIGHT, Tier.TIME_RATIO}


def test_strict_is_nowhere_looser_than_default() -> None:
    default, strict = load_gate("default").metrics, load_gate("strict").metrics
    for name, one in default.items():
        if one.margin is not None:
            assert strict[name].margin is not None
            assert strict[name].margin < one.margin


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "confidence: 0.9\nmetrics:\n  speedup: {margin: 0.1}\n"
        "  ttft_p50_s: {margin: 0.2}\n  ttft_p99_s:\n  decode_tok_per_s: {margin: 0.1, gated: true}\n"
    )
    gate = load_gate(str(file))
    assert (gate.name, gate.confidence) == ("mine", 0.9)
    assert {name: one.gated for name, one in gate.metrics.items()} == {
        "speedup": True,
        "ttft_p50_s": False,
        "ttft_p99_s": False,
        "decode_tok_per_s": True,
    }


@pytest.mark.parametrize(
    ("content", "field", "says"),
    [
        ({"metrics": {"speedpu": {"margin": 0.1}}}, "metrics.speedpu", "'speedup'"),
        ({**GOOD, "confidense": 0.9}, "confidense", "'confidence'"),
        ({"metrics": {"speedup": {"margn": 0.1}}}, "metrics.speedup.margn", "'margin'"),
        ({"metrics": {"speedup": {}}}, "metrics.speedup.margin", "None"),
        ({"metrics": {"speedup": {"margin": -0.1}}}, "metrics.speedup.margin", "-0.1"),
        ({"metrics": {"speedup": {"margin": float("nan")}}}, "metrics.speedup.margin", "nan"),
        ({"metrics": {"speedup": {"margin": True}}}, "metrics.speedup.margin", "True"),
        ({"metrics": {"speedup": {"margin": "5%"}}}, "metrics.speedup.margin", "5%"),
        ({"metrics": {"speedup": {"margin": 0.1, "gated": "yes"}}}, "metrics.speedup.gated", "yes"),
        ({"metrics": {"speedup": 0.05}}, "metrics.speedup", "margin: 0.03"),
        ({"metrics": {"speedup": {"margin": 0.1, "gated": False}}}, "metrics", "gated: true"),
        ({"metrics": {"ttft_p99_s": {"margin": 0.1}}}, "metrics.ttft_p99_s", "never gated"),
        ({"metrics": {"ttft_p99_s": {"gated": True}}}, "metrics.ttft_p99_s", "never gated"),
        ({"metrics": {}}, "metrics", "speedup"),
        ({"confidence": 0.9}, "metrics", "one metric"),
        ({**GOOD, "confidence": 95}, "confidence", "95"),
        ({**GOOD, "num_resamples": 10}, "num_resamples", "10"),
        ({**GOOD, "seed": 1.5}, "seed", "1.5"),
        ({**GOOD, "allow_new": 1}, "allow_new", "1"),
    ],
)
def test_what_is_wrong_is_named(content: dict[str, Any], field: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_gate(content, name="test")
    assert caught.value.field == field
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "text", ["- a\n", "metrics: [\n", "a: 1\na: 2\n", "", "metrics: {speedup: ${nope}}\n"]
)
def test_files_that_are_no_gate_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "gate.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError):
        load_gate(str(file))


def test_a_misspelt_gate_is_guessed_and_a_missing_file_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'strict'"):
        load_gate("strcit")
    with pytest.raises(ConfigError, match=r"none\.yaml"):
        load_gate(str(tmp_path / "none.yaml"))
