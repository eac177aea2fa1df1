"""The simulator's truth goes in as measurements and must come back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from simulated_cells import measured, simulated
from synthetic_results import write_synthetic_results

from harness.capacity.calibration import ReplicaModel, calibrate
from harness.capacity.memory import measured_memory
from harness.capacity.replica import Bounds
from harness.capacity.requests import Requests
from harness.capacity.simulation import simulate
from harness.capacity.step_table import measured_steps
from harness.config.schema import MethodConfig
from harness.config.simulated import DraftingConfig, SimulatorConfig, TaskConfig
from harness.errors import ResultFormatError
from harness.results import Results, load

TRUTH = SimulatorConfig(
    step_s=0.02,
    verify_slope=0.05,
    batch_slope=0.02,
    overhead_s=0.001,
    prefill_s_per_token=0.0004,
    draft_model=DraftingConfig(cost=0.12, alpha=0.7, temperature_effect=0.0),
    tasks=[TaskConfig("code", 0.15)],
    step_noise=0.05,
    prompt_spread=0.2,
)
BATCHES, KS = (1, 4, 8), (2, 5)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    method = MethodConfig(k=list(KS))
    cells = [
        simulated(
            batch_size=b, method=method, simulator=TRUTH, workload__num_prompts=24, workload__name="mixed"
        )
        for b in BATCHES
    ]
    return measured(tmp_path_factory.mktemp("calibration"), *cells)


@pytest.fixture(scope="module")
def model(results: Results) -> ReplicaModel:
    (found,) = calibrate(results)
    return found


@pytest.mark.parametrize("k", KS)
@pytest.mark.parametrize("batch", [1, 2, 4, 6, 8])
def test_seconds_of_a_step_come_back_between_measured_batches_too(
    model: ReplicaModel, batch: int, k: int
) -> None:
    together = 1 + 0.02 * (batch - 1)
    truth = 0.02 * (together * (1 + 0.12 * k) + 0.05 * batch * k) + 0.001
    work = {"num_sequences": batch, "proposed": batch * k, "depth": k, "context": batch * 120}
    assert float(model.methods["draft_model"].costs.step_s(**work)) == pytest.approx(truth, rel=0.03)


@pytest.mark.parametrize("batch", [1, 3, 8])
def test_seconds_of_plain_steps_come_back(model: ReplicaModel, batch: int) -> None:
    work = {"num_sequences": batch, "proposed": 0, "depth": 0, "context": batch * 120}
    assert float(model.baseline.step_s(**work)) == pytest.approx(
        0.02 * (1 + 0.02 * (batch - 1)) + 0.001, rel=0.03
    )


def test_reading_and_scatter_come_back(model: ReplicaModel) -> None:
    assert model.baseline.prompt_s(500) == pytest.approx(0.2, rel=0.05)
    assert model.methods["draft_model"].costs.prompt_s(500) == pytest.approx(0.2 * 1.12, rel=0.05)
    assert model.baseline.spread.mean() == pytest.approx(1.0)
    assert model.baseline.spread.std() == pytest.approx(0.05, rel=0.15)
    assert all(abs(error) < 0.02 for error in model.errors["draft_model"].mean_step.values())


def test_acceptance_comes_back_by_task(model: ReplicaModel) -> None:
    table = model.methods["draft_model"].acceptances[5]
    code, chat = (table.conditional[table.of_task(task)][:, 0].mean() for task in ("code", "chat"))
    assert code - chat == pytest.approx(0.15, abs=0.1)
    assert table.conditional.mean() == pytest.approx(0.7, abs=0.06)


def test_what_was_measured_is_known(model: ReplicaModel) -> None:
    assert model.range.batches == BATCHES
    assert model.range.max_output_tokens == 64
    assert model.facts["backend"] == "simulator"
    assert len(model.cell_ids) == len(BATCHES)
    assert model.methods["draft_model"].applied[2]["cost"] == 0.12


def test_a_measured_batch_is_predicted(results: Results, model: ReplicaModel) -> None:
    """All sequences of the measured blocks start together: their mean times must come out."""
    for k in (0, 5):
        rows = results.measured.query(
            "batch_size == 8 and k == @k and method in ('autoregressive', 'draft_model')"
        )
        predicted = []
        for _, block in rows.groupby("block"):
            requests = Requests(
                np.zeros(len(block)),
                block["num_prompt_tokens"].to_numpy(np.int64),
                block["num_output_tokens"].to_numpy(np.int64),
                block["max_output_tokens"].to_numpy(np.int64),
                block["task"].to_numpy(str),
            )
            replica = model.replica(Bounds(max_batch=8), "draft_model" if k else None, k or None)
            predicted += [simulate(replica, requests, seed=seed).total_s.mean() for seed in range(5)]
        assert np.mean(predicted) == pytest.approx(rows["total_s"].mean(), rel=0.03)


def test_held_out_prompts_do_not_calibrate(results: Results) -> None:
    ids = sorted(results.measured["prompt_id"].unique())[::2]
    (half,) = calibrate(results, prompts=ids)
    assert set(half.observations["prompt_id"]) == set(ids)


def test_temperatures_are_configurations_of_their_own(tmp_path: Path) -> None:
    models = calibrate(
        load(write_synthetic_results(tmp_path, ks=(2,), num_prompts=4, temperatures=(0.0, 1.0)))
    )
    assert [one.facts["temperature"] for one in models] == [0.0, 1.0]
    assert models[0].range.batches == (1,)


def test_results_without_a_baseline_name_the_command(tmp_path: Path) -> None:
    found = load(write_synthetic_results(tmp_path, ks=(2,), num_prompts=2, temperatures=(0.0,)))
    found.__dict__["measured"] = found.measured[found.measured["method"] != "autoregressive"]
    with pytest.raises(ResultFormatError, match=r"no baseline was measured.*python -m harness.*batch_size"):
        calibrate(found)


def test_a_k_that_was_not_measured_is_refused(model: ReplicaModel) -> None:
    with pytest.raises(ResultFormatError, match=r"k=3 wasn't measured. Measured: 2, 5"):
        model.replica(Bounds(), "draft_model", 3)
    with pytest.raises(ResultFormatError, match="ngram: not measured"):
        model.replica(Bounds(), "ngram", 2)


def test_sequences_that_do_not_step_together_give_no_step_times(results: Results) -> None:
    rows = results.measured.query("batch_size == 8").reset_index(drop=True)
    rows["step_verify_s"] = [np.asarray(v) * (1 + 0.1 * n) for n, v in enumerate(rows["step_verify_s"])]
    steps = measured_steps(rows)
    assert steps.batches.empty
    assert "don't share their steps" in steps.skipped[0]


def test_steps_of_a_batch_are_rebuilt(results: Results) -> None:
    rows = results.measured.query("batch_size == 4 and k == 2")
    first = rows[rows["block"] == rows["block"].min()]
    table = measured_steps(first).batches
    assert table["num_sequences"].iloc[0] == 4
    assert table["proposed"].iloc[0] == 8
    assert table["context"].iloc[0] == first["num_prompt_tokens"].sum() + 4
    assert table["verify_s"].iloc[0] == first["step_verify_s"].iloc[0][0]
    assert len(table) == max(len(steps) for steps in first["step_proposed"])


def test_memory_of_a_sequence_is_the_slope_of_the_peaks() -> None:
    rows = pd.DataFrame(
        [
            {"cell_id": f"c{b}", "method": m, "drafter": d, "batch_size": b, "num_prompt_tokens": 100}
            | {"max_output_tokens": 100, "peak_memory_bytes": 5e9 + 2e5 * 200 * b + extra}
            for b in (1, 4, 8)
            for m, d, extra in (("autoregressive", None, 0.0), ("draft_model", "x", 1e9))
        ]
    )
    memory = measured_memory(rows)
    assert memory.token_bytes == pytest.approx(2e5)
    assert memory.fixed_bytes == pytest.approx(5e9)
    assert memory.drafter_bytes == pytest.approx(1e9)
    assert memory.tokens_in(7e9, with_drafter=False) == pytest.approx(10_000, abs=1)
    assert memory.tokens_in(7e9, with_drafter=True) == pytest.approx(5_000, abs=1)
    assert memory.tokens_in(1e9, with_drafter=True) == 0
    assert "one batch size" in str(measured_memory(rows[rows["batch_size"] == 1]).reason)
    unknown = measured_memory(rows.assign(peak_memory_bytes=None))
    assert unknown.tokens_in(7e9, with_drafter=False) is None
