"""How many tokens a replica drafts: a fixed k, k by batch, or whichever k pays by its running acceptance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from harness.capacity.acceptance import Acceptance
from harness.capacity.fitting import FloatArray
from harness.capacity.step_costs import StepCosts


class Policy(Protocol):
    """Chooses k for the next steps."""

    @property
    def max_k(self) -> int:
        """The largest it may choose: look-ahead slots are reserved for it."""

    @property
    def loads_drafter(self) -> bool:
        """Whether a drafter is there at all; k = 0 with it loaded isn't the same as never having it."""

    @property
    def adapts(self) -> bool:
        """Whether it watches what is accepted, and so must be asked often."""

    def choose(self, num_sequences: int, context: float) -> int:
        """Number of drafted tokens per step for a batch."""

    def learn(self, k: int, num_steps: int, emitted: float) -> None:
        """Hear that `num_steps` sequence steps at k brought `emitted` tokens."""

    def restarted(self) -> Policy:
        """The same policy, having learnt nothing."""


@dataclass(frozen=True, slots=True)
class FixedK:
    """Always the same k; 0 without a drafter is plain decoding, 0 with one is speculation switched off."""

    max_k: int
    loads_drafter: bool = True
    adapts: bool = False

    def choose(self, num_sequences: int, context: float) -> int:
        """The k there is."""
        return self.max_k

    def learn(self, k: int, num_steps: int, emitted: float) -> None:
        """Nothing to learn."""

    def restarted(self) -> FixedK:
        """Itself."""
        return self


NEVER = FixedK(0, loads_drafter=False)
"""No drafter at all."""


@dataclass(frozen=True, slots=True)
class ByBatch:
    """k by the number of sequences: (first, last, k) with no gaps; the last band goes on for ever."""

    bands: tuple[tuple[int, int, int], ...]
    loads_drafter: bool = True
    adapts: bool = False

    @property
    def max_k(self) -> int:
        """The largest k of a band."""
        return max(k for _, _, k in self.bands)

    def choose(self, num_sequences: int, context: float) -> int:
        """The band's k."""
        return next((k for _, last, k in self.bands if num_sequences <= last), self.bands[-1][2])

    def learn(self, k: int, num_steps: int, emitted: float) -> None:
        """Nothing to learn."""

    def restarted(self) -> ByBatch:
        """Itself."""
        return self


class AdaptiveK:
    """The k whose expected tokens per second of a step is highest, 0 included.

    It starts from the measured yield of each k and corrects it by what the running sequences accept: the
    factor between the tokens that came and those expected, smoothed over about `memory_steps` sequence steps.

    Args:
        costs: of the method.
        baseline: of steps without drafts.
        acceptances: by k.
        memory_steps: sequence steps that the running factor remembers.
    """

    loads_drafter = True
    adapts = True

    def __init__(
        self,
        costs: StepCosts,
        baseline: StepCosts,
        acceptances: Mapping[int, Acceptance],
        *,
        memory_steps: float = 200.0,
    ) -> None:
        """See the class."""
        self._costs, self._baseline, self._acceptances = costs, baseline, acceptances
        self._memory_steps = memory_steps
        self.max_k = max(acceptances)
        self._ks = (0, *sorted(acceptances))
        self._gain = {k: table.mean_emitted() - 1 for k, table in acceptances.items()}
        self._factor = 1.0

    def choose(self, num_sequences: int, context: float) -> int:
        """The k with the highest expected tokens per second."""
        rates = [self._rate(k, num_sequences, context) for k in self._ks]
        return self._ks[int(np.argmax(rates))]

    def learn(self, k: int, num_steps: int, emitted: float) -> None:
        """Move the factor towards what came; steps without drafts tell nothing."""
        expected = num_steps * self._gain.get(k, 0.0)
        if expected > 0:
            weight = 1 - np.exp(-num_steps / self._memory_steps)
            self._factor += weight * ((emitted - num_steps) / expected - self._factor)

    def restarted(self) -> AdaptiveK:
        """A fresh one."""
        return AdaptiveK(self._costs, self._baseline, self._acceptances, memory_steps=self._memory_steps)

    def _rate(self, k: int, num_sequences: int, context: float) -> float:
        costs = self._costs if k else self._baseline
        gain = self._gain.get(k, 0.0)
        seconds = costs.step_s(
            num_sequences=num_sequences, proposed=k * num_sequences, depth=k, context=context
        )
        return num_sequences * (1 + min(gain * self._factor, float(k))) / float(seconds)


def best_bands(
    costs: StepCosts,
    baseline: StepCosts,
    acceptances: Mapping[int, Acceptance],
    *,
    max_batch: int,
    context_per_sequence: float,
) -> tuple[tuple[int, int, int], ...]:
    """(first, last, k) by batch: the k with the most tokens per second, from measured costs alone.

    Args:
        costs: of the method.
        baseline: of steps without drafts.
        acceptances: by k.
        max_batch: the largest batch to decide for.
        context_per_sequence: cached tokens of a sequence.
    """
    chosen = [
        _best(costs, baseline, acceptances, n, n * context_per_sequence) for n in range(1, max_batch + 1)
    ]
    bands: list[tuple[int, int, int]] = []
    for n, k in enumerate(chosen, start=1):
        if bands and bands[-1][2] == k:
            bands[-1] = (bands[-1][0], n, k)
        else:
            bands.append((n, n, k))
    return tuple(bands)


def token_rates(
    costs: StepCosts, acceptance: Acceptance, batches: Sequence[int], *, context_per_sequence: float
) -> FloatArray:
    """Tokens per second of steady batches, from the mean yield of a step and its mean cost.

    Args:
        costs: of the method, or of the baseline for k = 0.
        acceptance: of the method at one k.
        batches: numbers of sequences.
        context_per_sequence: cached tokens of a sequence.

    Returns:
        [num_batches].
    """
    n = np.asarray(batches, dtype=np.float64)
    mean_drafted = float(acceptance.drafted.sum(axis=1).mean()) if acceptance.k else 0.0
    seconds = costs.step_s(
        num_sequences=n, proposed=n * mean_drafted, depth=mean_drafted, context=n * context_per_sequence
    )
    return np.asarray(n * acceptance.mean_emitted() / seconds)


def _best(
    costs: StepCosts, baseline: StepCosts, acceptances: Mapping[int, Acceptance], n: int, context: float
) -> int:
    adaptive = AdaptiveK(costs, baseline, acceptances)
    return adaptive.choose(n, context)
