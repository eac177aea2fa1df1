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
    assert "Losslessness: 1 of 1 variants write exactly the baseline's tokens." in capsys.readouterr().out
    assert "equal, the control" in report_of(tiny)
    assert main(tiny.arguments(*LONGER, "sampling.temperature=1", "workload.max_output_tokens=64")) == 0
    assert "1 of 1 variants follow the target's distribution (a distance of 0." in capsys.readouterr().out
    assert "consistent, the control" in report_of(tiny)


def test_typical_acceptance_is_no_defect_and_says_what_it_changes(
    tiny: TinyRun, capsys: pytest.CaptureFixture[str]
) -> None:
    sampled = (
        *PATIENT,
        "sampling.temperature=1",
        "workload.max_output_tokens=64",
        "workload.ignore_eos=true",
    )
    assert main(tiny.arguments(*sampled, "method.verification=typical")) == 0
    out = capsys.readouterr().out
    assert "1 isn't lossless by design: sampled tokens lie up to 0." in out
    assert "not lossless" in next(line for line in out.splitlines() if "draft model typical0.09" in line)
    results = load(tiny.folder / "results" / "run")
    row = results.lossless.set_index("variant_id").loc["draft_model-typical0.09-k2"]
    assert (row["verdict"], bool(row["lossless"])) == ("lossy", False)
    assert row["distance"] > 0.2
    assert "not lossless by design" in report_of(tiny)
    applied = results.records[row["cell_id"]].variants[1]["applied"]
    assert (applied["verification"], applied["epsilon"]) == ("typical", 0.09)
    # nothing but the likeliest token is plausible at temperature 0
    assert main(tiny.arguments(*LONGER, "method.verification=typical")) == 0
    assert "by design: 0 of 4 greedy outputs differ from the baseline's." in capsys.readouterr().out
