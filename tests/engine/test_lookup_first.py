"""Copies first, drafts where nothing can be copied: exact whatever mixes."""

from __future__ import annotations

import pytest
import torch
from engine.exact_distribution import chi_square_p, count_outcomes, joint_distribution
from engine.random_heads import random_eagle
from engine.random_models import greedy_continuation, random_transformer

from harness.engine.drafters.base import Drafter, HiddenReader, Turn
from harness.engine.drafters.eagle import EagleDrafter
from harness.engine.drafters.independent import IndependentDrafter
from harness.engine.drafters.lookup_first import LookupFirst
from harness.engine.drafters.ngram import NgramDrafter
from harness.engine.drafters.tree_model import TreeDraftModel
from harness.engine.loop import Decoder
from harness.engine.sampling import SamplingParams
from harness.engine.sequence import Request
from harness.engine.tree_growth import StaticTree, chain

TARGET = random_transformer(0, vocab_size=12)
ROUGH = random_transformer(0, vocab_size=12, noise=0.5)
CAPACITY = 80
PROMPTS = ([1, 2, 3, 1, 2], [4], [5, 6, 7, 8, 9, 10, 11, 0], [3, 3, 3], [2, 9, 2, 9, 2])
LIMITS = (40, 25, 60, 9, 31)
GREEDY = SamplingParams()


def drafter(kind: str, *, batch: int = len(PROMPTS), sample: bool = False) -> Drafter:
    """A rough draft model in a chain or a tree, or an untrained EAGLE head."""
    if kind == "eagle":
        head = random_eagle(TARGET)
        cache = head.model.new_cache(capacity=CAPACITY, batch=batch)
        return EagleDrafter(head, cache=cache, plan=chain(3), sample=sample)
    cache = ROUGH.new_cache(capacity=CAPACITY, batch=batch)
    if kind == "tree":
        return TreeDraftModel(ROUGH, cache=cache, plan=StaticTree([0, 0, 1, 2]), sample=sample)
    return IndependentDrafter(ROUGH, cache=cache, sample=sample)


def lookup() -> NgramDrafter:
    return NgramDrafter(min_ngram=1, max_ngram=2)


class Counting:
    """Counts whom another drafter was asked for."""

    def __init__(self, inner: Drafter) -> None:
        self._inner, self.asked = inner, list[int]()
        self.begin, self.settle, self.keep = inner.begin, inner.settle, inner.keep
        if isinstance(inner, HiddenReader):
            self.read_hidden = inner.read_hidden

    def propose(self, turns: list[Turn], *, sampling: SamplingParams) -> object:
        self.asked += [turn.limit for turn in turns]
        return self._inner.propose(turns, sampling=sampling)


@pytest.mark.parametrize("kind", ["chain", "tree", "eagle"])
def test_greedy_output_is_the_targets_at_any_batch(kind: str) -> None:
    counting = Counting(drafter(kind))
    cache = TARGET.new_cache(capacity=CAPACITY, batch=len(PROMPTS))
    decoder = Decoder(TARGET, cache=cache, drafter=LookupFirst(counting, lookup()), k=3)  # type: ignore[arg-type]
    requests = [Request(prompt, limit) for prompt, limit in zip(PROMPTS, LIMITS, strict=True)]
    together = [one.tokens for one in decoder.decode_batch(requests, sampling=GREEDY)]
    assert together == [
        greedy_continuation(TARGET, prompt, limit) for prompt, limit in zip(PROMPTS, LIMITS, strict=True)
    ]
    # some sequences of a step were copied for while others were drafted for
    assert 0 in counting.asked
    assert max(counting.asked) == 3
    assert [
        decoder.decode(prompt, sampling=GREEDY, max_new_tokens=limit).tokens
        for prompt, limit in zip(PROMPTS, LIMITS, strict=True)
    ] == together


def test_a_copy_is_proposed_where_there_is_one_and_a_draft_elsewhere() -> None:
    inner = drafter("chain", batch=2)
    both = LookupFirst(inner, NgramDrafter(min_ngram=2, max_ngram=3))
    prompts = [[7, 8, 9, 1, 7, 8], [1, 2, 3]]
    both.begin(prompts)
    turns = [Turn(prompt, 2, torch.Generator()) for prompt in prompts]
    copied, drafted = both.propose(turns, sampling=GREEDY)
    assert copied.tokens == [9, 1]
    assert drafted.tokens == greedy_continuation(ROUGH, [1, 2, 3], 2)


def test_no_drafter_is_asked_where_all_is_copied() -> None:
    counting = Counting(drafter("chain", batch=1))
    both = LookupFirst(counting, lookup())  # type: ignore[arg-type]
    both.begin([[5, 5, 5]])
    (copied,) = both.propose([Turn([5, 5, 5], 2, torch.Generator())], sampling=GREEDY)
    assert copied.tokens
    assert counting.asked == []


@pytest.mark.parametrize("kind", ["chain", "eagle"])
def test_sampled_output_has_the_targets_distribution(kind: str) -> None:
    target, params, prompt = TARGET, SamplingParams(1.0, top_k=4), [1, 2, 3, 1, 2]
    both = LookupFirst(drafter(kind, batch=1, sample=True), lookup())
    decoder = Decoder(target, cache=target.new_cache(capacity=CAPACITY), drafter=both, k=2)
    outputs = [
        tuple(decoder.decode(prompt, sampling=params, max_new_tokens=3, seed=seed).tokens)
        for seed in range(1500)
    ]
    exact = joint_distribution(target, prompt, params, 3)
    assert chi_square_p(count_outcomes(outputs, exact.shape), exact) > 1e-3
