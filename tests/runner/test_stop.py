from __future__ import annotations

import pandas as pd
import pytest

from harness.config.schema import MeasureConfig
from harness.records import Observation, Phase, Status
from harness.runner.stop import StopRule

NUM_PROMPTS = 6


def rule(**settings: float) -> StopRule:
    config = MeasureConfig(**{"min_repeats": 1, "max_repeats": 4, "max_time_s": 1e6, **settings})  # type: ignore[arg-type]
    return StopRule(config, baseline_id="base", num_blocks=NUM_PROMPTS)


def row(
    variant: str,
    prompt: int,
    repeat: int,
    decode_s: float,
    *,
    phase: Phase = Phase.MEASURE,
    status: Status = Status.OK,
) -> Observation:
    return Observation(
        cell_id="c",
        variant_id=variant,
        phase=phase.value,
        repeat=repeat,
        block=repeat * NUM_PROMPTS + prompt,
        order=0,
        prompt_id=f"p{prompt}",
        task="chat",
        seed=0,
        status=status.value,
        trial_s=decode_s + 1.0,
        num_output_tokens=11,
        ttft_s=0.5,
        decode_s=decode_s,
        total_s=0.5 + decode_s,
    )


def steady(repeats: int) -> list[Observation]:
    """A drafter exactly twice as fast on every prompt: its interval has no width."""
    return [
        row(variant, prompt, repeat, seconds)
        for repeat in range(repeats)
        for prompt in range(NUM_PROMPTS)
        for variant, seconds in (("base", 2.0), ("fast", 1.0))
    ]


def noisy(repeats: int) -> list[Observation]:
    """A drafter that gains on some prompts and loses on others."""
    return [
        row(variant, prompt, repeat, seconds)
        for repeat in range(repeats)
        for prompt in range(NUM_PROMPTS)
        for variant, seconds in (("base", 2.0), ("fast", 0.5 + prompt))
    ]


def fed(stop: StopRule, rows: list[Observation]) -> StopRule:
    for one in rows:
        stop.add([one])
    return stop


def test_goes_on_before_anything_is_measured() -> None:
    assert rule().reason(0) is None


def test_stops_as_soon_as_every_interval_is_narrow() -> None:
    stop = fed(rule(), steady(1))
    assert stop.reason(NUM_PROMPTS) == "precision"


def test_precision_counts_only_after_whole_passes() -> None:
    stop = fed(rule(), steady(1))
    assert stop.reason(NUM_PROMPTS - 1) is None
    assert stop.reason(NUM_PROMPTS + 1) is None


def test_least_passes_come_first() -> None:
    stop = fed(rule(min_repeats=2), steady(2))
    assert stop.reason(NUM_PROMPTS) is None
    assert stop.reason(2 * NUM_PROMPTS) == "precision"


def test_wide_intervals_go_on_to_the_last_pass() -> None:
    stop = fed(rule(), noisy(4))
    assert [stop.reason(n * NUM_PROMPTS) for n in (1, 2, 3)] == [None, None, None]
    assert stop.reason(4 * NUM_PROMPTS) == "max_repeats"


def test_one_wide_variant_keeps_all_going() -> None:
    wide = [row("slow", prompt, 0, 0.5 + prompt) for prompt in range(NUM_PROMPTS)]
    assert fed(rule(), steady(1) + wide).reason(NUM_PROMPTS) is None


def test_a_looser_target_is_met_sooner() -> None:
    assert fed(rule(target_precision=5.0), noisy(1)).reason(NUM_PROMPTS) == "precision"


def test_time_ends_it_before_any_block() -> None:
    stop = rule(max_time_s=10.0, min_repeats=3, max_repeats=3)
    stop.add([row("base", 0, 0, 5.0)])  # six seconds of wall time
    assert stop.reason(1) is None
    stop.add([row("fast", 0, 0, 3.0)])
    assert stop.elapsed_s == pytest.approx(10.0)
    assert stop.reason(1) == "max_time"


def test_a_batch_takes_its_time_once() -> None:
    stop = rule()
    stop.add([row("base", 0, 0, 2.0), row("base", 1, 0, 2.0)])
    assert stop.elapsed_s == pytest.approx(3.0)


def test_a_batch_decodes_until_its_last_sequence_ends() -> None:
    stop, first, second = rule(), [2.0, 1.0], [3.0, 6.0]
    for block, factor in enumerate((1.0, 1.5)):
        for variant, seconds in (("base", second), ("fast", [factor * one for one in first])):
            batch = [row(variant, 2 * block + place, 0, one) for place, one in enumerate(seconds)]
            for one in batch:
                one.block = block
            stop.add(batch)
    found = stop.speedup("fast")
    assert found is not None
    # the same tokens on both sides: 6 + 6 seconds over 2 + 3, and two batches that are resampled
    assert (found.estimate, found.num_units) == (pytest.approx(12 / 5), 2)


def test_warmup_and_failed_trials_count_for_nothing() -> None:
    stop = rule(max_time_s=1.0)
    stop.add([row("base", 0, 0, 9.0, phase=Phase.WARMUP)])
    stop.add([row("base", 0, 0, 9.0, status=Status.FAILED)])
    assert stop.elapsed_s == 0.0
    assert stop.reason(0) is None


def test_the_baseline_alone_needs_no_interval() -> None:
    alone = [row("base", prompt, 0, 2.0) for prompt in range(NUM_PROMPTS)]
    assert fed(rule(), alone).reason(NUM_PROMPTS) == "precision"


def test_one_prompt_has_no_interval_and_so_no_precision() -> None:
    stop = StopRule(MeasureConfig(max_repeats=2), baseline_id="base", num_blocks=1)
    fed(stop, [row("base", 0, 0, 2.0), row("fast", 0, 0, 1.0)])
    assert stop.reason(1) is None
    assert stop.reason(2) == "max_repeats"


@pytest.mark.parametrize("history", [steady(2), noisy(3), noisy(2)[:17]])
def test_stored_observations_replay_to_the_same_decision(history: list[Observation]) -> None:
    others = [
        row("base", 0, 0, 9.0, phase=Phase.WARMUP),
        row("fast", 1, 0, 9.0, status=Status.SKIPPED),
    ]
    stored = pd.DataFrame([one.row() for one in [*others, *history]])
    live, replayed = fed(rule(), others + history), rule()
    replayed.replay(stored)
    assert replayed.elapsed_s == pytest.approx(live.elapsed_s)
    assert [replayed.reason(n) for n in range(30)] == [live.reason(n) for n in range(30)]


def test_a_stored_batch_takes_its_time_once() -> None:
    batch = [row("base", 0, 0, 2.0), row("base", 1, 0, 2.0)]
    for one in batch:
        one.block = 0
    stop = rule()
    stop.replay(pd.DataFrame([one.row() for one in batch]))
    assert stop.elapsed_s == pytest.approx(3.0)
