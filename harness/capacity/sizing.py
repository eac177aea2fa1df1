"""How much load one replica carries within the limits: load after load simulated, and which limit binds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.stats import binom

from harness.capacity.outcome import Estimate, Limits, over_seeds
from harness.capacity.replica import Replica
from harness.capacity.requests import Shapes, poisson_requests
from harness.capacity.settings import SimulationSettings, SloSettings
from harness.capacity.simulation import simulate
from harness.errors import ConfigError

IDLE_SHARE = 0.03
_GRID = (IDLE_SHARE, 0.25, 0.5, 0.7, 0.85, 0.97)
_NUM_HALVINGS = 5


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """One replica at one load: figures by name, with intervals over seeds."""

    requests_per_s: float
    figures: dict[str, Estimate]

    def mean(self, name: str) -> float:
        """A figure's mean over seeds."""
        return self.figures[name].mean


@dataclass(frozen=True, slots=True)
class Binding:
    """The limit that decides: its key, its value, and what was found instead."""

    key: str
    limit: float
    found: float

    @property
    def excess(self) -> float:
        """How far beyond the limit, as a share of it."""
        return self.limit / self.found - 1 if self.key == "slo.availability" else self.found / self.limit - 1


@dataclass(frozen=True, slots=True)
class Sizing:
    """What one replica carries.

    Attributes:
        points: simulated loads, increasing.
        saturated_requests_per_s: what it serves when some always wait; no steady load can be higher.
        max_requests_per_s: the highest load within the limits; None where not even an idle one keeps them.
        binding: the limit that the next higher load breaks, or that an idle replica breaks.
    """

    points: tuple[LoadPoint, ...]
    saturated_requests_per_s: float
    max_requests_per_s: float | None
    binding: Binding | None

    def at(self, requests_per_s: float, name: str) -> float:
        """A figure at a load between two simulated ones."""
        loads = [point.requests_per_s for point in self.points]
        return float(np.interp(requests_per_s, loads, [point.mean(name) for point in self.points]))


def size_replica(
    replica: Replica, shapes: Shapes, slo: SloSettings, simulation: SimulationSettings
) -> Sizing:
    """Search the highest load per replica that keeps the limits.

    Args:
        replica: what serves.
        shapes: of the requests.
        slo: the limits.
        simulation: how much to simulate per load.
    """
    capacity = saturated_requests_per_s(replica, shapes, simulation)
    points: list[LoadPoint] = []

    def broken_at(share: float) -> Binding | None:
        points.append(load_point(replica, shapes, share * capacity, slo, simulation))
        return binding_limit(points[-1], slo)

    low, high, binding = 0.0, 1.0, None
    for share in _GRID:
        binding = broken_at(share)
        if binding is not None:
            high = share
            break
        low = share
    if low == 0.0:
        return Sizing(tuple(points), capacity, None, binding)
    if binding is None:
        # no limit binds below saturation, and no queue is stable above it
        binding = Binding("capacity", low * capacity, capacity)
    else:
        for _ in range(_NUM_HALVINGS):
            share = (low + high) / 2
            found = broken_at(share)
            low, high, binding = (share, high, binding) if found is None else (low, share, found)
    points.sort(key=lambda point: point.requests_per_s)
    return Sizing(tuple(points), capacity, low * capacity, binding)


def saturated_requests_per_s(replica: Replica, shapes: Shapes, simulation: SimulationSettings) -> float:
    """Requests per second of a replica that always has some waiting: no steady load can be higher."""
    count = max(simulation.num_requests, 4 * replica.bounds.max_batch)
    requests = poisson_requests(shapes, 1.0, count, simulation.seed)
    endless = replace(replica, bounds=replace(replica.bounds, max_waiting=None, patience_s=None))
    outcome = simulate(endless, replace(requests, arrival_s=np.zeros(count)), seed=simulation.seed)
    ends = np.sort(outcome.finish_s[~outcome.rejected])
    if len(ends) < 10:
        raise ConfigError(
            "replica.kv_tokens", "must hold most of the requests", replica.kv_tokens, "Give it more tokens."
        )
    from_s, to_s = ends[int(0.2 * len(ends))], ends[int(0.8 * len(ends))]
    # requests that end together count with the last instant they share
    return float(((ends > from_s) & (ends <= to_s)).sum() / (to_s - from_s))


def load_point(
    replica: Replica, shapes: Shapes, requests_per_s: float, slo: SloSettings, simulation: SimulationSettings
) -> LoadPoint:
    """Simulate one load with several seeds; seeds are shared by all replicas, so that they compare well."""
    limits = Limits(slo.ttft_p95_s, slo.tpot_p95_s, slo.total_p95_s)
    runs = []
    for number in range(simulation.num_seeds):
        seed = simulation.seed + number
        requests = poisson_requests(shapes, requests_per_s, simulation.num_requests, seed)
        runs.append(simulate(replica, requests, seed=seed).figures(limits))
    return LoadPoint(requests_per_s, over_seeds(runs))


def binding_limit(point: LoadPoint, slo: SloSettings) -> Binding | None:
    """The limit broken by the largest factor; None where all are kept."""
    broken = [
        Binding(f"slo.{name}_p95_s", limit, point.mean(f"{name}_p95_s"))
        for name in ("ttft", "tpot", "total")
        if (limit := getattr(slo, f"{name}_p95_s")) is not None and point.mean(f"{name}_p95_s") > limit
    ]
    if point.mean("served_share") < slo.availability:
        broken.append(Binding("slo.availability", slo.availability, point.mean("served_share")))
    return max(broken, key=lambda one: one.excess, default=None)


def requests_per_s_at(replica: Replica, shapes: Shapes, tok_per_s: float) -> float:
    """Requests per second if decoding ran at a rate whenever no prompt is read."""
    prompt_s = replica.prompt_s(shapes.mean_prompt_tokens)
    return 1 / (prompt_s + max(shapes.mean_output_tokens - 1, 1e-9) / tok_per_s)


def largest_batch(replica: Replica, shapes: Shapes) -> int:
    """Sequences that fit a replica: by its scheduler's bound and by its cache."""
    most = replica.bounds.max_batch
    if replica.kv_tokens is not None:
        prompt, limit = (
            float(shapes.weights @ shapes.prompt_tokens),
            float(shapes.weights @ shapes.limit_tokens),
        )
        most = min(most, int(replica.kv_tokens / replica.reserved_tokens(round(prompt), round(limit))))
    return max(most, 1)


@lru_cache(maxsize=1024)
def spare_replicas(needed: int, *, up_share: float, availability: float) -> int:
    """Replicas beyond those needed so that enough are up with that probability, each failing on its own."""
    if up_share >= 1:
        return 0
    low, high = 0, max(1, int(needed * (1 / up_share - 1)) + 1)
    while binom.sf(needed - 1, needed + high, up_share) < availability:
        high *= 2
    while low < high:
        middle = (low + high) // 2
        if binom.sf(needed - 1, needed + middle, up_share) >= availability:
            high = middle
        else:
            low = middle + 1
    return low
