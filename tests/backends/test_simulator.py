from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from harness.backends.base import DecodingSettings, EngineSettings, SequenceRequest
from harness.backends.simulator.acceptance import position_alphas, spread_out
from harness.backends.simulator.backend import SimulatorBackend, SimulatorSession
from harness.config.simulated import DraftingConfig, FailureConfig, SimulatorConfig, TaskConfig
from harness.errors import OutOfMemoryError, UnsupportedError
from harness.metrics.acceptance import position_rates
from harness.metrics.theory import iid_acceptance
from harness.models.stand_in import EOS_ID, stand_in_model
from harness.records import Decoded, FinishReason, Variant

BASELINE = Variant("autoregressive")
STEP_S = 0.5


def draft(k: int, method: str = "draft_model") -> Variant:
    return Variant(method, k, "path:d" if method == "draft_model" else None)


def opened(**settings: Any) -> SimulatorSession:
    return SimulatorSession(SimulatorConfig(**{"step_s": STEP_S, **settings}))


def decode(
    session: SimulatorSession,
    variant: Variant,
    *,
    num: int = 1,
    limit: int = 100,
    temperature: float = 0.0,
    together: bool = False,
    eos_ids: frozenset[int] = frozenset(),
    task: str = "",
    seed: int = 0,
) -> list[Decoded]:
    """Decode `num` prompts of 10 tokens, one after another or together."""
    settings = DecodingSettings(
        temperature=temperature, top_k=0, top_p=1.0, eos_ids=eos_ids, context_tokens=limit + 10
    )
    session.prepare(variant, None, settings)
    requests = [SequenceRequest((n,) * 10, limit, seed * 100_000 + n, task) for n in range(num)]
    batches = [requests] if together else [[request] for request in requests]
    return [sequence for batch in batches for sequence in session.decode(variant, batch, settings)]


def steps(sequences: Sequence[Decoded], name: str) -> np.ndarray[Any, Any]:
    return np.concatenate([np.asarray(getattr(sequence.steps, name)) for sequence in sequences])


def alpha_of(sequences: Sequence[Decoded]) -> float:
    """Maximum-likelihood alpha of the steps."""
    proposed, accepted = steps(sequences, "proposed"), steps(sequences, "accepted")
    alpha = iid_acceptance(int(accepted.sum()), int((accepted < proposed).sum()))
    assert alpha is not None
    return alpha


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.8, 0.95])
@pytest.mark.parametrize("k", [1, 3, 8])
def test_independent_acceptance_is_the_configured_one(alpha: float, k: int) -> None:
    session = opened(draft_model=DraftingConfig(alpha=alpha))
    assert alpha_of(decode(session, draft(k), num=80, limit=300)) == pytest.approx(alpha, abs=0.015)


@pytest.mark.parametrize(("alpha", "emitted"), [(0.0, 1), (1.0, 5)])
def test_never_and_always_are_exact(alpha: float, emitted: int) -> None:
    (sequence,) = decode(opened(draft_model=DraftingConfig(alpha=alpha)), draft(4), limit=41)
    assert set(steps([sequence], "emitted")) == {emitted}
    assert sequence.num_target_forwards == 1 + 40 // emitted


def test_acceptance_by_position_is_the_configured_one() -> None:
    session = opened(draft_model=DraftingConfig(alpha=[0.9, 0.5, 0.8]))
    sequences = decode(session, draft(5), num=200, limit=300)
    rates = position_rates(steps(sequences, "proposed"), steps(sequences, "accepted"))
    # past the end of the list its last value goes on
    assert rates.conditional == pytest.approx([0.9, 0.5, 0.8, 0.8, 0.8], abs=0.02)


def test_temperature_and_task_move_alpha() -> None:
    drafting = DraftingConfig(alpha=0.7, temperature_effect=0.2)
    session = opened(draft_model=drafting, tasks=[TaskConfig("hard", -0.3), TaskConfig("easy", 0.1)])
    for temperature, task, expected in (
        (0, "other", 0.7),
        (1, "other", 0.5),
        (1, "hard", 0.2),
        (0, "easy", 0.8),
    ):
        found = alpha_of(decode(session, draft(4), num=60, limit=300, temperature=temperature, task=task))
        assert found == pytest.approx(expected, abs=0.02)


def test_alpha_stays_within_0_and_1() -> None:
    for alpha, offset, expected in ((0.9, 0.5, 1.0), (0.2, -0.5, 0.0)):
        drafting = DraftingConfig(alpha=alpha, temperature_effect=0.0)
        found = position_alphas(drafting, 2, temperature=0, offset=offset, spread=0.3, quantile=0.4)
        assert found == [expected] * 2


