"""What published simulators get wrong, and this one doesn't."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from capacity.replicas import arrivals, costs, poisson, replica

from harness.capacity.outcome import Limits
from harness.capacity.policy import NEVER, AdaptiveK, ByBatch, FixedK
from harness.capacity.simulation import simulate
from harness.errors import ConfigError

ANY = Limits()


def test_no_drafts_with_a_free_drafter_is_no_speculation_exactly() -> None:
    requests = poisson(3.0, 600, output=np.random.default_rng(0).integers(1, 90, 600))
    step = costs(0.01, slope_s=0.001, prefill_token_s=0.001)
    step = dataclasses.replace(step, spread=np.array([0.8, 1.0, 1.2]))
    plain = simulate(replica(step, NEVER, max_batch=4), requests, seed=7)
    off = simulate(replica(step, FixedK(0), max_batch=4), requests, seed=7)
    np.testing.assert_array_equal(plain.finish_s, off.finish_s)
    np.testing.assert_array_equal(plain.first_token_s, off.first_token_s)


def test_switched_off_with_a_drafter_loaded_costs_its_reading_and_its_memory() -> None:
    step, drafting = costs(0.01, prefill_token_s=0.001), costs(0.01, prefill_token_s=0.0013)
    requests = arrivals([0.0] * 6, prompt=100, output=50)
    bounds = {"max_batch": 6, "kv_tokens": 1000, "kv_tokens_with_drafter": 500}
    never = simulate(replica(step, NEVER, drafting=drafting, **bounds), requests, seed=0)
    off = simulate(replica(step, FixedK(0), drafting=drafting, **bounds), requests, seed=0)
    assert never.first_token_s[0] == pytest.approx(0.6)  # all six prompts together
    assert off.first_token_s[0] == pytest.approx(0.39)  # three fit, and the drafter reads them too
    assert off.end_s > never.end_s


def test_width_sets_the_cost_and_acceptance_the_progress() -> None:
    """The same k costs the same per step whatever stands; only the number of steps differs."""
    step = costs(0.01, slope_s=0.002, draft_token_s=0.001)
    requests = arrivals([0.0], prompt=1, output=401)
    runs = [simulate(replica(step, FixedK(4), alpha=a), requests, seed=0) for a in (0.0, 0.5, 1.0)]
    num_steps = [run.num_steps - 1 for run in runs]  # one read the prompt
    # the last drafts are shorter: nothing is drafted beyond the limit
    for run, steps in zip(runs, num_steps, strict=True):
        assert run.end_s / steps == pytest.approx(0.01 + 4 * 0.002 + 4 * 0.001, rel=0.02)
    assert num_steps[0] == 400
    assert num_steps[2] == 80
    assert num_steps[1] == pytest.approx(400 / (1 + 0.5 + 0.25 + 0.125 + 0.0625), rel=0.1)


def test_acceptance_is_drawn_step_by_step_so_tails_are_not_zero() -> None:
    requests = arrivals(np.arange(400) * 10.0, output=60)
    found = simulate(replica(costs(0.01), FixedK(4), alpha=0.7), requests, seed=0)
    p50, p99 = np.percentile(found.tpot_s, [50, 99])
    assert p99 > 1.15 * p50
    mean = sum(0.7**i for i in range(5))
    assert 59 / (found.num_steps - 400) * 400 == pytest.approx(mean, rel=0.05)


def test_look_ahead_slots_are_reserved() -> None:
    """Two sequences of 30 tokens fit 60 slots, but not with 4 look-ahead slots each."""
    requests = arrivals([0.0, 0.0], prompt=10, output=20)
    plain = simulate(replica(costs(), NEVER, max_batch=2, kv_tokens=60), requests, seed=0)
    drafting = simulate(replica(costs(), FixedK(4), max_batch=2, kv_tokens=60), requests, seed=0)
    assert plain.admitted_s[1] == 0.0
    assert drafting.admitted_s[1] == pytest.approx(drafting.finish_s[0])
    roomy = simulate(replica(costs(), FixedK(4), max_batch=2, kv_tokens=68), requests, seed=0)
    assert roomy.admitted_s[1] == 0.0


def test_a_step_debits_k_plus_one_tokens_of_every_sequence() -> None:
    """Of 12 tokens a step, one decoding sequence at k = 3 leaves 8 for a prompt, at k = 0 it leaves 11."""
    requests = arrivals([0.0, 0.5], prompt=[1, 88], output=[500, 5])
    steps = {}
    for k in (0, 3):
        policy = FixedK(k) if k else NEVER
        bounds = {"max_batch": 2, "chunk_tokens": 100, "step_tokens": 12}
        found = simulate(replica(costs(0.01), policy, ks=(3,), alpha=0.0, **bounds), requests, seed=0)
        steps[k] = round((found.first_token_s[1] - found.admitted_s[1]) / 0.01)
    assert steps == {0: 8, 3: 11}


def test_a_budget_bounds_how_many_decode() -> None:
    requests = arrivals([0.0] * 4, prompt=1, output=100)
    found = simulate(
        replica(costs(), FixedK(4), max_batch=4, step_tokens=10, chunk_tokens=10), requests, seed=0
    )
    assert np.flatnonzero(found.seconds_by_batch).max() == 2


def test_chunks_bound_how_long_reading_stalls_the_others() -> None:
    """A prompt read whole stops the decoding for its whole length."""
    requests = arrivals([0.0, 0.2], prompt=[1, 1000], output=[200, 2])
    step = costs(0.01, prefill_token_s=0.001)
    alone = simulate(replica(step, max_batch=2), requests, seed=0)
    chunked = simulate(replica(step, max_batch=2, chunk_tokens=50), requests, seed=0)
    assert alone.first_token_s[1] < chunked.first_token_s[1]
    assert alone.finish_s[0] == pytest.approx(0.001 + 199 * 0.01 + 1.0)
    assert chunked.finish_s[0] == pytest.approx(alone.finish_s[0])
    read_s = chunked.first_token_s[1] - chunked.admitted_s[1]
    assert read_s == pytest.approx(20 * (0.01 + 0.05))


def test_rejected_and_unfinished_requests_count_against_the_limit() -> None:
    requests = arrivals([0.0] * 20, prompt=1, output=11)
    crowded = simulate(replica(costs(0.1), max_waiting=9, max_batch=1), requests, seed=0)
    assert crowded.rejected.sum() == 10
    assert np.isinf(crowded.total_s[crowded.rejected]).all()
    assert crowded.met(ANY).sum() == 10
    impatient = simulate(replica(costs(0.1), patience_s=2.5), requests, seed=0)
    assert impatient.rejected.sum() == 17
    cut = simulate(replica(costs(0.1)), requests, seed=0, stop_s=5.5)
    assert (~np.isfinite(cut.total_s)).sum() == 14
    figures = cut.figures(ANY)
    assert np.isinf(figures["total_p95_s"])
    assert figures["served_share"] < 0.5
    assert figures["met_share"] == figures["served_share"]


def test_a_request_that_never_fits_is_turned_away_and_the_rest_is_served() -> None:
    requests = arrivals([0.0, 0.0], prompt=[500, 5], output=10)
    found = simulate(replica(costs(), kv_tokens=100), requests, seed=0)
    assert found.rejected.tolist() == [True, False]
    assert np.isfinite(found.finish_s[1])


def test_first_come_is_first_served() -> None:
    requests = arrivals([0.0, 0.0, 0.0], prompt=[50, 200, 5], output=50)
    found = simulate(replica(costs(), kv_tokens=260, max_batch=3), requests, seed=0)
    assert found.admitted_s[1] == pytest.approx(found.finish_s[0])
    assert found.admitted_s[2] >= found.admitted_s[1]


def test_warmup_is_trimmed() -> None:
    """The first fifth meets an empty replica: it doesn't count."""
    requests = arrivals(np.arange(100) * 0.5, prompt=1, output=101)
    found = simulate(replica(costs(0.01)), requests, seed=0)
    counted = np.flatnonzero(found.counted)
    assert (counted[0], counted[-1]) == (20, 89)
    waits = found.admitted_s - requests.arrival_s
    assert found.figures(ANY)["ttft_mean_s"] == pytest.approx(waits[20:90].mean(), rel=1e-6)


