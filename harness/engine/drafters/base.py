"""What the decode loop asks of a drafter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from harness.engine.sampling import SamplingParams
from harness.engine.verify import Proposal


@dataclass(frozen=True, slots=True)
class Turn:
    """One sequence that a step drafts for.

    Attributes:
        tokens: prompt and all output so far.
        limit: most tokens to propose; 0 asks for none.
        generator: of the sequence's own random numbers, so that nothing hangs on who shares the batch.
    """

    tokens: Sequence[int]
    limit: int
    generator: torch.Generator


@runtime_checkable
class HiddenReader(Protocol):
    """A drafter that reads what the target has computed."""

    def read_hidden(self, hidden: Sequence[Tensor]) -> None:
        """Take each sequence's hidden states at the tokens committed since, [tokens, hidden_size].

        They are those of the prompt after `begin`, and after each step those of the token before the
        drafts and of the drafts that stood. The newest committed token has none yet.
        """


class Drafter(Protocol):
    """Proposes tokens for a batch of sequences; `begin` forgets the batch before."""

    def begin(self, prompts: Sequence[Sequence[int]]) -> None:
        """Take a new batch's prompts; counted in the time to the first token."""

    def propose(self, turns: Sequence[Turn], *, sampling: SamplingParams) -> list[Proposal]:
        """Propose what follows each sequence of the batch, in its order."""

    def settle(self, num_accepted: Sequence[int]) -> None:
        """Hear how many of the last proposals' tokens stood, and forget the others."""

    def keep(self, rows: Sequence[int]) -> None:
        """Let finished sequences go: row i of the batch is from now on what was `rows[i]`."""
