from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from runner.scripted_backend import TOKEN_S, Script, decoded
from tiny_runs import TinyRun

from harness.config.schema import HarnessConfig, MethodConfig
from harness.errors import EngineError
from harness.records import CellRecord
from harness.reports.sweep import Sweep
from harness.reports.words import Verdict, verdict
from harness.results import Results, load
from harness.results.store import ResultStore
from harness.runner.cell import measure_cell
from harness.runner.plan import plan_cell
from harness.runner.progress import SweepProgress
from harness.runner.sessions import SessionPool


def config(tiny: TinyRun, **changes: Any) -> HarnessConfig:
    options = {"backend__name": "one_variant", "compare": [MethodConfig("ngram", k=3)]}
    return tiny.config(**{**options, **changes})


def measure(config: HarnessConfig) -> CellRecord:
    store = ResultStore(Path(config.results_dir), config.name)
    return measure_cell(plan_cell(config), store=store, pool=SessionPool(), progress=SweepProgress())


def results(tiny: TinyRun) -> Results:
    return load(tiny.folder / "results/run")


def measured(tiny: TinyRun) -> pd.DataFrame:
    return results(tiny).measured


def test_variants_run_engine_by_engine_between_two_runs_of_the_baseline(
    tiny: TinyRun, script: Script
) -> None:
    record = measure(config(tiny, measure__min_repeats=2, measure__max_repeats=5))
    assert (record.status, record.stop_reason, record.failures) == ("ok", "min_repeats", [])
    first, *others, last = script.prepared
    assert (first, last) == ("autoregressive", "autoregressive")
    assert sorted(others) == ["draft_model-k2", "ngram-k3"]
    # nothing interleaved: each engine decodes its warmup and then all its blocks
    runs = [name for name, _ in groupby(name for name, *_ in script.decoded)]
    assert runs == script.prepared
    rows = measured(tiny)
    assert rows.groupby(["variant_id", "order"]).size().to_dict() == {
        ("autoregressive", 0): 8,
        ("autoregressive", 3): 8,
        (others[0], 1): 8,
        (others[1], 2): 8,
    }
    assert [
        part["variant_id"] for part in record.cold_start if part["part"] == "first_call"
    ] == script.prepared


def test_the_order_of_the_engines_hangs_on_the_seed_alone(tiny: TinyRun, script: Script) -> None:
    ks = [1, 2, 3, 4, 5, 6]
    orders = []
    for seed in (0, 0, 1):
        script.prepared.clear()
        measure(config(tiny, method__k=ks, compare=[], measure__seed=seed, resume=False))
        orders.append(tuple(script.prepared))
    assert orders[0] == orders[1] != orders[2]


def test_a_speedup_is_over_the_mean_of_both_baselines_and_drift_forbids_a_verdict(
    tiny: TinyRun, script: Script
) -> None:
    """The baseline takes 10 ms per token before the variants and 30 ms after them."""
    seconds = iter([TOKEN_S] * 5 + [3 * TOKEN_S] * 5)
    script.answer["autoregressive"] = lambda requests: _with(next(seconds), requests)
    measure(config(tiny))
    summary = results(tiny).summary().set_index("variant_id")
    assert summary.loc["ngram-k3", "speedup"] == pytest.approx(2.0)
    assert summary["baseline_drift"].tolist() == pytest.approx([1 / 3] * 3)
    row = summary.reset_index().to_dict("records")[1]
    assert verdict(row) is Verdict.DRIFTED
    assert verdict(row | {"baseline_drift": 1.01}) is Verdict.PAYS
    sweep = Sweep(results(tiny))
    from harness.reports.cautions import cautions

    (sentence,) = [text for text in cautions(sweep) if "another speed" in text]
    assert "0.33x" in sentence


def _with(token_s: float, requests: Any) -> Any:
    return [decoded(request.max_new_tokens, k=0, token_s=token_s) for request in requests]


def test_interleaved_cells_have_no_drift(tiny: TinyRun, script: Script) -> None:
    measure(config(tiny, backend__name="scripted", measure__min_repeats=2, measure__max_repeats=2))
    assert results(tiny).summary()["baseline_drift"].isna().all()


def test_time_cuts_every_engine_at_the_same_block(tiny: TinyRun, script: Script) -> None:
    record = measure(config(tiny, measure__max_time_s=1e-6))
    assert (record.status, record.stop_reason) == ("ok", "max_time")
    assert measured(tiny).groupby(["variant_id", "order"]).size().tolist() == [1, 1, 1, 1]
    calls = len(script.decoded)
    assert measure(config(tiny, measure__max_time_s=1e-6)).status == "ok"
    assert len(script.decoded) == calls


@pytest.mark.parametrize("stage", ["prepare", "decode"])
def test_an_engine_that_fails_leaves_a_failed_row_and_the_others_go_on(
    tiny: TinyRun, script: Script, stage: str
) -> None:
    error = EngineError("the engine's process was ended by SIGKILL. Its last log lines:\nboom")
    if stage == "prepare":
        script.prepare_errors["ngram-k3"] = error
    else:
        script.decode_errors["ngram-k3", 2] = error
    record = measure(config(tiny))
    assert record.status == "partial"
    statuses = {row["variant_id"]: (row["status"], row["error"]) for row in record.variants}
    assert statuses["draft_model-k2"] == ("ok", None)
    assert statuses["ngram-k3"][0] == "failed"
    assert "boom" in statuses["ngram-k3"][1]
    rows = results(tiny).observations.query("phase == 'measure' and variant_id == 'ngram-k3'")
    assert rows["status"].isin(["failed", "skipped", "ok"]).all()
    assert "boom" in rows["error"].dropna().iloc[0]
    assert results(tiny).summary()["baseline_drift"].notna().all()


def test_a_finished_cell_grows_with_the_repeats_and_is_left_alone_otherwise(
    tiny: TinyRun, script: Script
) -> None:
    measure(config(tiny))
    calls = len(script.decoded)
    measure(config(tiny))
    assert len(script.decoded) == calls
    record = measure(config(tiny, measure__min_repeats=2, measure__max_repeats=2))
    assert (record.status, record.stop_reason) == ("ok", "min_repeats")
    assert measured(tiny).groupby(["variant_id", "order"]).size().tolist() == [8, 8, 8, 8]
    assert not measured(tiny).duplicated(["variant_id", "order", "block"]).any()


def test_an_interrupted_cell_goes_on_with_the_engines_that_are_missing(tiny: TinyRun, script: Script) -> None:
    script.decode_errors["ngram-k3", 3] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        measure(config(tiny))
    before = list(script.decoded)
    record = measure(config(tiny))
    assert (record.status, record.stop_reason) == ("ok", "min_repeats")
    assert measured(tiny).groupby(["variant_id", "order"]).size().tolist() == [4, 4, 4, 4]
    # the engine that was cut off decodes what it lacks, after a warmup of its own
    again = [name for name, *_ in script.decoded[len(before) :]]
    assert again.count("ngram-k3") == 1 + 4 - 2
    assert measure(config(tiny)).status == "ok"
    assert len(script.decoded) == len(before) + len(again)
