"""One replica: what its steps cost, what its drafts yield, and what bounds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.capacity.acceptance import Acceptance
from harness.capacity.fitting import FloatArray
from harness.capacity.policy import NEVER, Policy
from harness.capacity.step_costs import StepCosts


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a scheduler may do.

    Attributes:
        max_batch: sequences decoding or being read at once.
        kv_tokens: tokens the cache holds; None sets no limit. A sequence reserves prompt, output limit
            and k look-ahead slots when it is admitted.
        kv_tokens_with_drafter: the same once a drafter is loaded, whose weights and cache take their share;
            None takes `kv_tokens`.
        chunk_tokens: prompt tokens read beside the decoding in one step; None reads whole prompts while the
            decoding waits.
        step_tokens: tokens of one step, k + 1 of each decoding sequence and the prompt's; None sets no limit.
        max_waiting: requests that may wait; one more is rejected. None sets no limit.
        patience_s: a request that waited longer is rejected; None waits for ever.
    """

    max_batch: int = 1
    kv_tokens: int | None = None
    kv_tokens_with_drafter: int | None = None
    chunk_tokens: int | None = None
    step_tokens: int | None = None
    max_waiting: int | None = None
    patience_s: float | None = None


@dataclass(frozen=True)
class Replica:
    """A server that decodes in continuous batches.

    Attributes:
        baseline: costs of steps without drafts.
        bounds: of its scheduler.
        policy: how many tokens it drafts.
        costs: of steps with drafts, and of reading prompts where a drafter is loaded; None takes `baseline`.
        acceptances: by k, for every k above 0 that the policy may choose.
    """

    baseline: StepCosts
    bounds: Bounds
    policy: Policy = NEVER
    costs: StepCosts | None = None
    acceptances: Mapping[int, Acceptance] = field(default_factory=dict)

    @property
    def kv_tokens(self) -> int | None:
        """Tokens the cache holds with this policy."""
        if self.policy.loads_drafter and self.bounds.kv_tokens_with_drafter is not None:
            return self.bounds.kv_tokens_with_drafter
        return self.bounds.kv_tokens

    def reserved_tokens(self, prompt_tokens: int, limit_tokens: int) -> int:
        """Cache slots a sequence takes while it is there, k look-ahead slots included."""
        return prompt_tokens + limit_tokens + self.policy.max_k

    def step_s(
        self, k: int, *, num_sequences: int, proposed: FloatArray, depth: FloatArray, context: FloatArray
    ) -> FloatArray:
        """Seconds of decoding steps at k: verification by width, whatever is accepted."""
        costs = self.costs if k and self.costs is not None else self.baseline
        return costs.step_s(num_sequences=num_sequences, proposed=proposed, depth=depth, context=context)

    def prompt_s(self, num_tokens: float) -> float:
        """Seconds of reading prompts; a loaded drafter reads them too, even while speculation is off."""
        costs = self.costs if self.policy.loads_drafter and self.costs is not None else self.baseline
        return costs.prompt_s(num_tokens)

    def spread(self, k: int) -> FloatArray:
        """Relative seconds of steps to draw from; empty for none."""
        costs = self.costs if k and self.costs is not None else self.baseline
        return costs.spread
