"""A small model of its own that shares the target's tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from harness.engine.cache import KVCache
from harness.engine.compiled.chain import CompiledChain, chains_run, compiled_chain
from harness.engine.drafters.base import Turn
from harness.engine.linear import Linear
from harness.engine.model import Transformer
from harness.engine.prefill import prefill_prompts
from harness.engine.sampling import SamplingParams, distribution, draw
from harness.engine.verify import Proposal


class IndependentDrafter:
    """Drafts for all sequences of a batch at once, with a smaller transformer over its own static cache.

    A drafter may propose from a subset of the vocabulary and stay lossless: the tokens left out have
    q = 0, and the residual redraw gives them their due. A head over the subset costs less.

    Args:
        model: the draft model.
        cache: of the draft model, for as many sequences and tokens as the target's.
        head: replaces the model's own LM head, giving [..., draft_vocab].
        vocab: [draft_vocab] int64 target ids of the head's outputs; None where they're the same.
        sample: draw drafts from the drafter's distribution at temperature above 0; otherwise propose
            its likeliest token with certainty.
        min_confidence: end a draft where the likeliest next token would bring the product of its tokens'
            probabilities below.
    """

    def __init__(
        self,
        model: Transformer,
        *,
        cache: KVCache,
        head: Linear | None = None,
        vocab: Tensor | None = None,
        sample: bool = True,
        min_confidence: float = 0.0,
    ) -> None:
        """See the class."""
        self._model = model
        self._head = head or model.head
        self._vocab = vocab
        self._ids = None if vocab is None else vocab.tolist()
        self._sample, self._min_confidence = sample, min_confidence
        self._cache = cache
        self._chain = compiled_chain(model, self._head, vocab=vocab)
        self._num_fed: list[int] = []

    def begin(self, prompts: Sequence[Sequence[int]]) -> None:
        """Prefill each prompt's tokens, all but the last: `propose` always has one to feed."""
        self._cache.clear(len(prompts))
        self._num_fed = [0] * len(prompts)
        prefill_prompts(self._model, [prompt[:-1] for prompt in prompts], self._cache)

    def propose(self, turns: Sequence[Turn], *, sampling: SamplingParams) -> list[Proposal]:
        """Draft each sequence's tokens one after another, the sequences side by side."""
        draws = self._sample and not sampling.is_greedy
        runs = chains_run(sampling, sample=draws, min_confidence=self._min_confidence)
        if self._chain is not None and runs:
            return self._propose_chains(self._chain, turns, sampling.temperature, sample=draws)
        drafts = [_Draft(turn) for turn in turns]
        # After a fully accepted step the last draft was never fed: feed it now, with the target's token.
        for draft, cached in zip(drafts, self._cache.lengths, strict=True):
            draft.pending = list(draft.turn.tokens[cached:])
        while any(not draft.is_full for draft in drafts):
            self._extend(drafts, sampling)
        self._num_fed = [_num_fed(len(draft.tokens), draft.turn.limit) for draft in drafts]
        return [draft.proposal(self._vocab) for draft in drafts]

    def _propose_chains(
        self, chains: CompiledChain, turns: Sequence[Turn], temperature: float, *, sample: bool
    ) -> list[Proposal]:
        lengths = self._cache.lengths
        new = [
            list(turn.tokens[length:]) if turn.limit else []
            for turn, length in zip(turns, lengths, strict=True)
        ]
        proposals = chains.propose(
            new,
            turns,
            self._cache,
            temperature=temperature,
            sample=sample,
            min_confidence=self._min_confidence,
        )
        self._num_fed = [
            _num_fed(len(proposal.tokens), turn.limit)
            for proposal, turn in zip(proposals, turns, strict=True)
        ]
        self._cache.lengths = [
            length + len(own) + fed for length, own, fed in zip(lengths, new, self._num_fed, strict=True)
        ]
        return proposals

    def settle(self, num_accepted: Sequence[int]) -> None:
        """Drop the cached rows of rejected drafts."""
        self._cache.lengths = [
            length - max(0, fed - accepted)
            for length, fed, accepted in zip(self._cache.lengths, self._num_fed, num_accepted, strict=True)
        ]
        self._num_fed = [0] * len(self._num_fed)

    def keep(self, rows: Sequence[int]) -> None:
        """Drop the cached rows of finished sequences."""
        self._cache.keep(rows)
        self._num_fed = [0] * len(rows)

    def _extend(self, drafts: list[_Draft], sampling: SamplingParams) -> None:
        """Draft one more token for each sequence that isn't at its limit."""
        open_rows = [row for row, draft in enumerate(drafts) if not draft.is_full]
        hidden = self._model.feed([[] if draft.is_full else draft.pending for draft in drafts], self._cache)
        if len(open_rows) < len(drafts):
            hidden = hidden[open_rows]
        logits = self._head(hidden)
        sampled = self._sample and not sampling.is_greedy
        probs = distribution(logits, sampling) if sampled or self._min_confidence else None
        if probs is not None and self._min_confidence:
            # decided before tokens are drawn: what is drawn keeps its distribution
            highest = probs.amax(-1).tolist()
            sure = [
                place
                for place, row in enumerate(open_rows)
                if drafts[row].goes_on(highest[place], self._min_confidence)
            ]
            open_rows, logits, probs = [open_rows[place] for place in sure], logits[sure], probs[sure]
            if not open_rows:
                return
        if sampled and probs is not None:
            columns = draw(probs, [drafts[row].turn.generator for row in open_rows])
        else:
            columns = logits.argmax(-1)
        chances = [1.0] * len(open_rows)
        if probs is not None and self._min_confidence:
            chances = probs.gather(1, columns[:, None])[:, 0].tolist()
        for place, (row, column) in enumerate(zip(open_rows, columns.tolist(), strict=True)):
            token = column if self._ids is None else self._ids[column]
            own = probs[place : place + 1] if sampled and probs is not None else None
            drafts[row].add(token, own, chances[place])


def _num_fed(length: int, limit: int) -> int:
    """Drafted tokens that the drafter's cache holds: the last one of a draft at its limit was never fed."""
    return length if length < limit else max(0, length - 1)


class _Draft:
    """What is drafted for one sequence, as it grows."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.pending: list[int] = []
        self.tokens: list[int] = []
        self._probs: list[Tensor] = []
        self._confidence, self._unsure = 1.0, False

    @property
    def is_full(self) -> bool:
        return self._unsure or len(self.tokens) >= self.turn.limit

    def goes_on(self, highest: float, min_confidence: float) -> bool:
        self._unsure = self._confidence * highest < min_confidence
        return not self._unsure

    def add(self, token: int, probs: Tensor | None, chance: float) -> None:
        self.tokens.append(token)
        self._confidence *= chance
        self.pending = [token]
        if probs is not None:
            self._probs.append(probs)

    def proposal(self, vocab: Tensor | None) -> Proposal:
        return Proposal(self.tokens, torch.cat(self._probs) if self._probs else None, vocab)
