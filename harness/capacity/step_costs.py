"""Seconds of a step: verification by its width, drafting by its depth, and never one number for both."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from harness.capacity.fitting import Curve, FloatArray


@dataclass(frozen=True, slots=True)
class StepCosts:
    """What the steps of one drafting method cost; the baseline drafts nothing.

    A step of n sequences that drafted d_1 ... d_n tokens verifies w = n + sum d tokens and takes
    `verify(w) + verify_per_sequence_s n + verify_per_context_s C` with C the cached tokens of all its
    sequences; drafting takes
    `draft_s + max d (draft_token_s + draft_sequence_s (n - 1) + draft_context_s C)`.

    Attributes:
        verify: seconds of the target's forward over its width in tokens.
        verify_per_sequence_s: what each sequence adds; below 0 where drafted tokens cost more than its own.
        verify_per_context_s: what each cached token adds.
        draft_s: drafting, before any token.
        draft_token_s: a drafted token of one sequence.
        draft_sequence_s: what a further sequence adds to it.
        draft_context_s: what a cached token adds to it.
        overhead_s: the rest of a step.
        overhead_sequence_s: what each sequence adds to the rest.
        prefill_s: reading prompts, before any token.
        prefill_token_s: each token of a prompt, the drafter's reading included.
        spread: seconds measured over seconds predicted, one entry per measured step, of mean 1; the
            simulation draws from it. Empty for a deterministic replica.
    """

    verify: Curve
    verify_per_sequence_s: float = 0.0
    verify_per_context_s: float = 0.0
    draft_s: float = 0.0
    draft_token_s: float = 0.0
    draft_sequence_s: float = 0.0
    draft_context_s: float = 0.0
    overhead_s: float = 0.0
    overhead_sequence_s: float = 0.0
    prefill_s: float = 0.0
    prefill_token_s: float = 0.0
    spread: FloatArray = field(default_factory=lambda: np.ones(0))

    def step_s(
        self,
        *,
        num_sequences: npt.ArrayLike,
        proposed: npt.ArrayLike,
        depth: npt.ArrayLike,
        context: npt.ArrayLike,
    ) -> FloatArray:
        """Seconds of decoding steps.

        Args:
            num_sequences: n, of each step.
            proposed: drafted tokens of all sequences together.
            depth: drafted tokens of the sequence with the most.
            context: cached tokens of all sequences together.
        """
        n, total, deep, cached = (
            np.asarray(a, dtype=np.float64) for a in (num_sequences, proposed, depth, context)
        )
        sequences_s = self.verify_per_sequence_s * n + self.verify_per_context_s * cached
        verify_s = np.maximum(self.verify(n + total) + sequences_s, 0.0)
        per_token_s = self.draft_token_s + self.draft_sequence_s * (n - 1) + self.draft_context_s * cached
        overhead_s = self.overhead_s + self.overhead_sequence_s * n
        return np.asarray(verify_s + self.draft_s + deep * per_token_s + overhead_s, dtype=np.float64)

    def prompt_s(self, num_tokens: float) -> float:
        """Seconds of reading prompt tokens in one step."""
        return self.prefill_s + self.prefill_token_s * num_tokens if num_tokens > 0 else 0.0