@pytest.mark.parametrize("mean", [0.1, 0.5, 0.8])
@pytest.mark.parametrize("spread", [0.1, 0.4, 0.9])
def test_the_spread_over_prompts_keeps_the_mean(mean: float, spread: float) -> None:
    quantiles = (np.arange(4000) + 0.5) / 4000
    alphas = np.array([spread_out(mean, spread, float(quantile)) for quantile in quantiles])
    assert alphas.mean() == pytest.approx(mean, abs=2e-3)
    assert alphas.std() == pytest.approx(spread * math.sqrt(mean * (1 - mean)), abs=5e-3)
    assert (np.diff(alphas) >= 0).all()


def test_a_prompt_is_as_easy_for_every_k() -> None:
    session = opened(prompt_spread=0.6, draft_model=DraftingConfig(alpha=0.5))
    found = [
        [alpha_of([sequence]) for sequence in decode(session, draft(k), num=40, limit=1000)] for k in (3, 6)
    ]
    assert np.corrcoef(found)[0, 1] > 0.98
    assert np.std(found[0]) == pytest.approx(0.3, abs=0.08)


def test_steps_add_up_to_the_output() -> None:
    for sequence in decode(opened(), draft(4), num=20, limit=50):
        proposed, accepted, emitted = (
            steps([sequence], name) for name in ("proposed", "accepted", "emitted")
        )
        left = 49 - np.concatenate([[0], emitted.cumsum()[:-1]])
        assert proposed.tolist() == np.minimum(4, left - 1).tolist()
        assert emitted.tolist() == (accepted + 1).tolist()
        assert (1 + emitted.sum(), len(sequence.tokens)) == (50, 50)
        assert sequence.num_target_forwards == 1 + len(emitted)
        assert (sequence.finish_reason, sequence.last_step_truncated) == (FinishReason.LENGTH, False)


def test_seconds_of_one_sequence_by_hand() -> None:
    session = opened(
        verify_slope=0.1,
        overhead_s=0.03,
        prefill_s_per_token=0.2,
        draft_model=DraftingConfig(cost=0.25, alpha=1.0),
    )
    before = session.clock()
    (sequence,) = decode(session, draft(3), limit=9)
    # 1 token of the prefill, 4 and 4 of full steps
    assert sequence.steps is not None
    assert sequence.steps.draft_s == pytest.approx([3 * 0.25 * STEP_S] * 2)
    assert sequence.steps.verify_s == pytest.approx([1.3 * STEP_S] * 2)
    assert sequence.ttft_s == pytest.approx(10 * 0.2 * 1.25)
    assert sequence.decode_s == pytest.approx(2 * (2.05 * STEP_S + 0.03))
    assert sequence.total_s == sequence.ttft_s + sequence.decode_s
    assert session.clock() - before == pytest.approx(sequence.total_s)
    (plain,) = decode(session, BASELINE, limit=9)
    assert plain.decode_s == pytest.approx(8 * (STEP_S + 0.03))
    assert plain.ttft_s == pytest.approx(2.0)


def test_seconds_of_a_batch_by_hand() -> None:
    session = opened(
        verify_slope=0.1,
        batch_slope=0.2,
        prefill_s_per_token=0.01,
        draft_model=DraftingConfig(cost=0.25, alpha=1.0),
    )
    before = session.clock()
    sequences = decode(session, draft(3), num=4, limit=5, together=True)
    for sequence in sequences:
        assert sequence.steps is not None
        assert sequence.steps.draft_s == pytest.approx([1.6 * 3 * 0.25 * STEP_S])
        assert sequence.steps.verify_s == pytest.approx([(1.6 + 0.1 * 12) * STEP_S])
        assert sequence.ttft_s == pytest.approx(40 * 0.01 * 1.25)
    assert session.clock() - before == pytest.approx(sequences[0].total_s)


def test_a_sequence_that_ends_leaves_its_batch() -> None:
    session = opened(batch_slope=1.0, prefill_s_per_token=0.0)
    settings = DecodingSettings(temperature=0, top_k=0, top_p=1, eos_ids=frozenset(), context_tokens=20)
    session.prepare(BASELINE, None, settings)
    before = session.clock()
    requests = [SequenceRequest((1,), 3, 1), SequenceRequest((2,), 5, 2)]
    short, long = session.decode(BASELINE, requests, settings)
    assert steps([short], "verify_s") == pytest.approx([2 * STEP_S] * 2)
    assert steps([long], "verify_s") == pytest.approx([2 * STEP_S] * 2 + [STEP_S] * 2)
    assert session.clock() - before == pytest.approx(6 * STEP_S)


