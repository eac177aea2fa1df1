from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness.records import CellRecord, Observation
from harness.results import Results, ResultStore, load

MakeRecord = Callable[..., CellRecord]
MakeObservation = Callable[..., Observation]

P0: dict[str, Any] = {
    "decode_s": 0.30,
    "total_s": 0.40,
    "trial_s": 0.45,
    "num_target_forwards": 3,
    "step_proposed": [2, 2],
    "step_accepted": [2, 0],
    "step_emitted": [3, 1],
    "step_draft_s": [0.02, 0.02],
    "step_verify_s": [0.11, 0.12],
}
"""All of a draft stands, then none of the next."""

P1: dict[str, Any] = {
    "block": 1,
    "decode_s": 0.37,
    "total_s": 0.47,
    "trial_s": 0.55,
    "num_target_forwards": 4,
    "step_proposed": [2, 0, 1],
    "step_accepted": [1, 0, 1],
    "step_emitted": [2, 1, 1],
    "step_draft_s": [0.02, 0.0, 0.01],
    "step_verify_s": [0.11, 0.10, 0.10],
    "last_step_truncated": True,
}
"""One of two stands, nothing is found, the last step is cut by the limit."""


@pytest.fixture
def two_prompts(
    store: ResultStore, make_record: MakeRecord, make_observation: MakeObservation
) -> Callable[..., Results]:
    """Two prompts, a baseline of 10 tok/s and 0.1 s per step, and `ngram-k2`; extra rows are appended."""

    def make(*extra: Observation, **facts: Any) -> Results:
        writer = store.open_cell(make_record(2, **facts))
        for block, prompt_id in enumerate(("p0", "p1")):
            writer.append([make_observation(prompt_id=prompt_id, block=block)])
        writer.append([make_observation("ngram-k2", **P0), make_observation("ngram-k2", "p1", **P1), *extra])
        return load(store.path)

    return make


def _row(results: Results, variant_id: str = "ngram-k2") -> pd.Series:
    return results.summary().set_index("variant_id").loc[variant_id]


def end(figure: float, without_first: float, without_second: float, side: int) -> float:
    """Student's interval of 1 degree, on the logarithm, with the spread of leaving one of two out."""
    spread = np.hypot(np.log(without_first / figure), np.log(without_second / figure))
    return float(figure * np.exp(side * 12.706204736 * spread))


def test_every_figure_by_hand(two_prompts: Callable[..., Results]) -> None:
    row = _row(two_prompts())
    expected = {
        "num_prompts": 2,
        "num_trials": 2,
        "num_paired": 2,
        "num_output_tokens": 10,
        "decode_tok_per_s": 8 / 0.67,
        "decode_tok_per_s_low": end(8 / 0.67, 4 / 0.37, 4 / 0.30, -1),
        "decode_tok_per_s_high": end(8 / 0.67, 4 / 0.37, 4 / 0.30, 1),
        "end_to_end_tok_per_s": 10 / 0.87,
        "throughput_tok_per_s": 10 / 1.0,
        "speedup": 0.8 / 0.67,
        "speedup_low": end(0.8 / 0.67, 0.4 / 0.37, 0.4 / 0.30, -1),
        "speedup_high": end(0.8 / 0.67, 0.4 / 0.37, 0.4 / 0.30, 1),
        "end_to_end_speedup": 1.0 / 0.87,
        "throughput_speedup": 1.2 / 1.0,
        "acceptance_rate": 4 / 7,
        "acceptance_rate_low": 1 / (1 + 1 / end(4 / 3, 2 / 1, 2 / 2, -1)),
        "acceptance_rate_high": 1 / (1 + 1 / end(4 / 3, 2 / 1, 2 / 2, 1)),
        "iid_acceptance": 4 / 6,
        "num_steps": 5,
        "num_empty_steps": 1,
        "mean_emitted_per_step": 8 / 5,
        "mean_accepted_per_drafting_step": 4 / 4,
        "tokens_per_forward": 10 / 7,
        "ttft_p50_s": 0.1,
        "tpot_p50_s": (0.30 / 4 + 0.37 / 4) / 2,
        "step_p50_s": 0.13,
        "total_p50_s": 0.435,
        "total_p90_s": 0.463,
        "draft_cost_ratio": 0.1,
        "verify_cost_ratio": 1.1,
        # 1.6 tokens for 1.4 drafted tokens; 3 of 5 steps verify two at 1.1, the others one or none at 1
        "predicted_speedup": 1.6 / (1.4 * 0.1 + 0.6 * 1.1 + 0.2 + 0.2),
        "predicted_speedup_iid": (1 + 2 / 3 + 4 / 9) / (2 * 0.1 + 1.1),
        "draft_share": 0.07 / 0.67,
        "verify_share": 0.54 / 0.67,
        "other_share": 0.06 / 0.67,
        "peak_memory_bytes": 1000,
    }
    assert {name: row[name] for name in expected} == pytest.approx(expected, rel=1e-8)
    assert (row["status"], row["method"], row["k"], row["temperature"]) == ("ok", "ngram", 2, 0.0)
    assert row["notes"] is None or pd.isna(row["notes"])


