"""Sampled speculative output has the target's distribution, and the same test sees when it hasn't."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
import torch
from engine.exact_distribution import chi_square_p, count_outcomes, joint_distribution
from engine.random_models import head_over, random_transformer
from torch import Tensor

from harness.engine import sampling, tree_verify, verify
from harness.engine.drafters import independent
from harness.engine.drafters.base import Drafter
from harness.engine.drafters.independent import IndependentDrafter
from harness.engine.drafters.ngram import NgramDrafter
from harness.engine.loop import Decoder
from harness.engine.sampling import SamplingParams
from harness.engine.verify import Proposal

NUM_SEEDS = 1000
CAPACITY = 16
PROMPT = [1, 2, 0, 1, 2]
TARGET, DRAFT_MODEL = random_transformer(0), random_transformer(1)


def sampled_drafts() -> Drafter:
    return IndependentDrafter(DRAFT_MODEL, cache=DRAFT_MODEL.new_cache(capacity=CAPACITY))


def greedy_drafts() -> Drafter:
    return IndependentDrafter(DRAFT_MODEL, cache=DRAFT_MODEL.new_cache(capacity=CAPACITY), sample=False)


def reduced_vocabulary() -> Drafter:
    vocab = torch.tensor([3, 0, 4])
    return IndependentDrafter(
        DRAFT_MODEL,
        cache=DRAFT_MODEL.new_cache(capacity=CAPACITY),
        head=head_over(DRAFT_MODEL, vocab),
        vocab=vocab,
    )


def reduced_vocabulary_greedy() -> Drafter:
    vocab = torch.tensor([4, 1])
    head = head_over(DRAFT_MODEL, vocab)
    return IndependentDrafter(
        DRAFT_MODEL, cache=DRAFT_MODEL.new_cache(capacity=CAPACITY), head=head, vocab=vocab, sample=False
    )


@cache
def exact(params: SamplingParams, num_tokens: int) -> Tensor:
    return torch.from_numpy(joint_distribution(TARGET, PROMPT, params, num_tokens))


def agreement(drafter: Drafter | None, k: int, params: SamplingParams, num_seeds: int = NUM_SEEDS) -> float:
    """The smaller p-value of two tests: of the first three tokens together, and of the last two.

    Of k + 2 tokens the prefill gives the first, so that a whole proposal and its bonus token fit in.
    """
    num_tokens = max(3, k + 2)
    decoder = Decoder(TARGET, cache=TARGET.new_cache(capacity=CAPACITY), drafter=drafter, k=k)
    outputs = [
        tuple(decoder.decode(PROMPT, sampling=params, max_new_tokens=num_tokens, seed=seed).tokens)
        for seed in range(num_seeds)
    ]
    joint = exact(params, num_tokens)
    p_values = []
    for kept in (slice(0, 3), slice(num_tokens - 2, num_tokens)):
        others = [axis for axis in range(num_tokens) if axis not in range(num_tokens)[kept]]
        marginal = (joint.sum(others) if others else joint).numpy()
        counts = count_outcomes((output[kept] for output in outputs), marginal.shape)
        p_values.append(chi_square_p(counts, marginal))
    return min(p_values)


@pytest.mark.parametrize(
    ("make_drafter", "k", "params"),
    [
        (None, 0, SamplingParams(1.0)),
        (None, 0, SamplingParams(0.5, top_k=4, top_p=0.9)),
        (sampled_drafts, 1, SamplingParams(0.5)),
        (sampled_drafts, 3, SamplingParams(1.0)),
        (sampled_drafts, 4, SamplingParams(1.5)),
        (sampled_drafts, 3, SamplingParams(1.0, top_k=3)),
        (sampled_drafts, 1, SamplingParams(1.5, top_k=4, top_p=0.8)),
        (greedy_drafts, 1, SamplingParams(1.5)),
        (greedy_drafts, 3, SamplingParams(1.0, top_p=0.7)),
        (greedy_drafts, 4, SamplingParams(0.5)),
        (reduced_vocabulary, 1, SamplingParams(1.0)),
        (reduced_vocabulary, 3, SamplingParams(1.5, top_k=3)),
        (reduced_vocabulary_greedy, 3, SamplingParams(1.0)),
        (NgramDrafter, 1, SamplingParams(0.5)),
        (NgramDrafter, 3, SamplingParams(1.0)),
        (NgramDrafter, 4, SamplingParams(1.5, top_k=4, top_p=0.9)),
    ],
)
def test_output_has_the_targets_distribution(
    make_drafter: Callable[[], Drafter] | None, k: int, params: SamplingParams
) -> None:
    assert agreement(make_drafter() if make_drafter else None, k, params) > 1e-3


def scalar_residual(target: Tensor, proposal: Proposal, row: int) -> Tensor:
    """Takes the drafted token's own q off every entry."""
    assert proposal.probs is not None
    residual = (target - proposal.probs[row, proposal.tokens[row]]).clamp(min=0.0)
    return residual if bool(residual.any()) else target


def plain_redraw(target: Tensor, proposal: Proposal, row: int) -> Tensor:
    """Redraws a rejected position from p as if nothing had been drafted."""
    return target


def previous_row(logits: Tensor, *args: object) -> verify.Verdict:
    """Judges each drafted token by the target's view one token earlier."""
    return verify.verify_sampled(torch.cat((logits[:1], logits[:-1])), *args)  # type: ignore[arg-type]


def hotter_draw(weights: Tensor, generator: torch.Generator) -> Tensor:
    """Draws drafts at three times the temperature of the distribution reported for them."""
    return sampling.draw(weights.pow(1 / 3), generator)


def likeliest_draw(weights: Tensor, generator: torch.Generator) -> Tensor:
    """Drafts the likeliest token, yet reports it as drawn from the whole distribution."""
    return weights.argmax(-1)


@pytest.mark.parametrize(
    ("module", "name", "wrong"),
    [
        (verify, "_residual", scalar_residual),
        (verify, "_residual", plain_redraw),
        (tree_verify, "verify_sampled", previous_row),
        (independent, "draw", hotter_draw),
        (independent, "draw", likeliest_draw),
    ],
)
def test_a_wrong_implementation_is_seen(
    monkeypatch: pytest.MonkeyPatch, module: object, name: str, wrong: Callable[..., object]
) -> None:
    monkeypatch.setattr(module, name, wrong)
    assert agreement(sampled_drafts(), 2, SamplingParams(1.0)) < 1e-6


def test_the_right_implementation_passes_where_the_wrong_ones_are_seen() -> None:
    assert agreement(sampled_drafts(), 2, SamplingParams(1.0)) > 1e-3
