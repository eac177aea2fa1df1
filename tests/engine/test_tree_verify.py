"""A verified tree leaves tokens with the target's distribution, and the same test sees when it doesn't."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from engine.exact_distribution import chi_square_p, count_outcomes
from torch import Tensor

from harness.engine import tree_verify
from harness.engine.sampling import SamplingParams, draw, probabilities
from harness.engine.tree import TreeProposal, path_to
from harness.engine.tree_growth import (
    ChildChoice,
    DynamicTree,
    GrowingTree,
    Growth,
    StaticTree,
    TreePlan,
    chain,
    grow_trees,
)
from harness.engine.tree_verify import TreeVerdict, judge_choices, judge_sampled
from harness.engine.verify import Proposal, Verdict

VOCAB_SIZE = 4
NUM_TOKENS = 3
NUM_SEEDS = 2500
STATIC = StaticTree([0, 0, 0, 1, 1, 2, 4])
DYNAMIC = DynamicTree(6, depth=3, breadth=2)


class Table:
    """A made-up model: independent random logits after each path of tokens, but for the first token's."""

    def __init__(self, seed: int, first: list[float]) -> None:
        generator = torch.Generator().manual_seed(seed)
        self._logits = {
            path: 1.5 * torch.randn(VOCAB_SIZE, generator=generator)
            for length in range(NUM_TOKENS + 2)
            for path in itertools.product(range(VOCAB_SIZE), repeat=length)
        }
        self._logits[()] = torch.tensor(first).log()

    def logits(self, paths: Sequence[tuple[int, ...]]) -> Tensor:
        return torch.stack([self._logits[path] for path in paths])


# the likeliest draft is mostly rejected, and what it leaves is spread over all other tokens
TARGET, DRAFTER = Table(1, [0.1, 0.35, 0.35, 0.2]), Table(2, [0.7, 0.1, 0.15, 0.05])


def tokens_to(parents: Sequence[int], tokens: Sequence[int], node: int) -> tuple[int, ...]:
    return tuple(tokens[n - 1] for n in path_to(parents, node))


def parents_of(proposal: Proposal) -> Sequence[int]:
    return proposal.parents if isinstance(proposal, TreeProposal) else range(len(proposal.tokens))


def one_step(
    plan: TreePlan, params: SamplingParams, *, sampled: bool, seed: int, vocab: Tensor | None
) -> tuple[Proposal, Verdict, torch.Generator]:
    generator = torch.Generator().manual_seed(seed)

    def draft(paths: Sequence[tuple[int, ...]]) -> Tensor:
        logits = DRAFTER.logits(paths)
        return logits if vocab is None else logits[:, vocab]

    def expand(trees: Sequence[GrowingTree], nodes: Sequence[Sequence[int]]) -> Tensor:
        (tree,), (own,) = trees, nodes
        return draft([tokens_to(tree.parents[1:], tree.tokens[1:], node) for node in own])

    choice = ChildChoice(params, sampled and not params.is_greedy, generator, vocab)
    (proposal,) = grow_trees([Growth(plan, choice, NUM_TOKENS)], draft([()]), expand)
    paths = [
        tokens_to(parents_of(proposal), proposal.tokens, node) for node in range(len(proposal.tokens) + 1)
    ]
    logits = TARGET.logits(paths)
    if params.is_greedy:
        return proposal, judge_choices(logits.argmax(-1).tolist(), proposal), generator
    return proposal, judge_sampled(logits, proposal, params, generator), generator


def output(
    plan: TreePlan, params: SamplingParams, *, sampled: bool, seed: int, vocab: Tensor | None
) -> tuple[int, ...]:
    """What one step emits, completed by the target itself."""
    proposal, verdict, generator = one_step(plan, params, sampled=sampled, seed=seed, vocab=vocab)
    emitted = [*(proposal.tokens[node - 1] for node in verdict.nodes), verdict.next_token]
    while len(emitted) < NUM_TOKENS:
        probs = probabilities(TARGET.logits([tuple(emitted)]), params)
        emitted.append(int(draw(probs, generator)))
    return tuple(emitted[:NUM_TOKENS])


def exact(params: SamplingParams) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    joint = np.ones((VOCAB_SIZE,) * NUM_TOKENS)
    for path in itertools.product(range(VOCAB_SIZE), repeat=NUM_TOKENS):
        for length in range(NUM_TOKENS):
            probs = probabilities(TARGET.logits([path[:length]]), params)
            joint[path] *= float(probs[0, path[length]])
    return joint


