"""`python -m harness plan`: from a results folder to pages, tables and errors."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "reports"))

from page_reader import PageReader
from simulated_cells import measured, simulated
from tiny_runs import TinyRun

from harness.__main__ import main
from harness.config.schema import MethodConfig
from harness.config.simulated import SimulatorConfig

QUICK = ["simulation.num_requests=100", "simulation.num_seeds=2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Batches of 1 and 8, in which drafting stops paying."""
    truth = SimulatorConfig(step_s=0.02, verify_slope=0.12, batch_slope=0.02, step_noise=0.03)
    cells = [
        simulated(batch_size=b, method=MethodConfig(k=[2, 4]), simulator=truth, workload__num_prompts=16)
        for b in (1, 8)
    ]
    return measured(tmp_path_factory.mktemp("plan"), *cells).path


@pytest.fixture(scope="module")
def planned(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out") / "nested"
    assert main(["plan", str(folder), "--out", str(out), "traffic.requests_per_s=1000000", *QUICK]) == 0
    return out


def test_the_page_says_what_to_run_and_loads_nothing(planned: Path) -> None:
    html = (planned / "plan.html").read_text()
    page = PageReader(html)
    titles = [line for line in (planned / "plan.md").read_text().splitlines() if line.startswith("## ")]
    assert len(titles) == len(page.sections)
    assert list(page.sections) == [
        "summary",
        "fleets",
        "load",
        "switching",
        "sensitivity",
        "calibration",
        "assumptions",
    ]
    assert "Run " in page.sections["summary"]
    assert "memory sets no bound" in page.sections["summary"].lower()
    assert "switched off" in page.sections["fleets"]
    assert "twice the traffic" in page.sections["sensitivity"]
    # not validated yet: a line names the command
    assert "plan validate" in html
    assert len([svg for svg in page.svgs if svg["class"] == "plot"]) == 2
    assert not [link for link in page.links if not link.startswith("#")]
    assert "nan" not in html.lower().replace("finance", "")


def test_a_plan_can_be_written_in_chinese(folder: Path, planned: Path, tmp_path: Path) -> None:
    command = ["plan", str(folder), "--out", str(tmp_path), "traffic.requests_per_s=1000000", *QUICK]
    assert main([*command, "--language", "zh"]) == 0
    assert '<html lang="zh-Hans">' in (tmp_path / "plan.html").read_text()
    told = (tmp_path / "plan.md").read_text().splitlines()
    english = re.compile(r"(?:[A-Za-z][a-z']+[ ,;:]+){3}[A-Za-z][a-z']+")
    assert [line for line in told if english.search(line)] == []
    assert len(told) == len((planned / "plan.md").read_text().splitlines())


def test_the_json_twin_holds_every_figure(planned: Path) -> None:
    found = json.loads((planned / "plan.json").read_text())
    (one,) = found["configurations"]
    assert found["settings"]["traffic"]["requests_per_s"] == 1e6
    options = {(o["policy"], o["k"]): o for o in one["options"]}
    assert {("never", 0), ("off", 0), ("fixed", 2), ("fixed", 4)} <= set(options)
    plain, off = options["never", 0], options["off", 0]
    assert off["max_requests_per_s"] < plain["max_requests_per_s"]  # a loaded drafter reads prompts too
    assert [fleet["requests_per_s"] for fleet in plain["fleets"]] == [1e6, 2e6, 4e6]
    assert plain["fleets"][1]["replicas"] == pytest.approx(2 * plain["fleets"][0]["replicas"], abs=1)
    assert plain["fleets"][0]["replicas"] > 10_000
    (method,) = one["methods"]
    assert method["closed_form"]["batch"] is not None
    assert method["best_k"][0]["k"] > 0
    assert one["measured"]["batches"] == [1, 8]
    assert [case["name"] for case in one["sensitivities"]] == ["acceptance", "traffic", "outputs"]


def test_the_terminal_marks_the_choice(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slo = ["slo.tpot_p95_s=0.022", "traffic.growth=[1]", "replica.kv_tokens=100000"]
    assert main(["plan", str(folder), "--out", str(tmp_path), *slo, *QUICK]) == 0
    output = capsys.readouterr().out
    assert "* draft model, k" in output
    assert "Run draft model" in output
    assert "extrapolated" not in output
    assert f"plan: {tmp_path / 'plan.html'}" in output


def test_limits_that_nothing_meets_say_which_and_by_how_much(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", str(folder), "--out", str(tmp_path), "slo.tpot_p95_s=0.001", *QUICK]) == 1
    output = capsys.readouterr().out
    assert "No option keeps the limits, not even on an idle replica" in output
    assert "TPOT p95" in output
    assert "% beyond it. Raise slo.tpot_p95_s" in output
    assert "No option keeps the limits" in (tmp_path / "plan.html").read_text()


def test_what_lies_beyond_the_measurements_is_marked(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["traffic=summaries", "replica.max_batch=16", "traffic.growth=[1]", "slo=batch"]
    main(["plan", str(folder), "--out", str(tmp_path), *words, *QUICK])
    output = capsys.readouterr().out
    assert "batches of 9 to 16 go beyond the 8 measured" in output
    assert "% of the prompts are longer than the" in output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["traffic.requests_per_s=0"], "traffic.requests_per_s: must be above 0, got 0"),
        (["traffic.tasks={poems: 1}"], "must be tasks of the results"),
        (["replica.memory_gib=80"], "replica.memory_gib: needs the memory of a sequence"),
        (["traffic.trace=absent.csv"], "absent.csv: can't be read"),
    ],
)
def test_bad_input_is_told(
    folder: Path, tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", str(folder), "--out", str(tmp_path), *words]) == 2
    assert said in capsys.readouterr().err


def test_the_model_predicts_the_simulator_under_load(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The simulated engine on its own clock, driven at three loads: the queue must come out as predicted."""
    words = ["--requests", "150", "--variant", "autoregressive", "--variant", "draft_model-k2"]
    assert main(["plan", "validate", str(folder), *words]) == 0
    assert "total_p95_s: bias" in capsys.readouterr().out
    document = json.loads((folder / "validation.json").read_text())
    errors = [(r["figure"], r["predicted"] / r["measured"] - 1) for r in document["rows"]]
    assert len(errors) == 2 * 3 * 6
    assert max(abs(error) for name, error in errors if name == "tpot_p50_s") < 0.06
    assert sum(abs(error) for _, error in errors) / len(errors) < 0.12
    assert main(["plan", str(folder), "--out", str(tmp_path), "traffic.growth=[1]", *QUICK]) == 0
    page = PageReader((tmp_path / "plan.html").read_text())
    assert "bias" in page.sections["validation"]
    assert "draft_model-k2" in page.sections["validation"]


def test_validation_refuses_what_it_cannot_drive(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "validate", str(folder), "--variant", "eagle-k9"]) == 2
    assert "must be a variant of the cell" in capsys.readouterr().err
    assert main(["plan", "validate", str(folder), "--loads", "1.5"]) == 2
    assert "must be shares between 0 and 1" in capsys.readouterr().err


def test_a_real_engine_is_driven_under_load(tiny: TinyRun, capsys: pytest.CaptureFixture[str]) -> None:
    """Requests wait for each other on the native engine; its paths aren't stored, so they are said again."""
    assert main(tiny.arguments("name=real", "workload.ignore_eos=true")) == 0
    folder = tiny.folder / "results" / "real"
    paths = [f"pair.target=path:{tiny.target}", f"pair.drafter=path:{tiny.drafter}"]
    paths += [f"workload.name={tiny.workload}", f"workload.warmup={tiny.warmup}"]
    assert main(["plan", "validate", str(folder), "--requests", "20", "--loads", "0.5", *paths]) == 0
    document = json.loads((folder / "validation.json").read_text())
    assert document["backend"].startswith("native")
    rows = {(row["variant_id"], row["figure"]): row for row in document["rows"]}
    assert {name for name, _ in rows} == {"autoregressive", "draft_model-k2"}
    for row in rows.values():
        assert row["measured"] > 0
        assert row["predicted"] > 0
    plain = {figure: row["measured"] for (name, figure), row in rows.items() if name == "autoregressive"}
    assert plain["total_p50_s"] >= plain["ttft_p50_s"] + 5 * plain["tpot_p50_s"]
    assert main(["plan", str(folder), "--out", str(tiny.folder / "out"), "slo=batch", *QUICK]) == 0
    assert "only batches of 1 were measured" in capsys.readouterr().out
