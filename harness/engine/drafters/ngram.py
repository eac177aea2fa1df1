"""Prompt lookup: what followed the last tokens the previous time they occurred."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from harness.engine.sampling import SamplingParams
from harness.engine.verify import Proposal


class NgramDrafter:
    """Proposes the continuation of the longest recent match in the sequence's own tokens.

    It keeps an index from n-grams to where they were last followed by a token, extended as tokens
    come, so that a look-up costs the same in a long context. Nothing carries over between sequences.

    Source: Saxena 2023, "Prompt lookup decoding".
    """

    def __init__(self, *, min_ngram: int = 1, max_ngram: int = 3) -> None:
        """Match the last `max_ngram` tokens, or fewer down to `min_ngram`."""
        self._sizes = range(max_ngram, min_ngram - 1, -1)
        self._followers: dict[tuple[int, ...], int] = {}
        self._indexed = 0

    def begin(self, prompt: Sequence[int]) -> None:
        """Index the prompt."""
        self._followers = {}
        self._indexed = 0
        self._extend(prompt)

    def propose(
        self, tokens: Sequence[int], *, limit: int, sampling: SamplingParams, generator: torch.Generator
    ) -> Proposal:
        """Copy up to `limit` tokens from behind the latest match; none where nothing matches."""
        self._extend(tokens)
        for size in self._sizes:
            start = self._followers.get(tuple(tokens[-size:]))
            if start is not None:
                return Proposal(list(tokens[start : start + limit]))
        return Proposal()

    def settle(self, num_accepted: int) -> None:
        """Nothing to forget: only committed tokens are ever indexed."""

    def _extend(self, tokens: Sequence[int]) -> None:
        # A position enters the index once the token behind it is known, so the tail never finds itself.
        for end in range(self._indexed + 1, len(tokens)):
            for size in self._sizes:
                if size <= end:
                    self._followers[tuple(tokens[end - size : end])] = end
        self._indexed = max(self._indexed, len(tokens) - 1)
