"""How many tokens to draft next: fixed, by rules, or by what is likely to be fastest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

PRIOR_ACCEPTED, PRIOR_REJECTED = 1.5, 1.0
"""Pseudo-counts an acceptance estimate starts from."""
MEMORY = 0.95
"""What each step leaves of the counts before it: about the last twenty steps decide."""
PROBE_EVERY = 16
"""Steps without drafts before one token is drafted again, so that a better stretch is noticed."""


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Measured seconds of a step's parts.

    Attributes:
        draft_s: [k_max + 1] of drafting 0, 1, ... tokens.
        verify_s: [k_max + 1] of the target's forward over 0, 1, ... drafted tokens and its own.
    """

    draft_s: Sequence[float]
    verify_s: Sequence[float]

    @property
    def longest(self) -> int:
        """Most drafted tokens there is a cost for."""
        return min(len(self.draft_s), len(self.verify_s)) - 1

    def best_length(self, acceptance: float, *, limit: int) -> int:
        """The number of drafted tokens with the most expected output per second; 0 drafts none.

        Args:
            acceptance: probability that a drafted token stands, those before it having stood.
            limit: no more than this.

        Source: Leviathan et al. 2023, equation 1, with a verification cost that grows with k.
        """
        expected, reached, best, best_rate = 1.0, 1.0, 0, 0.0
        for k in range(min(limit, self.longest) + 1):
            rate = expected / (self.draft_s[k] + self.verify_s[k])
            if rate > best_rate:
                best, best_rate = k, rate
            reached *= acceptance
            expected += reached
        return best


class Pace(Protocol):
    """Decides for one sequence how many tokens each step drafts."""

    def length(self) -> int:
        """Tokens to draft in the next step."""

    def observe(self, proposed: int, accepted: int) -> None:
        """Hear what became of the last step's drafts."""


@dataclass(frozen=True, slots=True)
class FixedPace:
    """Always the same number."""

    k: int

    def length(self) -> int:
        """Always k."""
        return self.k

    def observe(self, proposed: int, accepted: int) -> None:
        """Nothing to learn."""


class AdaptivePace:
    """Follows a running estimate of the sequence's acceptance.

    Every step counts the drafts that were judged: those accepted and, where one was rejected, that
    one. Older steps count less.

    Args:
        k: most tokens to draft.
        costs: measured for this target, drafter and batch size.
    """

    def __init__(self, k: int, costs: StepCosts) -> None:
        """See the class."""
        self._k, self._costs = k, costs
        self._accepted, self._rejected = PRIOR_ACCEPTED, PRIOR_REJECTED
        self._idle = 0

    @property
    def acceptance(self) -> float:
        """The running estimate."""
        return self._accepted / (self._accepted + self._rejected)

    def length(self) -> int:
        """The fastest number for the acceptance so far; now and then 1 where that is none."""
        best = self._costs.best_length(self.acceptance, limit=self._k)
        return 1 if best == 0 and self._idle >= PROBE_EVERY else best

    def observe(self, proposed: int, accepted: int) -> None:
        """Count the drafts that were judged."""
        if proposed == 0:
            self._idle += 1
            return
        self._idle = 0
        self._accepted = MEMORY * self._accepted + accepted
        self._rejected = MEMORY * self._rejected + (accepted < proposed)


@dataclass(frozen=True, slots=True)
class PaceRules:
    """Where speculation is switched off from the start.

    Attributes:
        min_output_tokens: off for sequences whose output limit is below it; 0 never.
        max_prompt_tokens: off for longer prompts; None never.
        max_batch: off while more sequences than this are decoded together; None never.
    """

    min_output_tokens: int = 0
    max_prompt_tokens: int | None = None
    max_batch: int | None = None

    def allows_sequence(self, *, prompt_tokens: int, max_new_tokens: int) -> bool:
        """Whether a sequence is drafted for at all."""
        short = max_new_tokens < self.min_output_tokens
        long = self.max_prompt_tokens is not None and prompt_tokens > self.max_prompt_tokens
        return not short and not long

    def allows_batch(self, size: int) -> bool:
        """Whether a step of so many sequences drafts."""
        return self.max_batch is None or size <= self.max_batch


@dataclass(frozen=True, slots=True)
class PacePlan:
    """How a variant paces its sequences.

    Attributes:
        k: drafted tokens per step, or the most of them.
        costs: None keeps k fixed.
        rules: where nothing is drafted.
    """

    k: int
    costs: StepCosts | None = None
    rules: PaceRules = PaceRules()

    def start(self, *, prompt_tokens: int, max_new_tokens: int) -> Pace:
        """The pace of one sequence."""
        if not self.rules.allows_sequence(prompt_tokens=prompt_tokens, max_new_tokens=max_new_tokens):
            return FixedPace(0)
        return FixedPace(self.k) if self.costs is None else AdaptivePace(self.k, self.costs)
