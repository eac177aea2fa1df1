from __future__ import annotations

import gc
import json
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
from runner.scripted_backend import Script
from tiny_runs import TinyRun

from harness.backends import native
from harness.config.schema import HarnessConfig, MethodConfig
from harness.errors import OutOfMemoryError, StorageError, UnsupportedError
from harness.records import CellRecord
from harness.results import load
from harness.results.store import ResultStore
from harness.runner.cell import measure_cell
from harness.runner.plan import plan_cell
from harness.runner.progress import SweepProgress
from harness.runner.sessions import SessionPool


def measure(config: HarnessConfig, *, pool: SessionPool | None = None) -> CellRecord:
    store = ResultStore(Path(config.results_dir), config.name)
    return measure_cell(plan_cell(config), store=store, pool=pool or SessionPool(), progress=SweepProgress())


def rows(tiny: TinyRun) -> pd.DataFrame:
    return load(tiny.folder / "results/run").observations


def statuses(record: CellRecord) -> dict[str, str]:
    return {row["variant_id"]: row["status"] for row in record.variants}


def test_a_cell_of_real_models_is_measured_and_stored(tiny: TinyRun) -> None:
    record = measure(tiny.config(compare=[MethodConfig("ngram", k=3)], measure__max_repeats=2))
    assert (record.status, record.failures) == ("ok", [])
    assert record.stop_reason in ("precision", "max_repeats")
    assert statuses(record) == dict.fromkeys(["autoregressive", "draft_model-k2", "ngram-k3"], "ok")
    results = load(tiny.folder / "results/run")
    assert results.records[record.cell_id] == record
    # what follows from the measurements is kept for reports
    assert results.stored[0].digest is not None

    frame = rows(tiny)
    warmup, measured = (frame[frame["phase"] == phase] for phase in ("warmup", "measure"))
    assert Counter(warmup["variant_id"]) == dict.fromkeys(statuses(record), 1)
    assert set(warmup["prompt_id"]) == {"warm-0"}
    assert set(measured["prompt_id"]) == {f"mine-{n}" for n in range(4)}
    repeats = measured["repeat"].max() + 1
    assert set(Counter(measured["variant_id"]).values()) == {4 * repeats}
    assert set(measured["status"]) == {"ok"}
    assert measured[["decode_s", "ttft_s", "trial_s", "started_s", "seed"]].notna().all(axis=None)
    assert measured["peak_memory_bytes"].gt(1e6).all()
    # at temperature 0 in float32 every variant writes what the baseline writes
    answers = measured.groupby("prompt_id")["output_tokens"].agg(lambda lists: {tuple(t) for t in lists})
    assert all(len(different) == 1 for different in answers)


def test_orders_of_a_stored_cell_are_those_of_the_schedule(tiny: TinyRun) -> None:
    measure(tiny.config(compare=[MethodConfig("ngram", k=3)]))
    measured = rows(tiny).query("phase == 'measure'")
    by_block = measured.sort_values("started_s").groupby("block")["order"].agg(list)
    assert by_block.tolist() == [[0, 1, 2]] * 4
    assert len(set(measured.groupby("block")["variant_id"].agg(tuple))) > 1


def test_cold_start_names_its_parts(tiny: TinyRun) -> None:
    record = measure(tiny.config(measure__warmup_prompts=2))
    parts = [(part["part"], part["variant_id"]) for part in record.cold_start]
    assert parts == [
        ("load_target", None),
        ("load_drafter", "draft_model-k2"),
        ("first_call", "autoregressive"),
        ("first_call", "draft_model-k2"),
        ("warmup", "autoregressive"),
        ("warmup", "draft_model-k2"),
    ]
    assert all(part["seconds"] > 0 for part in record.cold_start)


def test_wall_time_is_mostly_decoding(tiny: TinyRun) -> None:
    record = measure(tiny.config())
    measured = rows(tiny).query("phase == 'measure'")
    assert record.decode_wall_s == pytest.approx(measured["trial_s"].sum())
    assert record.measured_wall_s is not None
    assert record.decode_wall_s is not None
    assert record.decode_wall_s < record.measured_wall_s


def test_a_batch_counts_its_time_once(tiny: TinyRun, script: Script) -> None:
    record = measure(tiny.config(backend__name="scripted", batch_size=2))
    trials = rows(tiny).query("phase == 'measure'").drop_duplicates(["variant_id", "block"])
    assert len(trials) == 4
    assert record.decode_wall_s == pytest.approx(trials["trial_s"].sum())
    assert {size for _, size, *_ in script.decoded} == {2}


def test_a_real_batch_measures_every_prompt_as_alone(tiny: TinyRun) -> None:
    measure(tiny.config())
    alone = rows(tiny).query("phase == 'measure'").set_index(["variant_id", "prompt_id"])["output_tokens"]
    record = measure(tiny.config(batch_size=3))
    assert record.status == "ok"
    found = rows(tiny).query(f"phase == 'measure' and cell_id == {record.cell_id!r}")
    assert found.groupby(["variant_id", "block"]).size().tolist() == [3, 1, 3, 1]
    for key, tokens in found.set_index(["variant_id", "prompt_id"])["output_tokens"].items():
        assert list(tokens) == list(alone[key])