def test_sequences_of_a_batch_accept_each_for_itself() -> None:
    session = opened(draft_model=DraftingConfig(alpha=0.6))
    sequences = decode(session, draft(4), num=8, limit=60, together=True)
    assert len({tuple(steps([sequence], "accepted")) for sequence in sequences}) == 8


def test_step_noise_is_log_normal_of_mean_1() -> None:
    factors = steps(decode(opened(step_noise=0.2), BASELINE, num=20, limit=500), "verify_s") / STEP_S
    assert np.log(factors).std() == pytest.approx(0.2, abs=0.01)
    assert factors.mean() == pytest.approx(1, abs=0.01)
    assert abs(np.corrcoef(factors[:-1], factors[1:])[0, 1]) < 0.05


def test_trial_noise_is_shared_by_a_trial() -> None:
    sequences = decode(opened(trial_noise=0.3), BASELINE, num=400, limit=3)
    assert all(len(set(steps([sequence], "verify_s"))) == 1 for sequence in sequences)
    factors = np.array([steps([sequence], "verify_s")[0] for sequence in sequences]) / STEP_S
    assert np.log(factors).std() == pytest.approx(0.3, abs=0.04)
    assert factors.mean() == pytest.approx(1, abs=0.05)


def test_outliers_are_as_many_and_as_slow_as_configured() -> None:
    session = opened(outlier_probability=0.02, outlier_factor=7.0)
    factors = steps(decode(session, BASELINE, num=20, limit=500), "verify_s") / STEP_S
    assert set(factors.round(6)) == {1.0, 7.0}
    assert (factors > 1).mean() == pytest.approx(0.02, abs=0.005)


def test_drift_slows_every_hour_by_as_much() -> None:
    session = opened(drift_per_hour=0.5, load_s=0.0, prefill_s_per_token=0.0)
    seconds = steps(decode(session, BASELINE, num=1, limit=20_000), "verify_s")
    elapsed_s = seconds.cumsum() - seconds
    assert seconds == pytest.approx(STEP_S * (1 + 0.5 * elapsed_s / 3600))
    assert elapsed_s[-1] > 3 * 3600


def test_a_share_of_steps_drafts_nothing() -> None:
    session = opened(ngram=DraftingConfig(empty=0.4, alpha=0.5))
    sequences = decode(session, draft(3, "ngram"), num=50, limit=400)
    proposed, drafts = steps(sequences, "proposed"), steps(sequences, "draft_s")
    assert (proposed == 0).mean() == pytest.approx(0.4, abs=0.02)
    assert set(drafts[proposed == 0]) == {0.0}
    assert set(steps(sequences, "emitted")[proposed == 0]) == {1}


def test_methods_have_settings_of_their_own() -> None:
    session = opened(
        draft_model=DraftingConfig(alpha=1.0, cost=0.2), ngram=DraftingConfig(alpha=0.0, cost=0.01)
    )
    (model,), (lookup,) = decode(session, draft(3)), decode(session, draft(3, "ngram"))
    assert (set(steps([model], "accepted")) - {0}, set(steps([lookup], "accepted"))) == ({3, 2}, {0})
    assert steps([lookup], "draft_s")[0] == pytest.approx(3 * 0.01 * STEP_S)
    with pytest.raises(UnsupportedError, match=r"no settings for method.name='medusa'"):
        decode(session, draft(3, "medusa"))


def test_greedy_output_depends_on_nothing_but_the_prompt() -> None:
    session = opened(eos_probability=0.01)
    eos = frozenset({EOS_ID})
    plain = [sequence.tokens for sequence in decode(session, BASELINE, num=6, eos_ids=eos)]
    for variant, together, seed in ((BASELINE, True, 1), (draft(3), False, 2), (draft(5, "ngram"), True, 3)):
        again = decode(session, variant, num=6, eos_ids=eos, together=together, seed=seed)
        assert [sequence.tokens for sequence in again] == plain
    assert len({tuple(tokens) for tokens in plain}) == 6
    other = decode(opened(eos_probability=0.01, seed=1), BASELINE, num=6, eos_ids=eos)
    assert all(sequence.tokens not in plain for sequence in other)


def test_a_longer_limit_goes_on_where_a_shorter_one_stopped() -> None:
    session = opened()
    (short,), (long,) = decode(session, BASELINE, limit=20), decode(session, BASELINE, limit=50)
    assert long.tokens[:20] == short.tokens


def test_sampled_output_depends_on_the_seed() -> None:
    session = opened()
    outputs = [decode(session, BASELINE, temperature=0.7, seed=seed)[0].tokens for seed in (1, 1, 2)]
    assert outputs[0] == outputs[1] != outputs[2]