def test_the_baseline_is_one_by_definition(two_prompts: Callable[..., Results]) -> None:
    row = _row(two_prompts(), "autoregressive")
    assert (row["speedup"], row["end_to_end_speedup"], row["throughput_speedup"]) == (1, 1, 1)
    assert row["decode_tok_per_s"] == pytest.approx(10)
    assert row["tokens_per_forward"] == 1
    assert row[["speedup_low", "acceptance_rate", "iid_acceptance", "draft_cost_ratio"]].isna().all()


def test_warmup_counts_nowhere(
    two_prompts: Callable[..., Results], make_observation: MakeObservation
) -> None:
    slow = make_observation("ngram-k2", phase="warmup", decode_s=90.0, ttft_s=90.0, peak_memory_bytes=10**9)
    row = _row(two_prompts(slow))
    assert row["speedup"] == pytest.approx(0.8 / 0.67)
    assert row["ttft_p99_s"] == pytest.approx(0.1)
    assert row["peak_memory_bytes"] == 1000


def test_only_pairs_enter_a_speedup(
    two_prompts: Callable[..., Results], make_observation: MakeObservation
) -> None:
    alone = make_observation("ngram-k2", "p2", block=2, decode_s=40.0)
    half = [
        make_observation("ngram-k2", "p3", block=3, decode_s=40.0),
        make_observation(prompt_id="p3", block=3, status="failed"),
    ]
    row = _row(two_prompts(alone, *half))
    assert row["speedup"] == pytest.approx(0.8 / 0.67)
    assert (row["num_prompts"], row["num_paired"]) == (4, 2)
    assert row["decode_tok_per_s"] == pytest.approx(16 / 80.67)
    assert "2 of 4 sequences have no ok baseline" in row["notes"]


def test_a_baseline_measured_twice_is_averaged(
    two_prompts: Callable[..., Results], make_observation: MakeObservation
) -> None:
    after = [
        make_observation(prompt_id=f"p{i}", block=i, order=9, started_s=8.0, decode_s=0.6) for i in (0, 1)
    ]
    assert _row(two_prompts(*after))["speedup"] == pytest.approx(1.0 / 0.67)


def test_repeats_are_summed_into_their_prompt(
    two_prompts: Callable[..., Results], make_observation: MakeObservation
) -> None:
    once = _row(two_prompts())
    again = [
        observation
        for repeat in (1, 2)
        for observation in (
            make_observation(repeat=repeat, block=2 * repeat),
            make_observation(prompt_id="p1", repeat=repeat, block=2 * repeat + 1),
            make_observation("ngram-k2", **{**P0, "repeat": repeat, "block": 2 * repeat}),
            make_observation("ngram-k2", "p1", **{**P1, "repeat": repeat, "block": 2 * repeat + 1}),
        )
    ]
    thrice = _row(two_prompts(*again))
    assert thrice["num_trials"] == 6
    names = ["speedup", "speedup_low", "speedup_high", "acceptance_rate_low"]
    np.testing.assert_allclose(thrice[names].astype(float), once[names].astype(float))


def test_no_baseline_means_no_speedup_but_a_note(
    store: ResultStore, make_record: MakeRecord, make_observation: MakeObservation
) -> None:
    store.open_cell(make_record(2)).append([make_observation("ngram-k2", **P0)])
    row = _row(load(store.path))
    names = ["speedup", "end_to_end_speedup", "predicted_speedup", "draft_cost_ratio"]
    assert row[names].isna().all()
    assert row["num_paired"] == 0
    assert "no ok trial of the baseline" in row["notes"]
    assert "baseline's step time is unknown" in row["notes"]
    assert row["decode_tok_per_s"] == pytest.approx(4 / 0.30)


def test_a_single_prompt_has_an_estimate_and_no_interval(
    store: ResultStore, make_record: MakeRecord, make_observation: MakeObservation
) -> None:
    store.open_cell(make_record(2)).append([make_observation(), make_observation("ngram-k2", **P0)])
    row = _row(load(store.path))
    assert row["speedup"] == pytest.approx(0.4 / 0.30)
    assert row[["speedup_low", "speedup_high", "acceptance_rate_low"]].isna().all()
    assert row["notes"] == "an interval needs two or more prompts (or batches of prompts)"


