from __future__ import annotations

from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
from runner.scripted_backend import Script
from tiny_runs import TinyRun

from harness.config.schema import HarnessConfig
from harness.records import CellRecord
from harness.results import load
from harness.results.store import ResultStore
from harness.runner.cell import Interrupted, measure_cell
from harness.runner.plan import plan_cell
from harness.runner.progress import SweepProgress
from harness.runner.sessions import SessionPool

VARIANTS = ("autoregressive", "draft_model-k2")
WARMUP = 1


@pytest.fixture
def config(tiny: TinyRun, script: Script) -> HarnessConfig:
    """Two variants on four prompts, twice, whatever the intervals say: eight blocks."""
    return tiny.config(backend__name="scripted", measure__min_repeats=2, measure__max_repeats=2)


def measure(config: HarnessConfig) -> CellRecord:
    store = ResultStore(Path(config.results_dir), config.name)
    return measure_cell(plan_cell(config), store=store, pool=SessionPool(), progress=SweepProgress())


def interrupt(config: HarnessConfig, script: Script, *, variant: str, call: int) -> None:
    """Press Ctrl-C in one decode call, warmup counted."""
    script.decode_errors[variant, call] = KeyboardInterrupt()
    with pytest.raises(Interrupted):
        measure(config)


def trials(tiny: TinyRun) -> pd.DataFrame:
    frame = load(tiny.folder / "results/run").observations
    kept = frame[(frame["phase"] == "measure") & (frame["status"] == "ok")]
    return kept.set_index(["variant_id", "block"]).sort_index()


def record_of(tiny: TinyRun) -> CellRecord:
    (record,) = load(tiny.folder / "results/run").records.values()
    return record


def test_ctrl_c_keeps_what_was_measured(config: HarnessConfig, tiny: TinyRun, script: Script) -> None:
    interrupt(config, script, variant="autoregressive", call=WARMUP + 3)
    record = record_of(tiny)
    assert (record.status, record.stop_reason) == ("partial", "interrupted")
    counts = Counter(trials(tiny).index.get_level_values(0))
    assert counts["autoregressive"] == 3
    assert counts["draft_model-k2"] in (3, 4)  # either may come first in the fourth block
    assert record.decode_wall_s == pytest.approx(trials(tiny)["trial_s"].sum())


def test_ctrl_c_before_any_trial_marks_all_unmeasured(
    config: HarnessConfig, tiny: TinyRun, script: Script
) -> None:
    interrupt(config, script, variant="draft_model-k2", call=0)
    record = record_of(tiny)
    assert record.status == "partial"
    assert {row["status"] for row in record.variants} == {"skipped"}
    assert {row["error"] for row in record.variants} == {"not measured: interrupted"}


def test_the_same_command_measures_only_what_is_missing(
    config: HarnessConfig, tiny: TinyRun, script: Script
) -> None:
    interrupt(config, script, variant="autoregressive", call=WARMUP + 3)
    before = trials(tiny)
    script.decoded.clear()
    record = measure(config)
    after = trials(tiny)
    assert (record.status, record.stop_reason) == ("ok", "max_repeats")
    assert {row["status"] for row in record.variants} == {"ok"}
    assert Counter(after.index.get_level_values(0)) == dict.fromkeys(VARIANTS, 8)
    assert after.index.is_unique
    for variant in VARIANTS:
        missing = 8 - sum(before.index.get_level_values(0) == variant)
        assert script.calls(variant) == WARMUP + missing
    same = after.loc[before.index]
    pd.testing.assert_frame_equal(
        same[["started_s", "trial_s", "seed"]], before[["started_s", "trial_s", "seed"]]
    )
    assert record.decode_wall_s == pytest.approx(after["trial_s"].sum())


def test_a_resumed_run_equals_an_uninterrupted_one(
    config: HarnessConfig, tiny: TinyRun, script: Script
) -> None:
    interrupt(config, script, variant="draft_model-k2", call=WARMUP + 5)
    measure(config)
    resumed = trials(tiny)[["order", "seed", "repeat", "prompt_id"]]
    config.resume = False
    measure(config)
    pd.testing.assert_frame_equal(trials(tiny)[["order", "seed", "repeat", "prompt_id"]], resumed)


def test_a_complete_cell_is_not_measured_again(config: HarnessConfig, tiny: TinyRun, script: Script) -> None:
    first = measure(config)
    script.decoded.clear()
    again = measure(config)
    assert again == first == record_of(tiny)
    assert (script.opened, script.decoded) == (1, [])


def test_other_settings_are_another_cell(config: HarnessConfig, tiny: TinyRun, script: Script) -> None:
    first = measure(config)
    config.sampling.temperature = 0.5
    second = measure(config)
    assert second.cell_id != first.cell_id
    assert script.opened == 2
    assert len(load(tiny.folder / "results/run", every_cell=True).records) == 2


