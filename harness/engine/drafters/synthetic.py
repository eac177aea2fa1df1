"""Acceptance on demand: a real drafter whose tokens stand by lot, so that costs stay real."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from harness.engine.drafters.base import Drafter
from harness.engine.sampling import SamplingParams
from harness.engine.verify import Proposal


class SyntheticAcceptance:
    """Draws how many tokens of each proposal stand; target and drafter run as ever.

    It separates what an engine costs from how good a drafter is. The output is mostly the drafter's text, not
    the target's.

    Args:
        drafter: proposes the tokens.
        acceptance: by position, the probability that a token stands, those before it having stood; the last
            one goes on.
    """

    def __init__(self, drafter: Drafter, acceptance: Sequence[float]) -> None:
        """See the class."""
        self._drafter = drafter
        self._acceptance = tuple(acceptance)

    def begin(self, prompt: Sequence[int]) -> None:
        """Hand the prompt on."""
        self._drafter.begin(prompt)

    def propose(
        self, tokens: Sequence[int], *, limit: int, sampling: SamplingParams, generator: torch.Generator
    ) -> Proposal:
        """Propose, with the number of tokens that will stand."""
        proposal = self._drafter.propose(tokens, limit=limit, sampling=sampling, generator=generator)
        uniform = torch.rand(
            len(proposal.tokens), generator=generator, device=generator.device, dtype=torch.float64
        )
        standing = 0
        for draw in uniform.tolist():
            if draw >= self._acceptance[min(standing, len(self._acceptance) - 1)]:
                break
            standing += 1
        return replace(proposal, num_standing=standing)

    def settle(self, num_accepted: int) -> None:
        """Hand the number on."""
        self._drafter.settle(num_accepted)
