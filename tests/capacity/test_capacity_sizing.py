from __future__ import annotations

import dataclasses
from itertools import pairwise

import numpy as np
import pytest
from capacity.replicas import costs, replica, shapes
from scipy.stats import binom

from harness.capacity.crossover import best_k_bands, closed_form, switch_off_load
from harness.capacity.fleet import fleet_for
from harness.capacity.outcome import over_seeds
from harness.capacity.policy import NEVER, FixedK, best_bands
from harness.capacity.replica import Replica
from harness.capacity.settings import PlanSettings, SimulationSettings, SloSettings
from harness.capacity.sizing import (
    Sizing,
    largest_batch,
    load_point,
    saturated_requests_per_s,
    size_replica,
    spare_replicas,
)

QUICK = SimulationSettings(num_requests=150, num_seeds=2)
# a step of w tokens: 10 ms and 1 ms for each further one
STEP = costs(0.01, slope_s=0.001, prefill_token_s=0.0001)


def sized(policy: object, *, alpha: float = 0.7, slo: SloSettings | None = None, **bounds: int) -> Sizing:
    one = replica(STEP, policy, alpha=alpha, ks=(1, 2, 4), **bounds)  # type: ignore[arg-type]
    return size_replica(one, shapes(), slo or SloSettings(ttft_p95_s=30.0, tpot_p95_s=30.0), QUICK)


def test_saturation_is_a_full_batch_all_the_time() -> None:
    one = replica(STEP, NEVER, max_batch=8)
    assert saturated_requests_per_s(one, shapes(), QUICK) == pytest.approx(
        8 / (99 * 0.017 + 8 * 0.005), rel=0.05
    )


def test_the_load_found_keeps_the_limits_and_the_next_breaks_the_binding_one() -> None:
    slo = SloSettings(ttft_p95_s=30.0, tpot_p95_s=0.0145)
    found = sized(NEVER, slo=slo, max_batch=16)
    assert found.max_requests_per_s is not None
    one = replica(STEP, NEVER, max_batch=16)
    at_most = load_point(one, shapes(), found.max_requests_per_s, slo, QUICK)
    assert at_most.mean("tpot_p95_s") <= 0.0145
    assert found.binding is not None
    assert found.binding.key == "slo.tpot_p95_s"
    assert 0.0145 < found.binding.found < 0.0165
    assert found.max_requests_per_s < 0.9 * found.saturated_requests_per_s


def test_limits_that_nothing_meets_name_the_limit_and_by_how_much() -> None:
    found = sized(NEVER, slo=SloSettings(ttft_p95_s=30.0, tpot_p95_s=0.005), max_batch=4)
    assert found.max_requests_per_s is None
    assert found.binding is not None
    assert found.binding.key == "slo.tpot_p95_s"
    assert found.binding.excess == pytest.approx(1.0, abs=0.25)  # an idle step takes 10 ms
    settings = PlanSettings()
    assert fleet_for(found, shapes(), 5.0, settings) is None


def test_without_a_binding_limit_the_replica_saturates() -> None:
    found = sized(NEVER, max_batch=2)
    assert found.binding is not None
    assert found.binding.key == "capacity"
    assert found.max_requests_per_s == pytest.approx(0.97 * found.saturated_requests_per_s)


def test_the_simulated_switch_off_agrees_with_the_closed_form() -> None:
    """At alpha 0.7 a draft of two yields 2.19 tokens for 2 ms per sequence: worth it in small batches."""
    drafting = {k: sized(FixedK(k), max_batch=64, chunk_tokens=512) for k in (1, 2)}
    plain = sized(NEVER, max_batch=64, chunk_tokens=512)
    one = replica(STEP, FixedK(0), alpha=0.7, ks=(1, 2), max_batch=64, chunk_tokens=512)
    closed = closed_form(one, Replica(one.baseline, one.bounds), shapes())
    n = np.arange(1, 65)
    on = np.max(
        [n * sum(0.7**i for i in range(k + 1)) / (0.009 + 0.001 * n * (k + 1)) for k in (1, 2)], axis=0
    )
    assert closed.batch == int(np.flatnonzero(on <= n / (0.009 + 0.001 * n))[0]) + 1
    assert closed.requests_per_s is not None
    simulated = switch_off_load(list(drafting.values()), plain)
    assert simulated == pytest.approx(closed.requests_per_s, rel=0.25)
    bands = best_k_bands({0: plain, **drafting})
    assert bands[0].k >= 2
    assert bands[-1].k <= 1
    assert all(a.to_requests_per_s <= b.from_requests_per_s for a, b in pairwise(bands))


