from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness.errors import ResultFormatError
from harness.records import CellRecord, Failure, Observation
from harness.results import Results, ResultStore, load

MakeRecord = Callable[..., CellRecord]
MakeObservation = Callable[..., Observation]


def test_load_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(ResultFormatError, match=r"nowhere: no stored cells .* or measure first"):
        load(tmp_path / "nowhere")


def test_load_takes_a_sweep_or_a_cell(synthetic: Results) -> None:
    assert len(synthetic.cells) == 3
    one = load(synthetic.path / synthetic.cells["cell_id"].iloc[1])
    assert one.cells["temperature"].tolist() == [0.7]
    assert isinstance(one.records["000000000001"], CellRecord)


def test_facts_become_columns_nested_ones_dotted(store: ResultStore, make_record: MakeRecord) -> None:
    facts = {"limits": {"time_s": 3}, "stop_ids": [1, 2], "status": "odd", "temperature": 0.5}
    record = make_record(**facts)
    store.open_cell(record).finish(record)
    row = load(store.path).cells.iloc[0]
    assert (row["limits.time_s"], row["stop_ids"], row["temperature"]) == (3, "[1, 2]", 0.5)
    assert row["status"] == "ok"


def test_observations_carry_facts_and_keep_warmup(
    store: ResultStore, make_record: MakeRecord, make_observation: MakeObservation
) -> None:
    writer = store.open_cell(make_record(3, temperature=0.7, target_quantization=None))
    writer.append(
        [make_observation(phase="warmup"), make_observation("ngram-k3"), make_observation(status="failed")]
    )
    results = load(store.path)
    frame = results.observations
    assert frame["phase"].tolist() == ["warmup", "measure", "measure"]
    assert frame["temperature"].tolist() == [0.7] * 3
    assert frame["k"].tolist() == [0, 3, 0]
    assert frame["is_baseline"].tolist() == [True, False, True]
    assert results.measured["variant_id"].tolist() == ["ngram-k3"]


def test_steps_explode_in_order_and_leave_unknown_ones_out(
    store: ResultStore, make_record: MakeRecord, make_observation: MakeObservation
) -> None:
    lists = [name for name in make_observation().row() if name.startswith("step_")]
    writer = store.open_cell(make_record(2))
    writer.append(
        [
            make_observation(
                "ngram-k2",
                step_proposed=[2, 1],
                step_accepted=[2, 0],
                step_emitted=[3, 1],
                step_draft_s=[0.1, 0.2],
                step_verify_s=[0.3, 0.4],
            ),
            make_observation(prompt_id="p1", **dict.fromkeys(lists), steps_missing_reason="not reported"),
            make_observation("ngram-k2", "p2", **{name: [] for name in lists}),
            make_observation("ngram-k2", "p3", step_draft_s=None, step_verify_s=[]),
            make_observation("ngram-k2", "p4", phase="warmup"),
        ]
    )
    steps = load(store.path).steps
    assert steps["prompt_id"].tolist() == ["p0"] * 2 + ["p3"] * 4
    assert steps["step"].tolist() == [0, 1, 0, 1, 2, 3]
    assert steps["proposed"].tolist() == [2, 1, 0, 0, 0, 0]
    assert steps["emitted"].tolist() == [3, 1, 1, 1, 1, 1]
    np.testing.assert_array_equal(steps["draft_s"], [0.1, 0.2] + [np.nan] * 4)
    np.testing.assert_array_equal(steps["verify_s"], [0.3, 0.4] + [np.nan] * 4)


def test_cold_start_and_failures(
    store: ResultStore, make_record: MakeRecord, make_observation: MakeObservation
) -> None:
    record = make_record(2)
    record.cold_start = [{"part": "import", "variant_id": None, "seconds": 1.5}]
    record.failures = [Failure("measure", "ngram-k2", "it broke", "Traceback ...")]
    store.open_cell(record).append([make_observation()])
    (store.path / "c0" / "observations" / "part-00001-1.parquet").write_bytes(b"half")
    results = load(store.path)
    assert results.cold_start[["cell_id", "part", "seconds"]].values.tolist() == [["c0", "import", 1.5]]
    assert results.failures["stage"].tolist() == ["measure", "storage"]
    assert "part-00001-1.parquet: damaged" in results.failures["error"].iloc[1]


def test_an_empty_cell_has_empty_frames(store: ResultStore, make_record: MakeRecord) -> None:
    store.open_cell(make_record(2))
    results = load(store.path)
    frames: list[pd.DataFrame] = [results.observations, results.steps, results.cold_start, results.failures]
    frames += [results.by_task(), results.per_position(), results.best_k(), results.greedy_agreement()]
    assert [len(frame) for frame in frames] == [0] * 8
    summary = results.summary()
    assert summary["num_trials"].tolist() == [0, 0]
    assert summary["speedup"].isna().all()
    assert summary["notes"].str.contains("no measured trial was ok").all()


def test_in_order_undoes_the_random_order_of_trials(synthetic: Results) -> None:
    drawn = synthetic.observations["variant_id"].drop_duplicates().tolist()
    configured = ["autoregressive", *(f"draft_model-k{k}" for k in range(1, 11))]
    assert drawn != configured
    assert synthetic.by_task()["variant_id"].drop_duplicates().tolist() == configured


def test_summary_is_a_copy(synthetic: Results) -> None:
    frame: Any = synthetic.summary()
    frame["speedup"] = 0.0
    assert synthetic.summary()["speedup"].max() > 1