def test_a_batch_that_does_not_fit_is_a_row_and_ends_nothing(
    tiny: TinyRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "free_memory_bytes", lambda device: 1000)
    record = measure(tiny.config(batch_size=2))
    assert record.status == "failed"
    assert {failure.stage for failure in record.failures} == {"prepare"}
    for row in record.variants:
        assert row["status"] == "failed"
        assert "keys and values of 2 sequences" in row["error"]
        assert "smaller batch_size" in row["error"]


def test_facts_are_read_back_from_the_engine(tiny: TinyRun, script: Script) -> None:
    record = measure(tiny.config(backend__name="scripted"))
    assert (record.facts["device"], record.facts["num_threads"]) == ("imaginary", 7)
    assert record.facts["backend_version"] == "scripted 1"
    assert [row["applied"] for row in record.variants] == [{"k": 0}, {"k": 2}]
    real = measure(tiny.config())
    assert (real.facts["device"], real.facts["dtype"], real.facts["num_threads"]) == ("cpu", "float32", 1)


def test_what_was_loaded_is_thawed_again(tiny: TinyRun, script: Script) -> None:
    measure(tiny.config(backend__name="scripted"))
    assert gc.get_freeze_count() == 0
    assert gc.isenabled()


def test_the_environment_is_recorded(tiny: TinyRun, script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "/opt/secret place/libjemalloc.so:/opt/libomp.so")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    environment = measure(tiny.config(backend__name="scripted")).environment
    assert environment["packages"]["torch"].startswith("2.")
    assert environment["logical_cores"] >= 1
    assert environment["memory_gib"] > 0
    assert len(environment["code_version"]) == 12
    assert environment["thread_variables"]["LD_PRELOAD"] == "libjemalloc.so:libomp.so"
    assert environment["thread_variables"]["OMP_NUM_THREADS"] == "3"
    assert "enabled=True" in environment["gc"]


def test_the_clock_ends_a_cell(tiny: TinyRun, script: Script) -> None:
    record = measure(tiny.config(backend__name="scripted", measure__max_time_s=1e-9, measure__min_repeats=1))
    assert (record.status, record.stop_reason) == ("ok", "max_time")
    # the clock is read before each block, so the first one is whole
    assert Counter(rows(tiny).query("phase == 'measure'")["variant_id"]) == {
        "autoregressive": 1,
        "draft_model-k2": 1,
    }


def test_a_steady_engine_stops_for_precision(tiny: TinyRun, script: Script) -> None:
    script.seconds_per_token["draft_model-k2"] = 0.005
    record = measure(tiny.config(backend__name="scripted", measure__max_repeats=5))
    assert record.stop_reason == "precision"
    assert script.calls("draft_model-k2") == 1 + 4


class TestFailingVariant:
    @pytest.fixture
    def config(self, tiny: TinyRun, script: Script) -> HarnessConfig:
        return tiny.config(
            backend__name="scripted", compare=[MethodConfig("ngram", k=3)], measure__max_repeats=1
        )

    def check(self, record: CellRecord, script: Script, *, stage: str, error: str) -> None:
        """`draft_model-k2` failed, and the others were measured all the same."""
        assert record.status == "partial"
        assert statuses(record) == {"autoregressive": "ok", "draft_model-k2": "failed", "ngram-k3": "ok"}
        (failure,) = record.failures
        assert (failure.stage, failure.variant_id, failure.error) == (stage, "draft_model-k2", error)
        assert "Traceback" in failure.traceback
        assert record.variants[1]["error"] == error
        assert (script.calls("autoregressive"), script.calls("ngram-k3")) == (5, 5)

    def test_at_preparing(self, config: HarnessConfig, tiny: TinyRun, script: Script) -> None:
        script.prepare_errors["draft_model-k2"] = UnsupportedError("can't do that.")
        self.check(measure(config), script, stage="prepare", error="can't do that.")
        skipped = rows(tiny).query("variant_id == 'draft_model-k2'")
        assert set(skipped["status"]) == {"skipped"}
        assert set(skipped["error"]) == {"can't do that."}
        assert skipped["decode_s"].isna().all()

    def test_at_warming_up(self, config: HarnessConfig, script: Script) -> None:
        script.decode_errors["draft_model-k2", 0] = OutOfMemoryError("3 GiB needed.")
        self.check(measure(config), script, stage="warmup", error="3 GiB needed.")

    def test_while_measuring(self, config: HarnessConfig, tiny: TinyRun, script: Script) -> None:
        script.decode_errors["draft_model-k2", 3] = ZeroDivisionError("oh")
        self.check(measure(config), script, stage="measure", error="ZeroDivisionError: oh")
        measured = rows(tiny).query("phase == 'measure' and variant_id == 'draft_model-k2'")
        assert measured.sort_values("block")["status"].tolist() == ["ok", "ok", "failed", "skipped"]
        assert measured["error"].dropna().tolist() == ["ZeroDivisionError: oh"] * 2

    def test_the_summary_tells_and_the_report_renders(
        self, config: HarnessConfig, tiny: TinyRun, script: Script
    ) -> None:
        from harness.reports.build import build_report

        script.prepare_errors["draft_model-k2"] = UnsupportedError("can't do that.")
        measure(config)
        summary = load(tiny.folder / "results/run").summary().set_index("variant_id")
        assert summary.loc["draft_model-k2", "status"] == "failed"
        assert pd.isna(summary.loc["draft_model-k2", "speedup"])
        assert summary.loc["ngram-k3", "speedup"] == pytest.approx(1.0)
        page = build_report(tiny.folder / "results/run", tiny.folder / "page").read_text()
        assert "can&#39;t do that." in page


