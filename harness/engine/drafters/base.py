"""What the decode loop asks of a drafter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from harness.engine.sampling import SamplingParams
from harness.engine.verify import Proposal


class Drafter(Protocol):
    """Proposes tokens for one sequence at a time; `begin` forgets the sequence before."""

    def begin(self, prompt: Sequence[int]) -> None:
        """Take a new sequence's prompt; counted in the time to the first token."""

    def propose(
        self, tokens: Sequence[int], *, limit: int, sampling: SamplingParams, generator: torch.Generator
    ) -> Proposal:
        """Propose at most `limit` tokens to follow `tokens` (prompt and all output so far)."""

    def settle(self, num_accepted: int) -> None:
        """Hear how many of the last proposal's tokens stood, and forget the others."""
