"""Chains that end where the drafter isn't sure: by its own probabilities, and exact wherever they end."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from engine.exact_distribution import chi_square_p, count_outcomes, joint_distribution
from engine.random_heads import random_eagle, random_medusa
from engine.random_models import greedy_continuation, random_transformer

from harness.engine.drafters.base import Drafter, Turn
from harness.engine.drafters.eagle import EagleDrafter
from harness.engine.drafters.independent import IndependentDrafter
from harness.engine.drafters.medusa import MedusaDrafter
from harness.engine.loop import Decoder
from harness.engine.sampling import SamplingParams
from harness.engine.sequence import Request
from harness.engine.tree_growth import chain

TARGET = random_transformer(0, vocab_size=12)
ROUGH = random_transformer(0, vocab_size=12, noise=0.5)
CAPACITY, K = 80, 3
PROMPTS = ([1, 2, 3, 1, 2], [4], [5, 6, 7, 8, 9, 10, 11, 0], [3, 3, 3])
LIMITS = (40, 25, 60, 9)
GREEDY = SamplingParams()
KINDS = ["draft_model", "eagle", "medusa"]


def drafter(kind: str, least: float, *, batch: int = len(PROMPTS), sample: bool = False) -> Drafter:
    """A rough draft model or untrained heads."""
    if kind == "eagle":
        head = random_eagle(TARGET)
        cache = head.model.new_cache(capacity=CAPACITY, batch=batch)
        return EagleDrafter(head, cache=cache, plan=chain(K, least), sample=sample)
    if kind == "medusa":
        return MedusaDrafter(random_medusa(TARGET, num_heads=K), chain(K, least), sample=sample)
    cache = ROUGH.new_cache(capacity=CAPACITY, batch=batch)
    return IndependentDrafter(ROUGH, cache=cache, sample=sample, min_confidence=least)


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_output_is_the_targets_and_drafts_shrink(kind: str) -> None:
    requests = [Request(prompt, limit) for prompt, limit in zip(PROMPTS, LIMITS, strict=True)]
    drafted = []
    for least in (0.0, 0.1, 0.3, 1.0):
        cache = TARGET.new_cache(capacity=CAPACITY, batch=len(PROMPTS))
        decoded = Decoder(TARGET, cache=cache, drafter=drafter(kind, least), k=K).decode_batch(
            requests, sampling=GREEDY
        )
        assert [one.tokens for one in decoded] == [
            greedy_continuation(TARGET, prompt, limit) for prompt, limit in zip(PROMPTS, LIMITS, strict=True)
        ]
        steps = [one.steps for one in decoded if one.steps is not None]
        drafted.append(sum(sum(own.proposed) for own in steps) / sum(len(own.proposed) for own in steps))
    assert drafted[0] > 2.5
    assert all(more > less for more, less in pairwise(drafted))
    assert drafted[-1] == 0.0


def test_a_draft_ends_where_its_probability_falls_below_the_bound() -> None:
    prompt = PROMPTS[0]
    full = drafter("draft_model", 0.0, batch=1, sample=True)
    full.begin([prompt])
    params = SamplingParams(0.7)
    (whole,) = full.propose([Turn(prompt, K, torch.Generator().manual_seed(5))], sampling=params)
    assert whole.probs is not None
    path, bounds = 1.0, []
    for row, token in zip(whole.probs, whole.tokens, strict=True):
        bounds.append(path * float(row.max()))
        path *= float(row[token])
    for length, bound in enumerate(bounds):
        for least, wanted in ((bound * 1.001, length), (bound * 0.999, length + 1)):
            if any(earlier < least for earlier in bounds[:length]):
                continue
            cut = drafter("draft_model", least, batch=1, sample=True)
            cut.begin([prompt])
            (short,) = cut.propose([Turn(prompt, K, torch.Generator().manual_seed(5))], sampling=params)
            assert short.tokens[:wanted] == whole.tokens[:wanted]
            if wanted == length:
                assert len(short.tokens) == wanted


@pytest.mark.parametrize("kind", KINDS)
def test_sampled_output_has_the_targets_distribution(kind: str) -> None:
    params, prompt = SamplingParams(1.0, top_k=4), [1, 2, 3, 1, 2]
    cache = TARGET.new_cache(capacity=CAPACITY)
    decoder = Decoder(TARGET, cache=cache, drafter=drafter(kind, 0.25, batch=1, sample=True), k=2)
    decoded = [decoder.decode(prompt, sampling=params, max_new_tokens=3, seed=seed) for seed in range(1500)]
    lengths = {length for one in decoded if one.steps is not None for length in one.steps.proposed}
    assert len(lengths) > 1
    exact = joint_distribution(TARGET, prompt, params, 3)
    outputs = [tuple(one.tokens) for one in decoded]
    assert chi_square_p(count_outcomes(outputs, exact.shape), exact) > 1e-3
