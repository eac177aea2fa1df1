"""Acceptance on demand: a real drafter whose tokens stand by lot, so that costs stay real."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from harness.engine.drafters.base import Drafter, Turn
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

    def begin(self, prompts: Sequence[Sequence[int]]) -> None:
        """Hand the prompts on."""
        self._drafter.begin(prompts)

    def propose(self, turns: Sequence[Turn], *, sampling: SamplingParams) -> list[Proposal]:
        """Propose, with the number of tokens that will stand."""
        proposals = self._drafter.propose(turns, sampling=sampling)
        return [
            replace(proposal, num_standing=self._standing(len(proposal.tokens), turn.generator))
            for proposal, turn in zip(proposals, turns, strict=True)
        ]

    def settle(self, num_accepted: Sequence[int]) -> None:
        """Hand the numbers on."""
        self._drafter.settle(num_accepted)

    def keep(self, rows: Sequence[int]) -> None:
        """Hand the rows on."""
        self._drafter.keep(rows)

    def _standing(self, count: int, generator: torch.Generator) -> int:
        uniform = torch.rand(count, generator=generator, device=generator.device, dtype=torch.float64)
        for place, draw in enumerate(uniform.tolist()):
            if draw >= self._acceptance[min(place, len(self._acceptance) - 1)]:
                return place
        return count
