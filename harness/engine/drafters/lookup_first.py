"""Copy where the text repeats itself, draft where it doesn't."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from harness.engine.drafters.base import Drafter, HiddenReader, Turn
from harness.engine.drafters.ngram import NgramDrafter
from harness.engine.sampling import SamplingParams
from harness.engine.verify import Proposal


class LookupFirst:
    """Proposes what followed a sequence's last tokens before; where nothing did, another drafter is asked.

    A copy costs nothing, and where the text repeats itself it is right more often than a draft. The
    drafter reads what was committed meanwhile when it is next asked.

    Args:
        drafter: asked for sequences whose last tokens are new.
        lookup: finds copies.
    """

    def __init__(self, drafter: Drafter, lookup: NgramDrafter) -> None:
        """See the class."""
        self._drafter, self._lookup = drafter, lookup

    def begin(self, prompts: Sequence[Sequence[int]]) -> None:
        """Both take the prompts."""
        self._lookup.begin(prompts)
        self._drafter.begin(prompts)

    def read_hidden(self, hidden: Sequence[Tensor]) -> None:
        """Pass them on, if the drafter reads any."""
        if isinstance(self._drafter, HiddenReader):
            self._drafter.read_hidden(hidden)

    def propose(self, turns: Sequence[Turn], *, sampling: SamplingParams) -> list[Proposal]:
        """Copies where there are any, drafts for the other sequences."""
        copies = self._lookup.propose(turns, sampling=sampling)
        others = [
            replace(turn, limit=0) if copy.tokens else turn for turn, copy in zip(turns, copies, strict=True)
        ]
        if not any(turn.limit for turn in others):
            return copies
        drafts = self._drafter.propose(others, sampling=sampling)
        return [copy if copy.tokens else draft for copy, draft in zip(copies, drafts, strict=True)]

    def settle(self, num_accepted: Sequence[int]) -> None:
        """The drafter hears of it; one that wasn't asked has nothing to forget."""
        self._drafter.settle(num_accepted)

    def keep(self, rows: Sequence[int]) -> None:
        """Drop what belongs to finished sequences."""
        self._lookup.keep(rows)
        self._drafter.keep(rows)
