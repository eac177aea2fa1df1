"""Typical acceptance against its definition, path by path, and in the decode loop."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from engine.random_heads import random_medusa
from engine.random_models import all_logits, greedy_continuation, random_transformer
from hypothesis import given
from hypothesis import strategies as st

from harness.engine.drafters.base import Drafter
from harness.engine.drafters.independent import IndependentDrafter
from harness.engine.drafters.medusa import MedusaDrafter
from harness.engine.drafters.ngram import NgramDrafter
from harness.engine.drafters.tree_model import TreeDraftModel
from harness.engine.loop import Decoder
from harness.engine.sampling import SamplingParams
from harness.engine.sequence import Request
from harness.engine.tree import TreeProposal, parents_of, path_to
from harness.engine.tree_growth import DynamicTree, StaticTree
from harness.engine.typical import TypicalAcceptance, judge_typical
from harness.engine.verify import Proposal
from harness.records import Decoded

RULE = TypicalAcceptance(0.09, 0.3)
WARM = SamplingParams(0.8)
VOCAB_SIZE, CAPACITY, BATCH = 12, 80, 4
TARGET = random_transformer(20, vocab_size=VOCAB_SIZE, num_layers=2)
CLOSE = random_transformer(20, vocab_size=VOCAB_SIZE, num_layers=2, noise=0.4)
PROMPTS = [[5], [3, 3], [1, 2, 3, 4, 5, 6, 7], [0, 9, 0, 9, 11, 0, 9] * 4]
LIMITS = [30, 11, 25, 40]


def bar(probs: np.ndarray, rule: TypicalAcceptance) -> float:
    """The definition, in double precision."""
    entropy = -sum(p * math.log(p) for p in probs if p > 0)
    return min(rule.epsilon, rule.delta * math.exp(-entropy))


def test_the_bar_is_that_of_the_paper() -> None:
    rows = torch.tensor(
        [[1.0, 0, 0, 0], [0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0, 0], [0.97, 0.01, 0.01, 0.01]]
    )
    # one-hot: delta above epsilon; uniform over n: delta / n
    expected = [0.09, 0.3 / 4, min(0.09, 0.3 / 2), min(0.09, bar(rows[3].double().numpy(), RULE))]
    assert RULE.bars(rows).tolist() == pytest.approx(expected)


@given(st.integers(0, 10_000), st.floats(0.05, 6.0), st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_the_likeliest_token_always_clears_the_bar(
    seed: int, spread: float, epsilon: float, delta: float
) -> None:
    logits = spread * torch.randn(3, 50, generator=torch.Generator().manual_seed(seed))
    probs = logits.softmax(-1)
    assert bool((probs.max(-1).values > TypicalAcceptance(epsilon, delta).bars(probs)).all())


def longest_plausible(logits: torch.Tensor, proposal: Proposal) -> tuple[list[int], int]:
    """Every path from the root tried, the longest plausible kept, the likeliest among equals."""
    probs = (logits.double() / WARM.temperature).softmax(-1).numpy()
    parents = list(parents_of(proposal))
    found: list[tuple[int, float, list[int]]] = [(0, 0.0, [])]
    for end in range(1, len(parents) + 1):
        path = path_to(parents, end)
        befores = [0, *path[:-1]]
        mass = [probs[before][proposal.tokens[node - 1]] for before, node in zip(befores, path, strict=True)]
        if all(p > bar(probs[before], RULE) for p, before in zip(mass, befores, strict=True)):
            found.append((len(path), float(np.log(mass).sum()), path))
    _, _, path = max(found, key=lambda one: one[:2])
    return path, int(probs[path[-1] if path else 0].argmax())


def random_tree(generator: np.random.Generator) -> TreeProposal:
    parents = sorted(int(generator.integers(0, node)) for node in range(1, 8))
    tokens: list[int] = []
    for node, parent in enumerate(parents, start=1):
        taken = {tokens[n - 1] for n in range(1, node) if parents[n - 1] == parent}
        tokens.append(int(generator.choice([t for t in range(9) if t not in taken])))
    return TreeProposal(tokens, parents=parents)


@pytest.mark.parametrize("shape", ["chain", "tree"])
def test_the_longest_plausible_path_stands(shape: str) -> None:
    generator, lengths = np.random.default_rng(3), set()
    for seed in range(300):
        tree = random_tree(generator)
        proposal = tree if shape == "tree" else Proposal(tree.tokens[:4])
        logits = 1.5 * torch.randn(len(proposal.tokens) + 1, 9, generator=torch.Generator().manual_seed(seed))
        verdict = judge_typical(logits, proposal, WARM, RULE)
        path, next_token = longest_plausible(logits, proposal)
        assert (list(verdict.nodes), verdict.next_token) == (path, next_token)
        lengths.add(verdict.num_accepted)
    assert lengths >= {0, 1, 2, 3}


def test_nothing_drafted_gives_the_likeliest_token() -> None:
    verdict = judge_typical(torch.tensor([[0.1, 2.0, 0.3]]), Proposal(), WARM, RULE)
    assert (verdict.num_accepted, verdict.next_token) == (0, 1)


def chain_model() -> Drafter:
    return IndependentDrafter(CLOSE, cache=CLOSE.new_cache(capacity=CAPACITY, batch=BATCH))


def tree_model() -> Drafter:
    cache = CLOSE.new_cache(capacity=CAPACITY, batch=BATCH)
    return TreeDraftModel(CLOSE, cache=cache, plan=DynamicTree(7, depth=3, breadth=3), sample=True)


def medusa() -> Drafter:
    return MedusaDrafter(random_medusa(TARGET, num_heads=4), StaticTree([0, 0, 0, 1, 1, 2]), sample=False)


MAKERS = [chain_model, tree_model, medusa, NgramDrafter]


def decode(
    make: Callable[[], Drafter], sampling: SamplingParams, *, rule: TypicalAcceptance | None = RULE
) -> list[Decoded]:
    cache = TARGET.new_cache(capacity=CAPACITY, batch=BATCH)
    decoder = Decoder(TARGET, cache=cache, drafter=make(), k=3, typical=rule)
    requests = [Request(prompt, limit, 7) for prompt, limit in zip(PROMPTS, LIMITS, strict=True)]
    return decoder.decode_batch(requests, sampling=sampling)


def implausible(found: list[Decoded]) -> int:
    """Output tokens that don't clear their bar, by one forward over each finished text."""
    count = 0
    for prompt, one in zip(PROMPTS, found, strict=True):
        logits = all_logits(TARGET, torch.tensor([prompt + one.tokens[:-1]]))[0, len(prompt) - 1 :]
        probs = (logits.double() / WARM.temperature).softmax(-1).numpy()
        rows = zip(probs, one.tokens, strict=True)
        # as far below as rounding may push it
        count += sum(row[token] < bar(row, RULE) - 1e-4 for row, token in rows)
    return count