def test_unknown_steps_are_null_with_their_reason(
    store: ResultStore, make_record: MakeRecord, make_observation: MakeObservation
) -> None:
    unknown: dict[str, Any] = dict.fromkeys([name for name in P0 if name.startswith("step_")])
    unknown["steps_missing_reason"] = "the server reports no steps"
    rows = [
        make_observation(variant_id, prompt_id, block=block, **unknown)
        for variant_id in ("autoregressive", "ngram-k2")
        for block, prompt_id in enumerate(("p0", "p1"))
    ]
    store.open_cell(make_record(2)).append(rows)
    row = _row(load(store.path))
    assert row["speedup"] == pytest.approx(1.0)
    names = [
        "acceptance_rate",
        "iid_acceptance",
        "step_p50_s",
        "draft_share",
        "num_steps",
        "predicted_speedup",
    ]
    assert row[names].isna().all()
    assert row["notes"] == "steps: the server reports no steps"


def test_steps_that_were_counted_but_not_timed_give_acceptance_only(
    two_prompts: Callable[..., Results],
    store: ResultStore,
    make_record: MakeRecord,
    make_observation: MakeObservation,
) -> None:
    untimed = {"step_draft_s": None, "step_verify_s": None}
    store.open_cell(make_record(2)).append(
        [
            make_observation("ngram-k2", **(P0 | untimed)),
            make_observation("ngram-k2", "p1", **(P1 | untimed)),
            make_observation(),
            make_observation(prompt_id="p1", block=1),
        ]
    )
    row = _row(load(store.path))
    assert row["acceptance_rate"] == pytest.approx(4 / 7)
    assert row[["draft_share", "predicted_speedup", "step_p50_s"]].isna().all()
    assert "weren't timed" in row["notes"]


def test_no_full_draft_means_no_prediction(
    store: ResultStore, make_record: MakeRecord, make_observation: MakeObservation
) -> None:
    store.open_cell(make_record(7)).append(
        [make_observation(), make_observation("ngram-k7", **P0)],
    )
    row = _row(load(store.path), "ngram-k7")
    assert pd.isna(row["predicted_speedup"])
    assert "no step drafted all 7 tokens" in row["notes"]


def test_a_failed_variant_is_a_row_with_its_error(store: ResultStore, make_record: MakeRecord) -> None:
    record = make_record(4)
    record.variants[1] |= {"status": "failed", "error": "OutOfMemoryError: 3 GiB needed"}
    store.open_cell(record)
    row = _row(load(store.path), "ngram-k4")
    assert (row["status"], row["num_trials"]) == ("failed", 0)
    assert row["notes"] == "failed: OutOfMemoryError: 3 GiB needed; no measured trial was ok"


def _seconds(factor: float) -> dict[str, float]:
    seconds = {"ttft_s": 0.1, "decode_s": 0.4, "total_s": 0.5, "trial_s": 0.5}
    return {name: value / factor for name, value in seconds.items()}


def _batch(make: MakeObservation, block: int, prompts: list[str], *, repeat: int = 0) -> list[Observation]:
    """Variant twice as fast as the baseline in even blocks, as fast in odd ones; 0.5 s per baseline batch."""
    fast = 2.0 if block % 2 == 0 else 1.0
    return [
        make(variant_id, prompt, block=block, repeat=repeat, **_seconds(f))
        for variant_id, f in (("autoregressive", 1.0), ("ngram-k2", fast))
        for prompt in prompts
    ]


def test_a_batch_counts_its_seconds_once_and_stays_together(
    store: ResultStore, make_record: MakeRecord, make_observation: MakeObservation
) -> None:
    writer = store.open_cell(make_record(2, batch_size=3))
    writer.append(_batch(make_observation, 0, ["a", "b", "c"]))
    writer.append(_batch(make_observation, 1, ["d", "e", "f"]))
    results = load(store.path)
    baseline, variant = _row(results, "autoregressive"), _row(results)
    assert baseline["throughput_tok_per_s"] == pytest.approx(30 / 1.0)
    assert variant["throughput_tok_per_s"] == pytest.approx(30 / 0.75)
    assert variant["num_trials"] == 2
    # 0.4 s from the first token to the last, 0.5 s from the call: once per batch, not once per sequence
    assert baseline["decode_tok_per_s"] == pytest.approx(24 / 0.8)
    assert baseline["end_to_end_tok_per_s"] == pytest.approx(30 / 1.0)
    assert variant["decode_tok_per_s"] == pytest.approx(24 / 0.6)
    # Two units, the batches, of which one ran at 1.0 and one at 2.0; six would leave much less doubt.
    ends = [end(variant["speedup"], 1.0, 2.0, side) for side in (-1, 1)]
    assert [variant["speedup_low"], variant["speedup_high"]] == pytest.approx(ends)


