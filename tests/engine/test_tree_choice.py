from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from engine.random_models import random_transformer

from harness.engine.drafters.base import Turn
from harness.engine.drafters.tree_model import TreeDraftModel
from harness.engine.loop import Decoder
from harness.engine.sampling import SamplingParams
from harness.engine.tree_choice import RankCounter, choose_tree, full_tree
from harness.engine.tree_growth import StaticTree


def subtrees(paths: list[tuple[int, ...]], most: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Every tree of at most so many nodes: each with its parent and its elder siblings."""
    for size in range(1, most + 1):
        for chosen in itertools.combinations(paths, size):
            kept = set(chosen)
            if all(
                (len(p) == 1 or p[:-1] in kept) and (p[-1] == 0 or (*p[:-1], p[-1] - 1) in kept) for p in kept
            ):
                yield chosen


@pytest.mark.parametrize("seed", range(6))
def test_no_other_tree_is_faster(seed: int) -> None:
    generator = np.random.default_rng(seed)
    accuracies = [
        sorted(generator.dirichlet(np.ones(4))[:3] * generator.uniform(0.5, 1), reverse=True)
        for _ in range(3)
    ]
    verify = [1.0, *np.cumsum(generator.uniform(0.01, 0.12, 6)) + 1.0]
    draft = [0.05, 0.1, 0.2]
    paths = [path for depth in (1, 2, 3) for path in itertools.product(range(3), repeat=depth)]

    def speedup(tree: tuple[tuple[int, ...], ...]) -> float:
        accepted = sum(np.prod([accuracies[d][r] for d, r in enumerate(path)]) for path in tree)
        return float((1 + accepted) / (draft[max(map(len, tree)) - 1] + verify[len(tree)]))

    best = max((speedup(tree) for tree in subtrees(paths, len(verify) - 1)), default=0.0)
    found = choose_tree(accuracies, verify=verify, draft=draft)
    if best <= 1:
        assert found is None
    else:
        assert found is not None
        assert found.speedup == pytest.approx(best)
        assert found.speedup == pytest.approx(speedup(found.paths))


def test_a_deeper_tree_must_earn_what_another_pass_costs() -> None:
    accuracies = [[0.6, 0.2], [0.6, 0.2]]
    verify = [1.0, 1.01, 1.02, 1.03, 1.04]
    cheap = choose_tree(accuracies, verify=verify, draft=[0.05, 0.1])
    dear = choose_tree(accuracies, verify=verify, draft=[0.05, 1.0])
    assert cheap is not None
    assert dear is not None
    assert max(map(len, cheap.paths)) == 2
    assert dear.paths == ((0,), (1,))


def test_useless_guesses_give_no_tree() -> None:
    assert choose_tree([[0.0]], verify=[1.0, 1.1], draft=[0.1]) is None
    assert choose_tree([[0.05]], verify=[1.0, 1.1], draft=[0.1]) is None


def test_a_full_tree_lists_parents_breadth_first() -> None:
    assert full_tree(depth=2, breadth=2) == [0, 0, 1, 1, 2, 2]
    assert len(full_tree(depth=3, breadth=3)) == 3 + 9 + 27


def test_ranks_are_counted_where_the_target_went() -> None:
    """Against the drafter's own ranking, worked out anew at each step of the target's text."""
    target, rough = random_transformer(0, vocab_size=12), random_transformer(0, vocab_size=12, noise=0.6)
    tree = StaticTree(full_tree(depth=2, breadth=2))
    drafter = TreeDraftModel(rough, cache=rough.new_cache(capacity=80), plan=tree)
    counter = RankCounter(drafter, depth=2, breadth=2)
    decoder = Decoder(target, cache=target.new_cache(capacity=80), drafter=counter, k=2)
    decoded = decoder.decode([1, 2, 3], sampling=SamplingParams(), max_new_tokens=60)
    steps = decoded.steps
    assert steps is not None
    # depth 1 was right wherever a token was accepted, depth 2 wherever both were; the last step isn't seen
    full = [
        accepted for proposed, accepted in zip(steps.proposed, steps.accepted, strict=True) if proposed == 2
    ]
    assert sum(counter.right[0]) in (sum(a >= 1 for a in full), sum(a >= 1 for a in full[:-1]))
    assert counter.reached[0] >= len(full) - 1
    assert counter.reached[1] >= sum(counter.right[1])
    assert 0 < sum(counter.accuracies[0]) <= 1


def test_the_likeliest_guess_counts_as_rank_zero() -> None:
    class Fixed:
        """Proposes 7 and 8 after the root, 9 after 7."""

        def begin(self, prompts: object) -> None:
            pass

        settle = keep = begin

        def propose(self, turns: list[Turn], *, sampling: SamplingParams) -> list[object]:
            from harness.engine.tree import TreeProposal

            return [TreeProposal([7, 8, 9], None, None, parents=[0, 0, 1], rows={0: 0, 1: 1})]

    counter = RankCounter(Fixed(), depth=2, breadth=2)  # type: ignore[arg-type]
    tokens = [1]
    for following in ([7, 9, 4], [8, 3], [7, 5], [2]):
        counter.propose([Turn(list(tokens), 2, torch.Generator())], sampling=SamplingParams())
        tokens += following
    counter.propose([Turn(list(tokens), 2, torch.Generator())], sampling=SamplingParams())
    assert counter.reached == [4, 2]
    assert counter.right == [[2, 1], [1, 0]]
