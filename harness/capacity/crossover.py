"""From which load on speculation should be off: in closed form from measured costs, and by simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.capacity.acceptance import no_drafts
from harness.capacity.policy import token_rates
from harness.capacity.replica import Replica
from harness.capacity.requests import Shapes
from harness.capacity.sizing import Sizing, largest_batch, requests_per_s_at

_NUM_LOADS = 60


@dataclass(frozen=True, slots=True)
class ClosedForm:
    """Where plain decoding overtakes drafting, from mean costs and yields alone.

    Attributes:
        batch: the smallest batch at which no k is faster; None if some k is faster at every batch that fits.
        requests_per_s: the load at which that batch is the usual one.
    """

    batch: int | None
    requests_per_s: float | None


@dataclass(frozen=True, slots=True)
class Band:
    """A range of loads per replica and the k that serves it fastest; 0 is no speculation."""

    from_requests_per_s: float
    to_requests_per_s: float
    k: int


def closed_form(drafting: Replica, plain: Replica, shapes: Shapes) -> ClosedForm:
    """Compare tokens per second of steady batches.

    A step at k is worth its mean yield over its seconds: speculation pays at a batch of n while the best k's
    n E_k / T_k(n) exceeds n / T_0(n).

    Args:
        drafting: any replica of the method, whatever its policy.
        plain: the same without a drafter.
        shapes: of the requests.
    """
    context = shapes.mean_prompt_tokens + shapes.mean_output_tokens / 2
    batches = list(range(1, largest_batch(drafting, shapes) + 1))
    off = token_rates(plain.baseline, no_drafts(), batches, context_per_sequence=context)
    costs = drafting.costs or drafting.baseline
    on = np.max(
        [
            token_rates(costs, table, batches, context_per_sequence=context)
            for table in drafting.acceptances.values()
        ],
        axis=0,
    )
    slower = np.flatnonzero(on <= off)
    if not slower.size:
        return ClosedForm(None, None)
    first = int(slower[0])
    return ClosedForm(batches[first], float(requests_per_s_at(plain, shapes, float(off[first]))))


def switch_off_load(drafting: Sequence[Sizing], plain: Sizing) -> float | None:
    """The lowest simulated load at which plain decoding serves a request faster on average than every k.

    Args:
        drafting: one per k.
        plain: without a drafter.

    Returns:
        Requests per second per replica; None where some k is faster up to the load plain decoding carries.
    """
    if not drafting:
        return None
    top = max(point.requests_per_s for point in plain.points)
    for load in np.linspace(plain.points[0].requests_per_s, top, _NUM_LOADS):
        if mean_total_s(plain, load) <= min(mean_total_s(one, load) for one in drafting):
            return float(load)
    return None


def best_k_bands(by_k: Mapping[int, Sizing]) -> list[Band]:
    """The k with the shortest mean time per request, load by load; neighbours with one k make a band.

    Args:
        by_k: one per k, 0 for plain decoding.
    """
    low = min(one.points[0].requests_per_s for one in by_k.values())
    top = max(one.max_requests_per_s or 0.0 for one in by_k.values())
    bands: list[Band] = []
    if top <= low:
        return bands
    for load in np.linspace(low, top, _NUM_LOADS):
        k = min(by_k, key=lambda k: (mean_total_s(by_k[k], load), k))
        start = bands.pop().from_requests_per_s if bands and bands[-1].k == k else float(load)
        bands.append(Band(start, float(load), k))
    return bands


def mean_total_s(sizing: Sizing, requests_per_s: float) -> float:
    """Mean seconds of a request at a load; infinite beyond the last simulated one."""
    if requests_per_s > sizing.points[-1].requests_per_s * (1 + 1e-9):
        return float("inf")
    return sizing.at(requests_per_s, "total_mean_s")
