"""Requests that arrive whether or not the engine is ready: one after another, as they come."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.backends.base import SequenceRequest, Session
from harness.capacity.outcome import Outcome
from harness.capacity.requests import Requests
from harness.errors import MeasurementError
from harness.records import Variant
from harness.runner.plan import CellPlan, EncodedPrompt
from harness.runner.schedule import sequence_seed
from harness.runner.trial import no_garbage_collection


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request that comes at a time, whatever the engine does then."""

    at_s: float
    prompt: EncodedPrompt


def poisson_arrivals(
    prompts: Sequence[EncodedPrompt], requests_per_s: float, num_requests: int, seed: int
) -> list[Arrival]:
    """Independent arrivals at a steady rate, each of a prompt drawn at random."""
    rng = np.random.default_rng([seed, 6])
    at = np.cumsum(rng.exponential(1 / requests_per_s, num_requests))
    drawn = rng.integers(len(prompts), size=num_requests)
    return [Arrival(float(t), prompts[number]) for t, number in zip(at, drawn, strict=True)]


def serve(session: Session, plan: CellPlan, variant: Variant, arrivals: Sequence[Arrival]) -> Outcome:
    """Decode requests in the order they arrive, one at a time, and note when each began and ended.

    A request's clock starts when it arrives: what it waits for those before it counts. The engine's own clock
    times it; where that clock is simulated, idle time is skipped instead of slept.

    Args:
        session: with the variant prepared and warm.
        plan: the cell.
        variant: what decodes.
        arrivals: in order of time.

    Raises:
        MeasurementError: the engine returned an empty sequence.
    """
    admitted, first, finish, lengths = (np.zeros(len(arrivals)) for _ in range(4))
    with no_garbage_collection():
        clock = _Clock(session, simulated=plan.backend.is_simulated)
        for number, arrival in enumerate(arrivals):
            clock.wait_until(arrival.at_s)
            admitted[number] = clock.now()
            seed = sequence_seed(plan.config.measure.seed, variant, arrival.prompt, number)
            prompt = arrival.prompt
            request = SequenceRequest(prompt.tokens, prompt.max_new_tokens, seed, prompt.task)
            (decoded,) = session.decode(variant, [request], plan.decoding)
            if not decoded.tokens:
                raise MeasurementError(f"{variant.variant_id}: {prompt.prompt_id!r} brought no tokens.")
            first[number] = admitted[number] + decoded.ttft_s
            finish[number] = clock.now()
            lengths[number] = len(decoded.tokens)
    busy_s = float((finish - admitted).sum())
    return Outcome(
        requests=_requests(arrivals, lengths.astype(np.int64)),
        admitted_s=admitted,
        first_token_s=first,
        finish_s=finish,
        rejected=np.zeros(len(arrivals), dtype=bool),
        end_s=float(finish[-1]),
        seconds_by_batch=np.array([0.0, busy_s]),
        num_steps=0,
    )


class _Clock:
    """Seconds since the start, on the engine's clock and the idle time it doesn't see."""

    def __init__(self, session: Session, *, simulated: bool) -> None:
        self._session, self._simulated = session, simulated
        self._start = session.clock()
        self._skipped = 0.0

    def now(self) -> float:
        return self._session.clock() - self._start + self._skipped

    def wait_until(self, at_s: float) -> None:
        left = at_s - self.now()
        if left <= 0:
            return
        if self._simulated:
            self._skipped += left
        else:
            time.sleep(left)


def _requests(arrivals: Sequence[Arrival], lengths: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Requests:
    limits = np.array([arrival.prompt.max_new_tokens for arrival in arrivals], dtype=np.int64)
    return Requests(
        np.array([arrival.at_s for arrival in arrivals]),
        np.array([len(arrival.prompt.tokens) for arrival in arrivals], dtype=np.int64),
        lengths,
        np.maximum(limits, lengths),
        np.array([arrival.prompt.task for arrival in arrivals]),
    )