def test_a_batch_decodes_until_its_last_sequence_ends(
    store: ResultStore, make_record: MakeRecord, make_observation: MakeObservation
) -> None:
    writer = store.open_cell(make_record(2, batch_size=2))
    for block, prompts in enumerate((("a", "b"), ("c", "d"))):
        for variant_id, seconds in (("autoregressive", (0.4, 0.8)), ("ngram-k2", (0.4, 0.1))):
            rows = [
                make_observation(variant_id, prompt, block=block, decode_s=own, total_s=0.1 + own)
                for prompt, own in zip(prompts, seconds, strict=True)
            ]
            writer.append(rows)
    results = load(store.path)
    row = _row(results)
    assert row["speedup"] == pytest.approx(0.8 / 0.4)
    assert row["end_to_end_speedup"] == pytest.approx(0.9 / 0.5)
    # by task it is each sequence's own seconds that count
    by_task = results.by_task().set_index("variant_id").loc["ngram-k2"]
    assert by_task["speedup"] == pytest.approx(1.2 / 0.5)


def test_prompts_that_met_in_any_block_are_one_unit(
    store: ResultStore, make_record: MakeRecord, make_observation: MakeObservation
) -> None:
    writer = store.open_cell(make_record(2, batch_size=2))
    writer.append(_batch(make_observation, 0, ["a", "b"]))
    writer.append(_batch(make_observation, 1, ["c", "d"]))
    writer.append(_batch(make_observation, 2, ["b", "c"], repeat=1))
    row = _row(load(store.path))
    assert pd.isna(row["speedup_low"])
    assert "two or more prompts (or batches" in row["notes"]


def test_figures_of_a_plausible_sweep_agree_with_each_other(synthetic: Results) -> None:
    summary = synthetic.summary()
    assert len(summary) == 33
    drafting = summary[~summary["is_baseline"]]
    assert (drafting["speedup_low"] <= drafting["speedup"]).all()
    assert (drafting["speedup"] <= drafting["speedup_high"]).all()
    assert drafting["notes"].isna().all()
    # The synthetic sequences spend their time as the theory says, up to 3 % of overhead per step.
    np.testing.assert_allclose(drafting["predicted_speedup"], drafting["speedup"], rtol=0.05)
    shares = drafting[["draft_share", "verify_share", "other_share"]]
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    by_temperature = drafting.groupby("temperature")["acceptance_rate"].mean()
    assert by_temperature.is_monotonic_decreasing


def test_tokens_that_came_with_the_prompts_step_are_no_decoded_tokens(
    store: ResultStore, make_record: MakeRecord, make_observation: MakeObservation
) -> None:
    """An engine that drafts before it has read the prompt: five tokens in bursts of three and two."""
    writer = store.open_cell(make_record(2))
    burst = {"step_proposed": [2, 2], "step_accepted": [2, 1], "step_emitted": [3, 2], "decode_s": 0.1}
    timed = {"step_draft_s": [0.02, 0.02], "step_verify_s": [0.11, 0.08]}
    for block, prompt_id in enumerate(("p0", "p1")):
        writer.append([make_observation(prompt_id=prompt_id, block=block)])
        writer.append([make_observation("ngram-k2", prompt_id, block=block, **burst, **timed)])
    row = load(store.path).summary().set_index("variant_id").loc["ngram-k2"]
    assert row["decode_tok_per_s"] == pytest.approx(2 / 0.1)
    assert row["tpot_p50_s"] == pytest.approx(0.1 / 2)


def test_steps_timed_as_a_whole_have_a_latency_and_no_prediction(
    store: ResultStore, make_record: MakeRecord, make_observation: MakeObservation
) -> None:
    writer = store.open_cell(make_record(2))
    untimed = {"step_draft_s": None, "step_verify_s": None}
    for block, prompt_id in enumerate(("p0", "p1")):
        whole = {"step_s": [0.1] * 4, **untimed}
        writer.append([make_observation(prompt_id=prompt_id, block=block, **whole)])
        whole = {**P0, **untimed, "step_s": [0.2, 0.3], "block": block}
        writer.append([make_observation("ngram-k2", prompt_id, **whole)])
    row = load(store.path).summary().set_index("variant_id").loc["ngram-k2"]
    assert row["step_p50_s"] == pytest.approx(0.25)
    assert np.isnan(row["predicted_speedup"])
    assert "weren't timed apart" in row["notes"]


def test_drafts_below_k_get_no_prediction_from_k(
    two_prompts: Callable[..., Results], make_observation: MakeObservation
) -> None:
    short = {**P1, "step_proposed": [1, 0, 1], "step_accepted": [1, 0, 1]}
    row = _row(two_prompts(*(make_observation("ngram-k2", "p1", **{**short, "block": n}) for n in (2, 3))))
    assert row["predicted_speedup"] > 0
    assert pd.isna(row["predicted_speedup_iid"])
    assert "predicted_speedup_iid: most steps drafted fewer than 2 tokens" in row["notes"]