def test_a_fresh_session_repeats_everything() -> None:
    settings = {"step_noise": 0.1, "trial_noise": 0.1, "prompt_spread": 0.3, "outlier_probability": 0.1}
    first, second = (decode(opened(**settings), draft(4), num=5, temperature=1.0) for _ in range(2))
    assert first == second


def test_an_end_token_comes_with_its_probability() -> None:
    sequences = decode(
        opened(eos_probability=0.05, draft_model=DraftingConfig(alpha=0.8)),
        draft(6),
        num=1500,
        limit=400,
        eos_ids=frozenset({EOS_ID}),
    )
    lengths = np.array([len(sequence.tokens) for sequence in sequences])
    assert lengths.mean() == pytest.approx(20, rel=0.08)
    assert all(sequence.finish_reason == FinishReason.EOS for sequence in sequences)
    assert all(sequence.tokens[-1] == EOS_ID for sequence in sequences)
    assert all(EOS_ID not in sequence.tokens[:-1] for sequence in sequences)
    assert all(1 + steps([s], "emitted").sum() == len(s.tokens) for s in sequences if len(s.tokens) > 1)
    cut = [s for s in sequences if s.last_step_truncated]
    assert 0.3 < len(cut) / len(sequences) < 0.9
    for sequence in cut:
        assert steps([sequence], "emitted")[-1] <= steps([sequence], "accepted")[-1]
    # what is cut off was accepted all the same
    assert alpha_of(sequences) == pytest.approx(0.8, abs=0.015)


def test_ignoring_the_end_writes_up_to_the_limit() -> None:
    (sequence,) = decode(opened(eos_probability=0.5), BASELINE, limit=60)
    assert (len(sequence.tokens), EOS_ID in sequence.tokens) == (60, False)
    (at_once,) = decode(opened(eos_probability=1.0), draft(2), eos_ids=frozenset({EOS_ID}))
    assert (at_once.tokens, at_once.decode_s) == ([EOS_ID], 0.0)


def test_cold_start_costs_what_is_configured() -> None:
    session = opened(load_s=12.0, first_call_s=3.0, prefill_s_per_token=0.0)
    (part,) = session.cold_start
    assert (part.part, part.seconds) == ("load_target", 12.0)
    first, second = decode(session, BASELINE, num=2, limit=5)
    assert (first.ttft_s, second.ttft_s) == (3.0, 0.0)
    assert first.decode_s == second.decode_s


def test_it_says_what_was_simulated() -> None:
    session = opened(draft_model=DraftingConfig(alpha=[0.5, 0.4]))
    facts = session.facts()
    assert (facts["device"], facts["simulator"]["draft_model"]["alpha"]) == ("no device", [0.5, 0.4])
    settings = DecodingSettings(temperature=0, top_k=0, top_p=1, eos_ids=frozenset(), context_tokens=9)
    assert session.prepare(draft(2), None, settings)[0]["alpha"] == [0.5, 0.4]
    assert session.prepare(BASELINE, None, settings)[0] == {}
    assert session.peak_memory_bytes() is None


def test_the_target_fails_to_load_on_demand() -> None:
    with pytest.raises(RuntimeError, match="simulated crash"):
        opened(failures=[FailureConfig()])
    with pytest.raises(OutOfMemoryError, match=r"simulator\.failures"):
        opened(failures=[FailureConfig(out_of_memory=True)])


def test_a_variant_fails_on_demand() -> None:
    session = opened(
        failures=[FailureConfig("draft_model-k2"), FailureConfig("draft_model-k3", 1, out_of_memory=True)]
    )
    with pytest.raises(RuntimeError, match="simulated crash"):
        decode(session, draft(2))
    with pytest.raises(OutOfMemoryError):
        decode(session, draft(3), num=2)
    # calls are counted from each preparation
    assert len(decode(session, draft(3), num=1)) == 1
    assert len(decode(session, draft(4), num=3)) == 3


def test_it_needs_its_settings() -> None:
    settings = EngineSettings(
        target=stand_in_model("path:t"),
        device="cpu",
        dtype="float32",
        num_threads=None,
        target_quantization="none",
        drafter_quantization="none",
    )
    with pytest.raises(UnsupportedError, match="Use backend=simulator"):
        SimulatorBackend.open(settings)


def test_a_thousand_trials_take_a_few_seconds() -> None:
    session = opened(step_noise=0.1, prompt_spread=0.2)
    start = time.process_time()
    decode(session, draft(5), num=500, limit=64)
    decode(session, BASELINE, num=500, limit=64)
    assert time.process_time() - start < 5