def agreement(
    plan: TreePlan,
    params: SamplingParams,
    *,
    sampled: bool,
    vocab: Tensor | None = None,
    num_tokens: int = NUM_TOKENS,
) -> float:
    """p-value of the first tokens' joint distribution."""
    outputs = [output(plan, params, sampled=sampled, seed=seed, vocab=vocab) for seed in range(NUM_SEEDS)]
    joint = exact(params).sum(tuple(range(num_tokens, NUM_TOKENS)))
    return chi_square_p(count_outcomes((o[:num_tokens] for o in outputs), joint.shape), joint)


@pytest.mark.parametrize(
    ("plan", "sampled", "params"),
    [
        (chain(3), True, SamplingParams(1.0)),
        (chain(2), False, SamplingParams(0.7)),
        (STATIC, True, SamplingParams(0.6)),
        (STATIC, True, SamplingParams(1.0, top_k=3)),
        (STATIC, True, SamplingParams(1.5)),
        (STATIC, False, SamplingParams(1.0)),
        (STATIC, False, SamplingParams(1.5, top_p=0.8)),
        (DYNAMIC, False, SamplingParams(0.6)),
        (DYNAMIC, False, SamplingParams(1.2)),
        (DYNAMIC, True, SamplingParams(0.6)),
        (DYNAMIC, True, SamplingParams(1.2)),
    ],
)
def test_output_has_the_targets_distribution(plan: TreePlan, sampled: bool, params: SamplingParams) -> None:
    assert agreement(plan, params, sampled=sampled) > 1e-3


@pytest.mark.parametrize("sampled", [False, True])
def test_a_reduced_vocabulary_is_lossless_too(sampled: bool) -> None:
    vocab = torch.tensor([3, 0, 1])
    assert agreement(STATIC, SamplingParams(1.0), sampled=sampled, vocab=vocab) > 1e-3


@pytest.mark.parametrize("plan", [chain(3), STATIC, DYNAMIC])
def test_greedy_output_is_the_targets_likeliest(plan: TreePlan) -> None:
    proposal, verdict, _ = one_step(plan, SamplingParams(), sampled=False, seed=0, vocab=None)
    emitted = [*(proposal.tokens[node - 1] for node in verdict.nodes), verdict.next_token]
    for length, token in enumerate(emitted):
        assert token == int(TARGET.logits([tuple(emitted[:length])])[0].argmax())
    for parent, node in itertools.pairwise([0, *verdict.nodes]):
        assert parents_of(proposal)[node - 1] == parent


def test_greedy_verification_goes_as_deep_as_the_target_agrees() -> None:
    choices = [7, 5, 2, 8, 3, 1]
    #                            1  2  3  4  5
    proposal = TreeProposal([4, 7, 5, 2, 8], parents=[0, 0, 1, 2, 4])
    # after the root 7: node 2; after node 2 comes 2: node 4; after node 4 comes 3: no child says so
    assert judge_choices(choices, proposal) == TreeVerdict(2, 3, (2, 4))
    assert judge_choices(choices[:1], TreeProposal()) == TreeVerdict(0, 7)


def raw_residual(target: Tensor, draft: Tensor, vocab: Tensor | None) -> Tensor:
    """Leaves max(p - q, 0) as it is: the next child is judged against too small a p."""
    return (target - draft).clamp(min=0.0)


def same_target(target: Tensor, draft: Tensor, vocab: Tensor | None) -> Tensor:
    """Goes on with p as if no child had been rejected."""
    return target


def same_draft(draft: Tensor, column: int) -> Tensor:
    """Judges later children by the distribution of the first."""
    return draft


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("_residual", raw_residual),
        ("_residual", same_target),
        ("_without", same_draft),
    ],
)
def test_a_wrong_residual_is_seen(
    monkeypatch: pytest.MonkeyPatch, name: str, wrong: Callable[..., Tensor]
) -> None:
    monkeypatch.setattr(tree_verify, name, wrong)
    assert agreement(StaticTree([0, 0]), SamplingParams(1.0), sampled=True, num_tokens=1) < 1e-4


def test_the_right_residual_passes_where_wrong_ones_are_seen() -> None:
    assert agreement(StaticTree([0, 0]), SamplingParams(1.0), sampled=True, num_tokens=1) > 1e-3


def test_dropping_sampled_children_by_their_value_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = DynamicTree(2, depth=1, breadth=2)
    assert agreement(plan, SamplingParams(1.0), sampled=True, num_tokens=1) > 1e-3
    monkeypatch.setattr(DynamicTree, "kept", lambda self, *, sampled: 1)
    assert agreement(plan, SamplingParams(1.0), sampled=True, num_tokens=1) < 1e-4
