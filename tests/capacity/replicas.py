"""Replicas and requests with known answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.capacity.acceptance import constant_acceptance
from harness.capacity.fitting import Curve
from harness.capacity.policy import NEVER, Policy
from harness.capacity.replica import Bounds, Replica
from harness.capacity.requests import Requests, Shapes
from harness.capacity.step_costs import StepCosts


def costs(step_s: float = 0.01, *, slope_s: float = 0.0, **others: float) -> StepCosts:
    """A step that verifies w tokens takes step_s + slope_s (w - 1)."""
    return StepCosts(Curve((1.0, 101.0), (step_s, step_s + 100 * slope_s)), **others)


def replica(
    step: StepCosts,
    policy: Policy = NEVER,
    *,
    alpha: float = 0.8,
    ks: Sequence[int] = (1, 2, 4),
    drafting: StepCosts | None = None,
    **bounds: int | float,
) -> Replica:
    """A replica whose drafted tokens all stand with one probability."""
    tables = {k: constant_acceptance([alpha] * k) for k in ks}
    return Replica(step, Bounds(**bounds), policy, drafting or step, tables)  # type: ignore[arg-type]


def arrivals(
    at: Sequence[float], *, prompt: object = 10, output: object = 20, limit: object = None
) -> Requests:
    """Requests at given times."""
    count = len(at)
    prompts, outputs = (np.broadcast_to(np.asarray(v, dtype=np.int64), count) for v in (prompt, output))
    limits = outputs if limit is None else np.broadcast_to(np.asarray(limit, dtype=np.int64), count)
    return Requests(np.asarray(at, dtype=np.float64), prompts, outputs, limits, np.full(count, "any"))


def poisson(rate_per_s: float, count: int, *, seed: int = 0, **lengths: object) -> Requests:
    """Independent arrivals."""
    return arrivals(np.cumsum(np.random.default_rng(seed).exponential(1 / rate_per_s, count)), **lengths)


def shapes(prompt: int = 50, output: int = 100) -> Shapes:
    """One kind of request."""
    one = np.array([output])
    return Shapes(np.array([prompt]), one, one, ("any",), np.ones(1))


def lindley(arrival_s: np.ndarray, service_s: np.ndarray) -> np.ndarray:
    """Waits of a first-come-first-served queue with one server, by its recursion."""
    waits = np.zeros(len(arrival_s))
    for place in range(1, len(arrival_s)):
        gap = arrival_s[place] - arrival_s[place - 1]
        waits[place] = max(0.0, waits[place - 1] + service_s[place - 1] - gap)
    return waits
