"""Prompt lookup: what followed the last tokens the previous time they occurred."""

from __future__ import annotations

from collections.abc import Sequence

from harness.engine.drafters.base import Turn
from harness.engine.sampling import SamplingParams
from harness.engine.verify import Proposal


class NgramDrafter:
    """Proposes the continuation of the longest recent match in each sequence's own tokens.

    Source: Saxena 2023, "Prompt lookup decoding".
    """

    def __init__(self, *, min_ngram: int = 1, max_ngram: int = 3) -> None:
        """Match the last `max_ngram` tokens, or fewer down to `min_ngram`."""
        self._sizes = range(max_ngram, min_ngram - 1, -1)
        self._indexes: list[_NgramIndex] = []

    def begin(self, prompts: Sequence[Sequence[int]]) -> None:
        """Index the prompts."""
        self._indexes = [_NgramIndex(self._sizes) for _ in prompts]
        for index, prompt in zip(self._indexes, prompts, strict=True):
            index.extend(prompt)

    def propose(self, turns: Sequence[Turn], *, sampling: SamplingParams) -> list[Proposal]:
        """Copy up to `limit` tokens from behind the latest match; none where nothing matches."""
        return [
            Proposal(index.continuation(turn.tokens, turn.limit))
            for index, turn in zip(self._indexes, turns, strict=True)
        ]

    def settle(self, num_accepted: Sequence[int]) -> None:
        """Nothing to forget: only committed tokens are ever indexed."""

    def keep(self, rows: Sequence[int]) -> None:
        """Drop the indexes of finished sequences."""
        self._indexes = [self._indexes[row] for row in rows]


class _NgramIndex:
    """Where each n-gram of a sequence was last followed by a token.

    It is extended as tokens come, so that a look-up costs the same in a long context.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self._followers: dict[tuple[int, ...], int] = {}
        self._indexed = 0

    def continuation(self, tokens: Sequence[int], limit: int) -> list[int]:
        self.extend(tokens)
        for size in self._sizes:
            start = self._followers.get(tuple(tokens[-size:]))
            if start is not None:
                return list(tokens[start : start + limit])
        return []

    def extend(self, tokens: Sequence[int]) -> None:
        # A position enters the index once the token behind it is known, so the tail never finds itself.
        for end in range(self._indexed + 1, len(tokens)):
            for size in self._sizes:
                if size <= end:
                    self._followers[tuple(tokens[end - size : end])] = end
        self._indexed = max(self._indexed, len(tokens) - 1)
