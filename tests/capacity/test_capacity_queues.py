from __future__ import annotations

import numpy as np
import pytest
from capacity.replicas import arrivals, costs, lindley, poisson, replica

from harness.capacity.simulation import simulate


def test_waits_are_those_of_lindleys_recursion() -> None:
    output = np.random.default_rng(1).integers(1, 60, 800)
    requests = poisson(3.0, 800, output=output)
    step = costs(0.01, prefill_s=0.02, prefill_token_s=0.001)
    found = simulate(replica(step), requests, seed=0)
    service_s = 0.02 + 0.001 * 10 + 0.01 * (output - 1)
    np.testing.assert_allclose(
        found.admitted_s - requests.arrival_s, lindley(requests.arrival_s, service_s), atol=1e-9
    )


@pytest.mark.parametrize("load", [0.3, 0.6])
def test_constant_service_gives_the_queue_of_pollaczek_and_khinchine(load: float) -> None:
    requests = poisson(load, 30_000, output=1, seed=2)
    found = simulate(replica(costs(prefill_s=1.0)), requests, seed=0)
    sojourn_s = 1 + load / (2 * (1 - load))
    assert found.total_s.mean() == pytest.approx(sojourn_s, rel=0.02)


def test_exponential_service_gives_the_markov_queue() -> None:
    rng = np.random.default_rng(4)
    output = np.ceil(rng.exponential(100, 12_000)).astype(int)
    rate, service_s = 0.3, 0.01 * (output - 1).mean() + 0.01
    found = simulate(
        replica(costs(0.01, prefill_s=0.01)), poisson(rate, 12_000, output=output, seed=5), seed=0
    )
    assert found.total_s.mean() == pytest.approx(1 / (1 / service_s - rate), rel=0.02)


def test_free_batches_serve_all_at_once() -> None:
    """A step that costs the same for any batch makes sequences independent: nobody waits (M/G/infinity)."""
    requests = poisson(20.0, 2000, output=50)
    found = simulate(replica(costs(0.01), max_batch=100), requests, seed=0)
    # admission waits for the end of a step, half of one on average
    assert (found.admitted_s - requests.arrival_s).max() <= 0.01 + 1e-9
    assert found.mean_batch == pytest.approx(20.0 * 0.49, rel=0.05)


def test_littles_law_holds() -> None:
    requests = poisson(2.2, 4000, output=np.random.default_rng(0).integers(1, 80, 4000))
    found = simulate(replica(costs(0.01, prefill_s=0.02), max_batch=1), requests, seed=0)
    span_s = found.end_s
    times = np.random.default_rng(1).uniform(0, span_s, 20_000)
    there = [((requests.arrival_s <= t) & (found.finish_s > t)).sum() for t in times[:2000]]
    assert np.mean(there) == pytest.approx(len(requests) / span_s * found.total_s.mean(), rel=0.06)
    # and exactly for those being served: sequence seconds by batch are the sum of their stays
    numbers = np.arange(found.seconds_by_batch.size)
    assert numbers @ found.seconds_by_batch == pytest.approx((found.finish_s - found.admitted_s).sum())


def test_sequence_seconds_are_kept_in_batches_too() -> None:
    requests = poisson(8.0, 1500, prompt=60, output=np.random.default_rng(0).integers(1, 80, 1500))
    step = costs(0.01, slope_s=0.001, prefill_token_s=0.0005)
    found = simulate(replica(step, max_batch=6, chunk_tokens=32), requests, seed=0)
    numbers = np.arange(found.seconds_by_batch.size)
    assert numbers @ found.seconds_by_batch == pytest.approx((found.finish_s - found.admitted_s).sum())
    assert np.isfinite(found.total_s).all()


def test_an_idle_replica_jumps_to_the_next_request() -> None:
    found = simulate(replica(costs(0.01, prefill_s=0.5)), arrivals([0.0, 100.0], output=11), seed=0)
    np.testing.assert_allclose(found.total_s, [0.6, 0.6])
    assert found.end_s == pytest.approx(100.6)
    assert found.busy_share == pytest.approx(1.2 / 100.6)