def test_speculation_that_always_pays_is_never_switched_off() -> None:
    one = replica(costs(0.01, slope_s=0.00001), FixedK(0), ks=(4,), max_batch=4)
    assert closed_form(one, Replica(one.baseline, one.bounds), shapes()).batch is None
    assert switch_off_load([], sized(NEVER, max_batch=2)) is None


def test_k_falls_as_batches_grow() -> None:
    one = replica(STEP, ks=(1, 2, 4), alpha=0.7)
    bands = best_bands(STEP, STEP, one.acceptances, max_batch=64, context_per_sequence=100)
    ks = [k for _, _, k in bands]
    assert ks == sorted(ks, reverse=True)
    assert (bands[0][0], bands[-1][1], ks[-1]) == (1, 64, 0)
    assert all(b[0] == a[1] + 1 for a, b in pairwise(bands))


def test_the_cache_bounds_the_batch() -> None:
    assert largest_batch(replica(STEP, NEVER, max_batch=32, kv_tokens=900), shapes()) == 6
    assert largest_batch(replica(STEP, FixedK(4), max_batch=32, kv_tokens=900), shapes()) == 5
    assert largest_batch(replica(STEP, NEVER, max_batch=32), shapes()) == 32


@pytest.mark.parametrize("needed", [1, 7, 400])
def test_spares_are_the_fewest_that_suffice(needed: int) -> None:
    spares = spare_replicas(needed, up_share=0.97, availability=0.999)
    assert binom.sf(needed - 1, needed + spares, 0.97) >= 0.999
    assert spares == 0 or binom.sf(needed - 1, needed + spares - 1, 0.97) < 0.999
    assert spare_replicas(needed, up_share=1.0, availability=0.999) == 0


def test_fleets_scale_to_a_million_requests_a_second() -> None:
    sizing, settings = sized(NEVER, max_batch=4), PlanSettings()
    settings.replica.headroom, settings.prices.replica_hour = 0.25, 3.0
    fleet = fleet_for(sizing, shapes(), 1e6, settings)
    assert fleet is not None
    assert sizing.max_requests_per_s is not None
    assert fleet.replicas == int(np.ceil(1e6 / (0.75 * sizing.max_requests_per_s) - 1e-9))
    assert fleet.spares > 0
    assert fleet.cost_per_million_tokens == pytest.approx(3.0 * fleet.total / (1e6 * 100 * 3600 / 1e6))
    assert fleet.utilisation == pytest.approx(0.75 * 0.97, rel=0.01)


def test_a_fleet_that_follows_the_day_costs_less() -> None:
    sizing, settings = sized(NEVER, max_batch=4), PlanSettings()
    steady = fleet_for(sizing, shapes(), 500.0, settings)
    settings.traffic.day = [1.0, 0.5, 0.1, 0.4]
    daily = fleet_for(sizing, shapes(), 500.0, settings)
    assert steady is not None
    assert daily is not None
    assert daily.total == steady.total
    assert daily.cost_per_million_tokens == pytest.approx(2 * steady.cost_per_million_tokens)
    assert daily.cost_per_million_scaled == pytest.approx(steady.cost_per_million_scaled, rel=0.1)


def test_several_seeds_give_an_interval() -> None:
    runs = [{"x": 1.0, "y": 2.0}, {"x": 2.0, "y": 2.0}, {"x": 3.0, "y": float("inf")}]
    found = over_seeds(runs)
    half = 4.302653 * 1.0 / np.sqrt(3)
    assert (found["x"].low, found["x"].high) == (pytest.approx(2 - half), pytest.approx(2 + half))
    assert found["y"].low is None
    assert over_seeds(runs[:1])["x"].low is None
    point = load_point(replica(STEP, max_batch=4), shapes(), 1.0, SloSettings(), QUICK)
    assert point.figures["ttft_p95_s"].low is not None


def test_rejections_break_the_availability_limit() -> None:
    one = replica(STEP, max_batch=1, max_waiting=1)
    slo = SloSettings(ttft_p95_s=None, tpot_p95_s=None, availability=0.9)
    found = size_replica(one, shapes(), slo, QUICK)
    assert found.binding is not None
    assert found.binding.key == "slo.availability"
    assert found.max_requests_per_s is not None
    assert found.max_requests_per_s < 0.9 * found.saturated_requests_per_s
    assert dataclasses.replace(found.binding, found=0.45).excess == pytest.approx(1.0)