@pytest.mark.parametrize("make", MAKERS)
def test_every_token_written_is_plausible(make: Callable[[], Drafter]) -> None:
    found = decode(make, WARM)
    assert [len(one.tokens) for one in found] == LIMITS
    assert implausible(found) == 0
    # the test sees the difference: exact verification writes rare tokens too
    assert implausible(decode(make, WARM, rule=None)) > 0


@pytest.mark.parametrize("make", MAKERS)
def test_at_temperature_0_it_is_greedy_verification(make: Callable[[], Drafter]) -> None:
    found = decode(make, SamplingParams())
    assert [one.tokens for one in found] == [
        greedy_continuation(TARGET, prompt, limit) for prompt, limit in zip(PROMPTS, LIMITS, strict=True)
    ]


@pytest.mark.parametrize("make", MAKERS)
def test_a_batch_writes_what_its_sequences_write_alone(make: Callable[[], Drafter]) -> None:
    together = decode(make, WARM)
    for prompt, limit, one in zip(PROMPTS, LIMITS, together, strict=True):
        decoder = Decoder(
            TARGET, cache=TARGET.new_cache(capacity=CAPACITY), drafter=make(), k=3, typical=RULE
        )
        alone = decoder.decode_batch([Request(prompt, limit, 7)], sampling=WARM)[0]
        assert alone.tokens == one.tokens


def test_more_is_accepted_than_by_exact_verification_and_nothing_is_random_without_drafts() -> None:
    typical, exact = decode(chain_model, WARM), decode(chain_model, WARM, rule=None)
    accepted = [sum(sum(one.steps.accepted) for one in found if one.steps) for found in (typical, exact)]
    assert accepted[0] > accepted[1] > 0
    cache = TARGET.new_cache(capacity=CAPACITY)
    alone = Decoder(TARGET, cache=cache, typical=RULE).decode([5], sampling=WARM, max_new_tokens=20)
    assert alone.tokens == greedy_continuation(TARGET, [5], 20)
