"""What a simulated replica did for its users: waits, rates and whether limits were met."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from harness.capacity.fitting import FloatArray
from harness.capacity.requests import Requests

PERCENTILES = (50.0, 90.0, 95.0, 99.0)
WARMUP_SHARE = 0.2
COOLDOWN_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request must keep to count; None sets no limit.

    Attributes:
        ttft_s: to the first token, waiting included.
        tpot_s: per output token after the first.
        total_s: to the last token, waiting included.
    """

    ttft_s: float | None = None
    tpot_s: float | None = None
    total_s: float | None = None


@dataclass(frozen=True)
class Outcome:
    """One simulated run.

    Attributes:
        requests: what arrived.
        admitted_s: [num_requests] when reading its prompt began; NaN where it never did.
        first_token_s: [num_requests].
        finish_s: [num_requests].
        rejected: [num_requests] turned away.
        end_s: when the run ended.
        seconds_by_batch: [max_batch + 1] busy seconds by the number of sequences there.
        num_steps: taken.
    """

    requests: Requests
    admitted_s: FloatArray
    first_token_s: FloatArray
    finish_s: FloatArray
    rejected: npt.NDArray[np.bool_]
    end_s: float
    seconds_by_batch: FloatArray
    num_steps: int

    @cached_property
    def counted(self) -> npt.NDArray[np.bool_]:
        """[num_requests] whether a request counts: neither while the replica fills nor while it empties."""
        number = np.arange(len(self.requests))
        first, last = WARMUP_SHARE * len(number), (1 - COOLDOWN_SHARE) * len(number)
        return (number >= first) & (number < last)

    @property
    def ttft_s(self) -> FloatArray:
        """[num_requests] infinite where no token came."""
        return _or_infinite(self.first_token_s - self.requests.arrival_s)

    @property
    def tpot_s(self) -> FloatArray:
        """[num_requests] infinite where the output never ended; 0 where it is one token."""
        decoded = np.maximum(self.requests.output_tokens - 1, 1)
        return _or_infinite((self.finish_s - self.first_token_s) / decoded)

    @property
    def total_s(self) -> FloatArray:
        """[num_requests] infinite where the output never ended."""
        return _or_infinite(self.finish_s - self.requests.arrival_s)

    def met(self, limits: Limits) -> npt.NDArray[np.bool_]:
        """[num_requests] served to the end and within every limit; rejected and unfinished ones aren't."""
        kept = np.isfinite(self.total_s)
        for seconds, limit in (
            (self.ttft_s, limits.ttft_s),
            (self.tpot_s, limits.tpot_s),
            (self.total_s, limits.total_s),
        ):
            if limit is not None:
                kept &= seconds <= limit
        return kept

    @property
    def busy_share(self) -> float:
        """Share of the time in which the replica worked."""
        return float(self.seconds_by_batch.sum() / self.end_s) if self.end_s > 0 else 0.0

    @property
    def mean_batch(self) -> float:
        """Sequences there while it worked."""
        busy = self.seconds_by_batch.sum()
        numbers = np.arange(self.seconds_by_batch.size)
        return float(numbers @ self.seconds_by_batch / busy) if busy > 0 else 0.0

    def share_above(self, batch: int) -> float:
        """Share of the busy time with more sequences than that."""
        busy = self.seconds_by_batch.sum()
        return float(self.seconds_by_batch[batch + 1 :].sum() / busy) if busy > 0 else 0.0

    def figures(self, limits: Limits) -> dict[str, float]:
        """The counted requests' figures, in seconds and per second; percentiles may be infinite."""
        keep = self.counted
        arrivals = self.requests.arrival_s[keep]
        window_s = float(arrivals[-1] - arrivals[0]) or np.nan if arrivals.size > 1 else np.nan
        served = np.isfinite(self.total_s)
        in_window = served & (self.finish_s >= arrivals[0]) & (self.finish_s < arrivals[-1])
        found = {
            "throughput_tok_per_s": float(self.requests.output_tokens[in_window].sum()) / window_s,
            "goodput_per_s": float(self.met(limits)[keep].sum()) / window_s,
            "met_share": float(self.met(limits)[keep].mean()),
            "served_share": float(served[keep].mean()),
            "busy_share": self.busy_share,
            "mean_batch": self.mean_batch,
        }
        for name, seconds in (("ttft", self.ttft_s), ("tpot", self.tpot_s), ("total", self.total_s)):
            found[f"{name}_mean_s"] = float(seconds[keep].mean())
            found |= {f"{name}_p{p:g}_s": percentile(seconds[keep], p) for p in PERCENTILES}
        return found


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over seeds with its 95 % interval; no interval with one seed or infinite values."""

    mean: float
    low: float | None = None
    high: float | None = None


def percentile(values: FloatArray, percent: float) -> float:
    """The value that so many percent don't exceed; infinite if those who were never served reach it."""
    ordered = np.sort(values)
    at = percent / 100 * (len(ordered) - 1)
    low, high = ordered[int(np.floor(at))], ordered[int(np.ceil(at))]
    return float(low if low == high else low + (at - np.floor(at)) * (high - low))


def over_seeds(figures: Sequence[dict[str, float]]) -> dict[str, Estimate]:
    """Each figure's mean over runs with other seeds, and Student's interval of it."""
    return {name: _estimate(np.array([one[name] for one in figures])) for name in figures[0]}


def _estimate(values: FloatArray) -> Estimate:
    mean = float(values.mean())
    if len(values) < 2 or not np.isfinite(values).all():
        return Estimate(mean)
    half = float(-stdtrit(len(values) - 1, 0.025) * values.std(ddof=1) / np.sqrt(len(values)))
    return Estimate(mean, mean - half, mean + half)


def _or_infinite(seconds: FloatArray) -> FloatArray:
    return np.where(np.isnan(seconds), np.inf, seconds)
