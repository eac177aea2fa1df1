"""A small model of its own that shares the target's tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from harness.engine.linear import Linear
from harness.engine.model import Transformer
from harness.engine.sampling import SamplingParams, draw, probabilities
from harness.engine.verify import Proposal


class IndependentDrafter:
    """Drafts with a second, smaller transformer over its own static cache.

    A drafter may propose from a subset of the vocabulary and stay lossless: the tokens left out have
    q = 0, and the residual redraw gives them their due. A head over the subset costs less.

    Args:
        model: the draft model.
        capacity: tokens of context to allocate.
        head: replaces the model's own LM head, giving [..., draft_vocab].
        vocab: [draft_vocab] int64 target ids of the head's outputs; None where they're the same.
        sample: draw drafts from the drafter's distribution at temperature above 0; otherwise propose
            its likeliest token with certainty.
    """

    def __init__(
        self,
        model: Transformer,
        *,
        capacity: int,
        head: Linear | None = None,
        vocab: Tensor | None = None,
        sample: bool = True,
    ) -> None:
        """See the class."""
        self._model = model
        self._head = head or model.head
        self._vocab = vocab
        self._ids = None if vocab is None else vocab.tolist()
        self._sample = sample
        self._cache = model.new_cache(batch=1, capacity=capacity)
        self._fed_drafts = 0

    def begin(self, prompt: Sequence[int]) -> None:
        """Prefill the prompt's tokens, all but the last: `propose` always has one to feed."""
        self._cache.clear()
        if len(prompt) > 1:
            self._model.prefill(torch.tensor([prompt[:-1]], device=self._model.device), self._cache)

    def propose(
        self, tokens: Sequence[int], *, limit: int, sampling: SamplingParams, generator: torch.Generator
    ) -> Proposal:
        """Draft `limit` tokens one after another."""
        # After a fully accepted step the last draft was never fed: feed it now, with the target's token.
        pending = list(tokens[self._cache.lengths[0] :])
        drafted: list[int] = []
        rows: list[Tensor] = []
        sampled = self._sample and not sampling.is_greedy
        for _ in range(limit):
            hidden = self._model.prefill(torch.tensor([pending], device=self._model.device), self._cache)
            logits = self._head(hidden)
            if sampled:
                rows.append(probabilities(logits, sampling))
                column = int(draw(rows[-1], generator))
            else:
                column = int(logits.argmax(-1))
            pending = [column if self._ids is None else self._ids[column]]
            drafted += pending
        self._fed_drafts = max(0, len(drafted) - 1)
        return Proposal(drafted, torch.cat(rows) if rows else None, self._vocab)

    def settle(self, num_accepted: int) -> None:
        """Drop the cached rows of rejected drafts."""
        self._cache.lengths[0] -= max(0, self._fed_drafts - num_accepted)
        self._fed_drafts = 0
