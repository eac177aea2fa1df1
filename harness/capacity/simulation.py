"""A discrete-event simulation of one replica: continuous batches, prompts read in chunks, drafts by step.

Time advances by steps. As long as nobody comes or goes, steps are drawn many at a time, which is what makes
an hour of traffic a matter of seconds; every step still draws what each of its sequences accepts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import numpy as np

from harness.capacity.acceptance import Acceptance, no_drafts
from harness.capacity.fitting import FloatArray
from harness.capacity.outcome import Outcome
from harness.capacity.replica import Replica
from harness.capacity.requests import IntArray, Requests
from harness.errors import ConfigError

_MOST_STEPS = 128
_MOST_STEPS_ADAPTING = 8
_MOST_DRAWS = 2_000_000


def simulate(replica: Replica, requests: Requests, *, seed: int, stop_s: float | None = None) -> Outcome:
    """Serve requests in the order they arrive.

    Args:
        replica: what serves.
        requests: what arrives.
        seed: of what is accepted and how steps scatter.
        stop_s: end here, whoever is still waiting or decoding; None ends when all are served.

    Raises:
        ConfigError: a bound leaves no room for a single step.
    """
    run = _Run(replica, requests, seed)
    run.serve(np.inf if stop_s is None else stop_s)
    return run.outcome()


class _Profiles:
    """Per request, which measured prompt it behaves like, at one k."""

    def __init__(self, acceptance: Acceptance, requests: Requests, place: FloatArray) -> None:
        self.survival, self.drafted = acceptance.survival, acceptance.drafted
        self.always_full = bool((acceptance.drafted == 1).all())
        self.mean_emitted = acceptance.mean_emitted()
        self.of_request = np.zeros(len(requests), dtype=np.int64)
        for task in np.unique(requests.tasks):
            known, mine = acceptance.of_task(str(task)), requests.tasks == task
            self.of_request[mine] = known[(place[mine] * known.size).astype(int)]


class _Run:
    def __init__(self, replica: Replica, requests: Requests, seed: int) -> None:
        self._replica, self._bounds, self._requests = replica, replica.bounds, requests
        self._policy = replica.policy.restarted()
        self._rng = np.random.default_rng([seed, 3])
        place = np.random.default_rng([seed, 4]).random(len(requests))
        tables: Mapping[int, Acceptance] = {0: no_drafts(), **replica.acceptances}
        self._profiles = {k: _Profiles(table, requests, place) for k, table in tables.items()}
        _check_room(replica)
        self._now = 0.0
        self._next = 0
        self._waiting: deque[int] = deque()
        self._reading: deque[list[int]] = deque()  # request and its prompt tokens not yet read
        self._ids = np.zeros(0, dtype=np.int64)
        self._written = np.zeros(0, dtype=np.int64)
        self._reserved = 0
        self._admitted_s, self._first_s, self._finish_s = (np.full(len(requests), np.nan) for _ in range(3))
        self._rejected = np.zeros(len(requests), dtype=bool)
        self._seconds_by_batch = np.zeros(self._bounds.max_batch + 1)
        self._num_steps = 0

    def serve(self, stop_s: float) -> None:
        """Run until a time, or until nothing is left to do."""
        while self._now < stop_s:
            self._arrive()
            self._admit()
            if self._reading:
                self._reading_step()
            elif self._ids.size:
                self._decoding_steps()
            elif self._next < len(self._requests):
                self._now = max(self._now, float(self._requests.arrival_s[self._next]))
            else:
                return

    def outcome(self) -> Outcome:
        """What happened to each request so far."""
        return Outcome(
            requests=self._requests,
            admitted_s=self._admitted_s,
            first_token_s=self._first_s,
            finish_s=self._finish_s,
            rejected=self._rejected,
            end_s=self._now,
            seconds_by_batch=self._seconds_by_batch,
            num_steps=self._num_steps,
        )

    def _arrive(self) -> None:
        arrivals, most = self._requests.arrival_s, self._bounds.max_waiting
        while self._next < len(arrivals) and arrivals[self._next] <= self._now:
            if self._never_fits(self._next) or (
                most is not None and len(self._waiting) >= most + self._free_slots
            ):
                self._rejected[self._next] = True
            else:
                self._waiting.append(self._next)
            self._next += 1

    @property
    def _free_slots(self) -> int:
        return self._bounds.max_batch - len(self._ids) - len(self._reading)

    def _slots_of(self, request: int) -> int:
        prompt, limit = self._requests.prompt_tokens[request], self._requests.limit_tokens[request]
        return self._replica.reserved_tokens(int(prompt), int(limit))

    def _never_fits(self, request: int) -> bool:
        capacity = self._replica.kv_tokens
        return capacity is not None and self._slots_of(request) > capacity

    def _admit(self) -> None:
        """First come, first served: one that doesn't fit keeps those behind it waiting."""
        while self._waiting:
            request = self._waiting[0]
            patience = self._bounds.patience_s
            if patience is not None and self._now - self._requests.arrival_s[request] > patience:
                self._rejected[self._waiting.popleft()] = True
                continue
            if not self._fits(request):
                return
            self._waiting.popleft()
            self._reserved += self._slots_of(request)
            self._admitted_s[request] = self._now
            self._reading.append([request, int(self._requests.prompt_tokens[request])])

    def _fits(self, request: int) -> bool:
        if self._free_slots < 1:
            return False
        budget = self._bounds.step_tokens
        num_there = len(self._ids) + len(self._reading)
        if budget is not None and (num_there + 1) * (self._policy.max_k + 1) > budget:
            return False
        capacity = self._replica.kv_tokens
        return capacity is None or self._reserved + self._slots_of(request) <= capacity

    def _reading_step(self) -> None:
        """One step that reads prompts: beside the decoding in chunks, or whole prompts while it waits."""
        alone = self._bounds.chunk_tokens is None
        seconds = 0.0
        if not alone and self._ids.size:
            seconds = self._decode(1, np.inf)
        num_read = self._read(0 if alone else len(self._ids))
        seconds_read = self._replica.prompt_s(num_read)
        self._pass(seconds_read, len(self._ids) + len(self._reading))
        if alone or seconds == 0.0:
            self._num_steps += 1
        self._finish()
        self._start_decoding()

    def _read(self, num_decoding: int) -> int:
        budget: float = np.inf if self._bounds.chunk_tokens is None else self._bounds.chunk_tokens
        if self._bounds.step_tokens is not None:
            budget = min(budget, self._bounds.step_tokens - num_decoding * (self._policy.max_k + 1))
        num_read = 0
        for entry in self._reading:
            chunk = int(min(entry[1], budget - num_read))
            if self._bounds.chunk_tokens is None and chunk < entry[1] and num_read:
                break
            entry[1] -= max(chunk, 0)
            num_read += max(chunk, 0)
        return num_read

    def _start_decoding(self) -> None:
        """The last prompt token brings the first output token."""
        started = []
        while self._reading and self._reading[0][1] == 0:
            request = self._reading.popleft()[0]
            self._first_s[request] = self._now
            started.append(request)
        if started:
            self._ids = np.concatenate([self._ids, np.array(started, dtype=np.int64)])
            self._written = np.concatenate([self._written, np.ones(len(started), dtype=np.int64)])
            self._finish()

    def _decoding_steps(self) -> None:
        someone_may_join = not self._waiting and self._free_slots > 0 and self._next < len(self._requests)
        until_s = float(self._requests.arrival_s[self._next]) if someone_may_join else np.inf
        self._decode(_MOST_STEPS_ADAPTING if self._policy.adapts else _MOST_STEPS, until_s)
        self._finish()

    def _decode(self, most_steps: int, until_s: float) -> float:
        """Decode until a sequence is done, a request arrives, or so many steps are over; seconds it took."""
        ids, n = self._ids, len(self._ids)
        context = int(self._requests.prompt_tokens[ids].sum() + self._written.sum())
        k = self._policy.choose(n, context)
        profiles = self._profiles[k]
        left = self._requests.output_tokens[ids] - self._written
        num_steps = min(
            most_steps, int(left.min() / profiles.mean_emitted) + 2, max(1, _MOST_DRAWS // (n * (k + 1)))
        )
        proposed, emitted, before = self._draws(k, num_steps)
        steps_s = self._replica.step_s(
            k,
            num_sequences=n,
            proposed=proposed.sum(axis=1),
            depth=proposed.max(axis=1),
            context=context + (before - self._written).sum(axis=1),
        )
        spread = self._replica.spread(k)
        if spread.size:
            steps_s = steps_s * spread[self._rng.integers(spread.size, size=num_steps)]
        ends_s = self._now + np.cumsum(steps_s)
        done = ((before + emitted) >= self._requests.output_tokens[ids]).any(axis=1) | (ends_s >= until_s)
        last = int(done.argmax()) if done.any() else num_steps - 1
        self._written = before[last] + emitted[last]
        seconds = float(ends_s[last] - self._now)
        self._pass(seconds, n + len(self._reading))
        self._num_steps += last + 1
        self._policy.learn(k, n * (last + 1), float(emitted[: last + 1].sum()))
        return seconds

    def _draws(self, k: int, num_steps: int) -> tuple[IntArray, IntArray, IntArray]:
        """[num_steps, n] drafted and emitted tokens, and tokens written before each step.

        Rows after one in which a sequence ends are void.
        """
        ids = self._ids
        shape = (num_steps, len(ids))
        output, limit = self._requests.output_tokens[ids], self._requests.limit_tokens[ids]
        if k == 0:
            before = self._written + np.arange(num_steps)[:, None]
            return np.zeros(shape, dtype=np.int64), np.ones(shape, dtype=np.int64), before
        profiles = self._profiles[k]
        rows = profiles.of_request[ids]
        standing = (self._rng.random(shape)[..., None] < profiles.survival[rows]).sum(axis=2)
        drafted = np.full(shape, k)
        if not profiles.always_full:
            drafted = (self._rng.random(shape)[..., None] < profiles.drafted[rows]).sum(axis=2)
            standing = np.minimum(standing, drafted)
        steps = np.cumsum(standing + 1, axis=0)
        before = self._written + steps - (standing + 1)
        # the target adds a token of its own, so the last one the limit allows is never drafted
        drafted = np.clip(np.minimum(drafted, limit - before - 1), 0, None)
        emitted = np.minimum(np.minimum(standing, drafted) + 1, output - before)
        return drafted, emitted, before

    def _finish(self) -> None:
        done = self._written >= self._requests.output_tokens[self._ids]
        if done.any():
            gone = self._ids[done]
            self._finish_s[gone] = self._now
            self._reserved -= sum(self._slots_of(int(request)) for request in gone)
            self._ids, self._written = self._ids[~done], self._written[~done]

    def _pass(self, seconds: float, num_there: int) -> None:
        self._now += seconds
        self._seconds_by_batch[num_there] += seconds


def _check_room(replica: Replica) -> None:
    bounds, k = replica.bounds, replica.policy.max_k
    if bounds.max_batch < 1:
        raise ConfigError("replica.max_batch", "must be at least 1", bounds.max_batch)
    if bounds.step_tokens is not None and bounds.step_tokens < k + 1:
        remedy = f"Draft fewer tokens, or allow {k + 1} tokens."
        raise ConfigError(
            "replica.step_tokens", f"must hold a step of k + 1 = {k + 1}", bounds.step_tokens, remedy
        )
    if bounds.chunk_tokens is not None and bounds.chunk_tokens < 1:
        raise ConfigError("replica.chunk_tokens", "must be at least 1", bounds.chunk_tokens)
