"""Replicas, and what they cost, for a load."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from harness.capacity.requests import Shapes
from harness.capacity.settings import PlanSettings
from harness.capacity.sizing import Sizing, spare_replicas


@dataclass(frozen=True, slots=True)
class Fleet:
    """What one peak needs.

    Attributes:
        requests_per_s: the peak.
        replicas: that carry it with headroom.
        spares: beyond them, for those that are down.
        utilisation: of a replica at the peak: its load over what it serves when some always wait.
        cost_per_hour: of all replicas.
        cost_per_million_tokens: output tokens, over a day, with the fleet of the peak running all day.
        cost_per_million_scaled: the same if the fleet follows the day, hour by hour.
    """

    requests_per_s: float
    replicas: int
    spares: int
    utilisation: float
    cost_per_hour: float
    cost_per_million_tokens: float
    cost_per_million_scaled: float

    @property
    def total(self) -> int:
        """Replicas and spares."""
        return self.replicas + self.spares


def fleet_for(sizing: Sizing, shapes: Shapes, requests_per_s: float, settings: PlanSettings) -> Fleet | None:
    """The smallest fleet for a peak; None where a replica can't keep the limits.

    Requests are spread at random, so that each replica sees independent arrivals of its share. A balancer
    that looks at queues does no worse.
    """
    most = sizing.max_requests_per_s
    if most is None:
        return None
    day = np.array(settings.traffic.day or [1.0])
    sizes = [_size(requests_per_s * share, most, settings) for share in day]
    replicas, spares = _size(requests_per_s, most, settings)
    price = settings.prices.replica_hour
    tokens_per_hour = requests_per_s * float(day.mean()) * shapes.mean_output_tokens * 3600
    scaled = float(np.mean([sum(size) for size in sizes]))
    return Fleet(
        requests_per_s=requests_per_s,
        replicas=replicas,
        spares=spares,
        utilisation=requests_per_s / replicas / sizing.saturated_requests_per_s,
        cost_per_hour=price * (replicas + spares),
        cost_per_million_tokens=1e6 * price * (replicas + spares) / tokens_per_hour,
        cost_per_million_scaled=1e6 * price * scaled / tokens_per_hour,
    )


def _size(requests_per_s: float, most: float, settings: PlanSettings) -> tuple[int, int]:
    replica = settings.replica
    needed = max(1, math.ceil(requests_per_s / (most * (1 - replica.headroom)) - 1e-9))
    return needed, spare_replicas(needed, up_share=replica.up_share, availability=settings.slo.availability)
