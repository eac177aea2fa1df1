from __future__ import annotations

import gc

import pytest
from runner.scripted_backend import Script, ScriptedSession, decoded
from tiny_runs import TinyRun

from harness.errors import MeasurementError
from harness.records import Phase, Status, Variant
from harness.runner.plan import CellPlan, plan_cell
from harness.runner.schedule import Block, blocks, sequence_seed
from harness.runner.trial import no_garbage_collection, run_trial, unmeasured, warmup_blocks


@pytest.fixture
def plan(tiny: TinyRun, script: Script) -> CellPlan:
    return plan_cell(tiny.config(backend__name="scripted", batch_size=2, measure__warmup_prompts=2))


@pytest.fixture
def block(plan: CellPlan) -> Block:
    return list(blocks(plan.prompts, plan.variants, batch_size=2, repeats=2, seed=0))[3]


def test_a_trial_is_one_complete_row_per_sequence(plan: CellPlan, block: Block, script: Script) -> None:
    variant = plan.variants[1]
    rows = run_trial(ScriptedSession(script), plan, variant, block, phase=Phase.MEASURE, epoch=0.0)
    assert [row.prompt_id for row in rows] == ["mine-2", "mine-3"]
    for row, prompt in zip(rows, block.prompts, strict=True):
        assert (row.cell_id, row.variant_id) == (plan.cell_id, "draft_model-k2")
        assert (row.phase, row.status, row.error) == ("measure", "ok", None)
        assert (row.repeat, row.block, row.order) == (1, 3, block.order.index(variant))
        assert row.task == prompt.task
        assert row.seed == sequence_seed(0, variant, prompt, 1)
        assert row.num_prompt_tokens == len(prompt.tokens)
        assert (row.num_output_tokens, row.finish_reason) == (8, "length")
        assert row.output_tokens == list(range(8))
        assert row.decode_s == pytest.approx(0.07)
        assert row.total_s == pytest.approx(0.08)
        assert row.ttft_s == pytest.approx(0.01)
        assert (row.num_target_forwards, row.last_step_truncated) == (8, False)
        assert row.step_proposed == [2, 2, 2, 2, 2, 1, 0]
        assert row.step_accepted == [0] * 7
        assert row.step_emitted == [1] * 7
        assert row.step_draft_s == [0.0025] * 7
        assert row.step_verify_s == [0.005] * 7
        assert row.steps_missing_reason is None
        assert row.peak_memory_bytes == 123
    # one call decoded both, so they share its time
    assert rows[0].trial_s == rows[1].trial_s
    assert rows[0].trial_s is not None
    assert 0 < rows[0].trial_s < 1
    assert rows[0].started_s == rows[1].started_s


def test_sequences_get_their_own_seeds(plan: CellPlan, block: Block, script: Script) -> None:
    rows = run_trial(ScriptedSession(script), plan, plan.variants[0], block, phase=Phase.MEASURE, epoch=0.0)
    assert script.decoded[0][2] == tuple(row.seed for row in rows)
    assert rows[0].seed != rows[1].seed


def test_started_s_counts_from_the_epoch(plan: CellPlan, block: Block, script: Script) -> None:
    from time import perf_counter

    epoch = perf_counter() - 100
    rows = run_trial(ScriptedSession(script), plan, plan.variants[0], block, phase=Phase.MEASURE, epoch=epoch)
    assert rows[0].started_s is not None
    assert 100 <= rows[0].started_s < 110


def test_steps_a_backend_cannot_tell_are_null_with_the_reason(
    plan: CellPlan, block: Block, script: Script
) -> None:
    def without_steps(requests: object) -> list[object]:
        sequences = [decoded(8, k=2, token_s=0.01) for _ in range(2)]
        for sequence in sequences:
            sequence.steps, sequence.steps_missing_reason = None, "not told"
        return sequences

    script.answer["draft_model-k2"] = without_steps  # type: ignore[assignment]
    rows = run_trial(ScriptedSession(script), plan, plan.variants[1], block, phase=Phase.MEASURE, epoch=0.0)
    assert {row.steps_missing_reason for row in rows} == {"not told"}
    assert all(row.step_proposed is None and row.step_verify_s is None for row in rows)
    assert all(row.num_output_tokens == 8 for row in rows)


@pytest.mark.parametrize("lengths", [[8], [8, 8, 8], [8, 0], []])
def test_missing_or_empty_sequences_are_no_measurement(
    lengths: list[int], plan: CellPlan, block: Block, script: Script
) -> None:
    script.answer["draft_model-k2"] = lambda requests: [decoded(n, k=2, token_s=0.01) for n in lengths]
    with pytest.raises(MeasurementError, match=r"draft_model-k2: asked for 2 sequences, got \["):
        run_trial(ScriptedSession(script), plan, plan.variants[1], block, phase=Phase.MEASURE, epoch=0.0)


def test_the_collector_is_off_while_a_trial_decodes(plan: CellPlan, block: Block, script: Script) -> None:
    assert gc.isenabled()
    run_trial(ScriptedSession(script), plan, plan.variants[0], block, phase=Phase.MEASURE, epoch=0.0)
    assert [ran for *_, ran in script.decoded] == [False]
    assert gc.isenabled()


def test_the_collector_comes_back_after_an_error() -> None:
    def fail() -> None:
        with no_garbage_collection():
            assert not gc.isenabled()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with no_garbage_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_garbage_is_collected_before_a_trial() -> None:
    class Loop:
        pass

    from weakref import ref

    loop = Loop()
    loop.self = loop  # type: ignore[attr-defined]
    gone = ref(loop)
    del loop
    with no_garbage_collection():
        assert gone() is None


def test_unmeasured_rows_carry_no_number(plan: CellPlan, block: Block) -> None:
    rows = unmeasured(
        plan, plan.variants[1], block, phase=Phase.MEASURE, status=Status.SKIPPED, error="no memory"
    )
    assert [row.prompt_id for row in rows] == ["mine-2", "mine-3"]
    for row in rows:
        assert (row.status, row.error) == ("skipped", "no memory")
        assert row.decode_s is row.trial_s is row.num_output_tokens is row.step_proposed is None
        assert row.seed == sequence_seed(0, plan.variants[1], block.prompts[rows.index(row)], 1)


def test_warmup_has_a_block_per_prompt_filled_to_the_batch(plan: CellPlan) -> None:
    found = list(warmup_blocks(plan, plan.variants))
    assert [[prompt.prompt_id for prompt in block.prompts] for block in found] == [
        ["warm-0", "warm-0"],
        ["warm-1", "warm-1"],
    ]
    assert all(block.order == plan.variants for block in found)
    assert isinstance(found[0].order[0], Variant)