def test_a_failing_baseline_leaves_nothing_to_compare(tiny: TinyRun, script: Script) -> None:
    script.prepare_errors["autoregressive"] = OutOfMemoryError("too large.")
    record = measure(tiny.config(backend__name="scripted"))
    assert record.status == "failed"
    assert statuses(record) == {"autoregressive": "failed", "draft_model-k2": "skipped"}
    assert record.variants[1]["error"] == "not measured: the cell ended before"
    assert rows(tiny).query("phase == 'measure'").empty
    assert load(tiny.folder / "results/run").records[record.cell_id] == record


def test_a_baseline_that_fails_midway_ends_the_cell_after_its_block(tiny: TinyRun, script: Script) -> None:
    script.decode_errors["autoregressive", 3] = RuntimeError("gone")
    record = measure(tiny.config(backend__name="scripted"))
    assert (record.status, record.stop_reason) == ("partial", None)
    measured = rows(tiny).query("phase == 'measure'")
    assert Counter(measured.query("status == 'ok'")["variant_id"]) == {
        "autoregressive": 2,
        "draft_model-k2": 3,
    }


def test_every_variant_failing_is_a_failed_cell(tiny: TinyRun, script: Script) -> None:
    for name in ("autoregressive", "draft_model-k2"):
        script.prepare_errors[name] = RuntimeError("no")
    record = measure(tiny.config(backend__name="scripted"))
    assert (record.status, record.stop_reason, len(record.failures)) == ("failed", None, 2)


def test_an_engine_that_does_not_start_fails_the_cell(tiny: TinyRun, script: Script) -> None:
    script.open_error = OutOfMemoryError("the target doesn't fit.")
    record = measure(tiny.config(backend__name="scripted"))
    assert record.status == "failed"
    (failure,) = record.failures
    assert (failure.stage, failure.variant_id, failure.error) == ("cell", None, "the target doesn't fit.")
    assert set(statuses(record).values()) == {"skipped"}
    stored = json.loads((tiny.folder / f"results/run/{record.cell_id}/cell.json").read_text())
    assert stored["status"] == "failed"


def test_results_that_cannot_be_written_end_the_run(
    tiny: TinyRun, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, table: object, **options: object) -> None:
        raise StorageError(f"{path}: can't write, the disk is full.")

    monkeypatch.setattr("harness.results.store.write_table", full)
    with pytest.raises(StorageError, match="the disk is full"):
        measure(tiny.config(backend__name="scripted"))


def test_cells_share_a_session_while_the_engine_is_the_same(tiny: TinyRun, script: Script) -> None:
    pool = SessionPool()
    first = measure(tiny.config(backend__name="scripted"), pool=pool)
    second = measure(tiny.config(backend__name="scripted", sampling__temperature=1.0), pool=pool)
    assert (script.opened, script.closed) == (1, 0)
    assert first.cold_start[0]["part"] == "load_target"
    assert "load_target" not in [part["part"] for part in second.cold_start]
    measure(tiny.config(backend__name="scripted", backend__dtype="bfloat16"), pool=pool)
    assert (script.opened, script.closed) == (2, 1)
    pool.close()
    pool.close()
    assert script.closed == 2


def test_stored_records_hold_no_path(tiny: TinyRun, script: Script) -> None:
    script.prepare_errors["draft_model-k2"] = RuntimeError(f"no such file: {tiny.drafter}/x.bin")
    record = measure(tiny.config(backend__name="scripted"))
    text = (tiny.folder / f"results/run/{record.cell_id}/cell.json").read_text()
    assert str(tiny.folder) not in text
    assert "…/x.bin" in json.loads(text)["failures"][0]["error"]
    assert json.loads(text)["facts"]["target"] == "path:…/target"
    assert not any(
        str(tiny.folder) in str(cell) for row in rows(tiny).to_dict("records") for cell in row.values()
    )