def test_hard_prompts_stay_hard() -> None:
    from harness.capacity.acceptance import Acceptance

    table = Acceptance(2, ("any", "any"), np.array([[0.0, 0.0], [1.0, 1.0]]), np.ones((2, 2)))
    one = dataclasses.replace(replica(costs(0.01), FixedK(2)), acceptances={2: table})
    found = simulate(one, arrivals(np.arange(50) * 10.0, output=31), seed=0)
    assert set(np.round(found.tpot_s, 5)) == {0.01, round(0.1 / 30, 5)}


def test_k_by_batch_changes_with_the_batch() -> None:
    policy = ByBatch(((1, 1, 4), (2, 8, 0)))
    step = costs(0.01, slope_s=0.01)
    alone = simulate(
        replica(step, policy, alpha=1.0, max_batch=8), arrivals([0.0], prompt=1, output=51), seed=0
    )
    assert alone.end_s == pytest.approx(10 * 0.05)
    both = simulate(
        replica(step, policy, alpha=1.0, max_batch=8), arrivals([0.0, 0.0], prompt=1, output=51), seed=0
    )
    assert both.end_s == pytest.approx(50 * 0.02)


def test_an_adaptive_k_learns_what_is_accepted() -> None:
    """Measured at alpha 0.8 it starts drafting; where nothing stands it stops."""
    step = costs(0.01, slope_s=0.004)
    tables = replica(step).acceptances
    policy = AdaptiveK(step, step, tables, memory_steps=20)
    assert policy.choose(1, 100) > 0
    requests = arrivals([0.0], prompt=1, output=1001)
    found = simulate(dataclasses.replace(replica(step, policy), acceptances=tables), requests, seed=0)
    fixed = simulate(replica(step, FixedK(4), alpha=0.8), requests, seed=0)
    assert found.end_s <= 1.05 * fixed.end_s
    hopeless = dataclasses.replace(replica(step, policy, alpha=0.0))
    assert simulate(hopeless, requests, seed=0).end_s == pytest.approx(10.0, rel=0.1)
    assert policy.choose(1, 100) > 0  # a run teaches a copy


def test_an_hour_of_traffic_is_served() -> None:
    requests = poisson(0.5, 1800, prompt=100, output=np.random.default_rng(0).integers(20, 200, 1800))
    step = costs(0.02, slope_s=0.0005, prefill_token_s=0.0001)
    found = simulate(replica(step, FixedK(4), max_batch=32, chunk_tokens=512), requests, seed=0)
    assert found.end_s > 3400
    assert np.isfinite(found.total_s).all()


@pytest.mark.parametrize(
    ("bounds", "key"),
    [
        ({"max_batch": 0}, "max_batch"),
        ({"step_tokens": 3}, "step_tokens"),
        ({"chunk_tokens": 0}, "chunk_tokens"),
    ],
)
def test_bounds_without_room_are_refused(bounds: dict[str, int], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        simulate(replica(costs(), FixedK(4), **bounds), arrivals([0.0]), seed=0)
