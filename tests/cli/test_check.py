"""`python -m harness check`, and the same check before a cell is measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_runs import TinyRun

from harness.__main__ import main
from harness.results import load
from harness.runner import memory

KIB = 1024


def check(tiny: TinyRun, *more: str) -> int:
    return main(["check", *tiny.arguments(*more)])


def test_a_pair_that_fits(tiny: TinyRun, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tiny) == 0
    out = capsys.readouterr().out
    assert "300 tokens, equal one by one" in out
    assert "end tokens [2], pad token 0" in out
    assert "context: 256 tokens" in out
    assert "GiB" in out
    assert out.rstrip().endswith("fits")


def test_configuration_and_tokenizer_files_are_enough(
    tiny: TinyRun, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(tiny) == 0
    with_weights = capsys.readouterr().out
    for folder in (tiny.target, tiny.drafter):
        (folder / "model.safetensors").unlink()
    assert check(tiny) == 0
    without = capsys.readouterr().out
    assert without.split("needed")[0] == with_weights.split("needed")[0]
    assert main(tiny.arguments()) == 2  # measuring needs them


def test_a_sweep_is_checked_once_per_setting(tiny: TinyRun, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tiny, "-m", "sampling.temperature=0,1", "workload.max_output_tokens=8,16") == 0
    assert capsys.readouterr().out.count("pair tiny") == 2


def test_tokens_that_differ_are_named_before_anything_loads(
    tiny: TinyRun, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tiny.drafter / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    vocab = tokenizer["model"]["vocab"]
    first, second = (next(t for t, i in vocab.items() if i == wanted) for wanted in (50, 60))
    vocab[first], vocab[second] = 60, 50
    tokenizer["model"]["merges"] = []
    file.write_text(json.dumps(tokenizer))
    assert check(tiny) == 2
    assert "the first is id 50" in capsys.readouterr().err


def test_too_little_memory_is_told_with_remedies_and_an_exit_code(
    tiny: TinyRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: (100 * KIB, "cpu"))
    assert check(tiny, "workload.max_output_tokens=16") == 1
    out = capsys.readouterr().out
    assert "doesn't fit" in out
    assert out.index("a shorter context") < out.index("a smaller drafter") < out.index("a quantised drafter")


def test_a_cell_that_does_not_fit_fails_alone_unless_told_otherwise(
    tiny: TinyRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the first cell is planned with memory to spare, the second without
    answers = iter([(2**30, "cpu"), (100 * KIB, "cpu"), (100 * KIB, "cpu")])
    monkeypatch.setattr(memory, "free_bytes", lambda device: next(answers))
    sweep = ["-m", "workload.max_output_tokens=8,16"]
    assert main(tiny.arguments(*sweep)) == 1
    results = load(Path(tiny.folder) / "results" / "run")
    cells = results.cells.set_index("max_output_tokens")
    assert cells["status"].to_dict() == {8: "ok", 16: "failed"}
    assert "GiB are needed" in results.failures["error"].iloc[0]
    assert main(tiny.arguments("workload.max_output_tokens=16", "check_memory=false")) == 0


def test_the_simulator_loads_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "+sweep=simulated"]) == 0
    assert "loads no model" in capsys.readouterr().out


def test_a_misspelt_override_is_bad_input(tiny: TinyRun, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tiny, "workloda.num_prompts=2") == 2
    assert "workload" in capsys.readouterr().err
