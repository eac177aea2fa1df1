"""What a defect does to a command: exit code, terminal, results and report say the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from runner.test_losslessness import accepts_all
from tiny_runs import TinyRun, write_peaked_run

from harness.__main__ import main
from harness.engine import loop
from harness.results import load

PATIENT = ("measure.max_time_s=600", "measure.lossless.max_time_s=600")
LONGER = (*PATIENT, "workload.max_output_tokens=32", "workload.ignore_eos=true")


@pytest.fixture
def tiny(tmp_path: Path, make_tiny_llama: Callable[..., Path]) -> TinyRun:
    return write_peaked_run(tmp_path, make_tiny_llama)


def report_of(tiny: TinyRun) -> str:
    return (tiny.folder / "reports" / "run" / "index.html").read_text(encoding="utf-8")


def test_a_defect_ends_with_its_own_exit_code(
    tiny: TinyRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(loop, "judge_choices", accepts_all)
    assert main(tiny.arguments(*LONGER)) == 5
    found = capsys.readouterr()
    assert "DEFECT: 1 variant that should be lossless" in found.out
    assert "exit code 5" in found.err
    results = load(tiny.folder / "results" / "run")
    assert results.lossless.set_index("variant_id")["verdict"]["draft_model-k2"] == "defect"
    assert (results.divergences["verdict"] == "defect").any()
    page = report_of(tiny)
    assert "Where greedy outputs part" in page
    assert "a defect: draft model" in page
    # again, from what is stored
    assert main(tiny.arguments(*LONGER)) == 5


def test_without_one_the_run_says_that_it_looked(tiny: TinyRun, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(tiny.arguments(*LONGER)) == 0
    assert "Losslessness: 1 of 1 write exactly the baseline's tokens." in capsys.readouterr().out
    assert "equal, the control" in report_of(tiny)
    assert main(tiny.arguments(*LONGER, "sampling.temperature=1", "workload.max_output_tokens=64")) == 0
    assert "1 of 1 follow the target's distribution (a distance of 0." in capsys.readouterr().out
    assert "consistent, the control" in report_of(tiny)