def test_other_code_is_another_cell(
    config: HarnessConfig, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = measure(config)
    monkeypatch.setattr("harness.config.identity.code_version", lambda: "0123456789ab")
    assert measure(config).cell_id != first.cell_id
    assert script.opened == 2


def test_without_resume_all_is_measured_anew(config: HarnessConfig, tiny: TinyRun, script: Script) -> None:
    measure(config)
    before = trials(tiny)["trial_s"]
    script.decoded.clear()
    config.resume = False
    measure(config)
    assert {name: script.calls(name) for name in VARIANTS} == dict.fromkeys(VARIANTS, WARMUP + 8)
    assert len(trials(tiny)) == 16
    assert not trials(tiny)["trial_s"].equals(before)


def test_a_longer_run_goes_on_from_a_shorter_one(
    config: HarnessConfig, tiny: TinyRun, script: Script
) -> None:
    first = measure(config)
    script.decoded.clear()
    config.measure.min_repeats = config.measure.max_repeats = 3
    longer = measure(config)
    assert longer.cell_id == first.cell_id
    assert {name: script.calls(name) for name in VARIANTS} == dict.fromkeys(VARIANTS, WARMUP + 4)
    assert len(trials(tiny)) == 24
    assert longer.status == "ok"


def test_a_variant_that_failed_is_tried_again_on_all_its_prompts(
    config: HarnessConfig, tiny: TinyRun, script: Script
) -> None:
    script.decode_errors["draft_model-k2", WARMUP + 2] = RuntimeError("busy")
    assert measure(config).status == "partial"
    script.decoded.clear()
    record = measure(config)
    assert (record.status, record.failures) == ("ok", [])
    assert {name: script.calls(name) for name in VARIANTS} == {
        "autoregressive": WARMUP,
        "draft_model-k2": WARMUP + 6,
    }
    assert len(trials(tiny)) == 16


def test_a_failed_variant_stays_a_failure_when_the_time_is_over(
    config: HarnessConfig, tiny: TinyRun, script: Script
) -> None:
    config.measure.max_time_s = 1e-9  # over after the first block
    script.prepare_errors["draft_model-k2"] = RuntimeError("broken")
    assert measure(config).status == "partial"
    assert measure(config).status == "partial"
    assert record_of(tiny).status == "partial"
    # mended, it catches up with the block that the baseline has
    script.prepare_errors.clear()
    assert measure(config).status == "ok"
    assert Counter(trials(tiny).index.get_level_values(0)) == dict.fromkeys(VARIANTS, 1)


def test_a_cut_block_is_completed_although_the_time_is_over(
    config: HarnessConfig, tiny: TinyRun, script: Script
) -> None:
    config.measure.max_time_s = 1e-9
    plan = plan_cell(config)
    from harness.runner.schedule import blocks

    last = next(blocks(plan.prompts, plan.variants, batch_size=1, repeats=1, seed=0)).order[-1].variant_id
    interrupt(config, script, variant=last, call=WARMUP)
    assert len(trials(tiny)) == 1
    record = measure(config)
    assert (record.status, record.stop_reason) == ("ok", "max_time")
    assert Counter(trials(tiny).index.get_level_values(0)) == dict.fromkeys(VARIANTS, 1)


def test_a_damaged_trial_is_measured_again(config: HarnessConfig, tiny: TinyRun, script: Script) -> None:
    script.decode_errors["autoregressive", WARMUP + 6] = KeyboardInterrupt()
    store = ResultStore(tiny.folder / "results", "run")
    with pytest.MonkeyPatch.context() as patch:
        # as if the process had been killed: the parts stay unmerged
        patch.setattr("harness.results.store.CellWriter.finish", lambda self, record: self.update(record))
        with pytest.raises(Interrupted):
            measure(config)
    parts = sorted((store.path / store.cell_ids()[0] / "observations").glob("part-*.parquet"))
    damaged = parts[len(parts) // 2]
    damaged.write_bytes(damaged.read_bytes()[:-20])
    record = measure(config)
    assert record.status == "ok"
    assert Counter(trials(tiny).index.get_level_values(0)) == dict.fromkeys(VARIANTS, 8)


def test_a_cell_that_is_being_measured_reads_as_partial(
    config: HarnessConfig, tiny: TinyRun, script: Script
) -> None:
    seen: list[str] = []

    def look(requests: object) -> list[object]:
        from runner.scripted_backend import decoded

        seen.append(record_of(tiny).status)
        return [decoded(8, k=0, token_s=0.01)]

    script.answer["autoregressive"] = look  # type: ignore[assignment]
    assert measure(config).status == "ok"
    config.measure.min_repeats = config.measure.max_repeats = 3
    assert measure(config).status == "ok"
    assert seen == ["partial"] * (WARMUP + 8 + WARMUP + 4)
