from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from harness.engine.sampling import SamplingParams
from harness.engine.tree import TreeProposal, ancestor_mask, check_parents, depths, path_to
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
from harness.engine.verify import Proposal

GREEDY = SamplingParams()
#      0
#    /   \
#   1     2
#  / \     \
# 3   4     5
#     |
#     6
PARENTS = [0, 0, 1, 1, 2, 4]


def test_depths_count_steps_from_the_root() -> None:
    assert depths(PARENTS) == [0, 1, 1, 2, 2, 2, 3]
    assert depths([]) == [0]


def test_a_path_runs_from_below_the_root_to_its_node() -> None:
    assert path_to(PARENTS, 6) == [1, 4, 6]
    assert path_to(PARENTS, 2) == [2]
    assert path_to(PARENTS, 0) == []


def test_each_node_sees_itself_its_ancestors_and_the_root_alone() -> None:
    mask = ancestor_mask(PARENTS)
    for node in range(7):
        seen = {0, *path_to(PARENTS, node)}
        assert {int(column) for column in mask[node].nonzero()} == seen


def test_a_chains_mask_is_causal() -> None:
    assert torch.equal(ancestor_mask(range(5)), torch.ones(6, 6).tril().bool())
    assert ancestor_mask([]).tolist() == [[True]]


@pytest.mark.parametrize(
    ("parents", "says"),
    [([1], "node 1 must follow a node from 0"), ([0, 3, 1], "node 2 must follow"), ([-1], "got -1")],
)
def test_a_node_before_its_parent_is_refused(parents: list[int], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        check_parents(parents)
    with pytest.raises(ValueError, match=says):
        StaticTree(parents)


def test_a_static_tree_must_be_breadth_first() -> None:
    with pytest.raises(ValueError, match="breadth-first"):
        StaticTree([0, 1, 0])


LOGITS = torch.tensor([0.0, 3.0, 1.0, 2.0, -1.0])


def expand_alike(trees: Sequence[GrowingTree], nodes: Sequence[Sequence[int]]) -> torch.Tensor:
    """After token t the likeliest are t + 1, t + 3, ...: LOGITS turned by t."""
    rows = [LOGITS.roll(tree.tokens[node]) for tree, own in zip(trees, nodes, strict=True) for node in own]
    return torch.stack(rows)


def grow(plan: TreePlan, chosen: ChildChoice, *, limit: int = 9) -> TreeProposal:
    (grown,) = grow_trees([Growth(plan, chosen, limit)], LOGITS[None], expand_alike)
    if isinstance(grown, TreeProposal):
        return grown
    return TreeProposal(grown.tokens, grown.probs, grown.vocab, parents=list(range(len(grown.tokens))))


def choice(*, sampled: bool = False, vocab: torch.Tensor | None = None) -> ChildChoice:
    sampling = SamplingParams(1.0) if sampled else GREEDY
    return ChildChoice(sampling, sampled, torch.Generator().manual_seed(0), vocab)


def test_a_static_tree_takes_the_likeliest_children() -> None:
    grown = grow(StaticTree(PARENTS), choice(), limit=9)
    assert grown.parents == PARENTS
    # the root's likeliest are 1 and 3; after 1 they're 2 and 4; after 3: 4; node 4 is token 4, after it: 0
    assert grown.tokens == [1, 3, 2, 4, 4, 0]
    assert grown.probs is None


@pytest.mark.parametrize(("limit", "nodes"), [(0, 0), (1, 2), (2, 5), (3, 6)])
def test_a_tree_ends_at_the_limit(limit: int, nodes: int) -> None:
    grown = grow(StaticTree(PARENTS), choice(), limit=limit)
    assert list(grown.parents) == PARENTS[:nodes]


def test_columns_of_a_reduced_vocabulary_become_ids() -> None:
    vocab = torch.tensor([40, 10, 20, 30, 0])
    grown = grow(StaticTree([0, 0]), choice(vocab=vocab), limit=1)
    assert grown.tokens == [10, 30]


def test_the_dynamic_tree_keeps_the_most_confident_nodes() -> None:
    """Against every path of the full tree, ranked by the product of its probabilities."""
    probs = LOGITS.softmax(-1)
    ranked = probs.topk(3).values.tolist()
    paths: list[tuple[float, int]] = []
    level = [1.0]
    for depth in (1, 2, 3):
        level = [confidence * p for confidence in level for p in ranked]
        paths += [(confidence, depth) for confidence in level]
    for num_nodes in (1, 4, 7):
        plan = DynamicTree(num_nodes, depth=3, breadth=3)
        grown = grow(plan, choice(), limit=9)
        check_parents(grown.parents)
        assert len(grown.tokens) == num_nodes
        expected = sorted(depth for _, depth in sorted(paths, reverse=True)[:num_nodes])
        assert sorted(depths(grown.parents)[1:]) == expected


def test_sampled_children_are_never_dropped() -> None:
    for seed in range(20):
        chosen = ChildChoice(SamplingParams(1.0), True, torch.Generator().manual_seed(seed))
        grown = grow(DynamicTree(7, depth=4, breadth=3), chosen, limit=9)
        assert len(grown.tokens) == 7
        # an even share of what is left for each level: 2 of 7, 2 of 5, 2 of 3, 1 of 1
        assert sorted(depths(grown.parents)[1:]) == [1, 1, 2, 2, 3, 3, 4]
        assert grown.probs is not None
        assert grown.rows is not None
        for parent, children in grown.children().items():
            tokens = [grown.tokens[child - 1] for child in children]
            assert len(set(tokens)) == len(tokens)
            expected = LOGITS.roll(grown.tokens[parent - 1] if parent else 0).softmax(-1)
            torch.testing.assert_close(grown.probs[grown.rows[parent]], expected)


def test_children_end_with_their_distributions_support() -> None:
    chosen = ChildChoice(SamplingParams(1.0, top_k=2), True, torch.Generator().manual_seed(0))
    grown = grow(StaticTree([0, 0, 0, 0]), chosen, limit=1)
    assert sorted(grown.tokens) == [1, 3]


def test_a_tree_without_branches_is_a_plain_proposal() -> None:
    (grown,) = grow_trees([Growth(chain(4), choice(sampled=True), 3)], LOGITS[None], expand_alike)
    assert type(grown) is Proposal
    assert len(grown.tokens) == 3
    assert grown.probs is not None
    expected = [LOGITS.roll(token).softmax(-1) for token in (0, *grown.tokens[:2])]
    torch.testing.assert_close(grown.probs, torch.stack(expected))


def test_the_length_of_a_tree_is_that_of_its_longest_path() -> None:
    assert TreeProposal([9] * 6, parents=PARENTS).length == 3
    assert TreeProposal().length == 0


def test_sequences_of_a_batch_grow_side_by_side() -> None:
    plans = [StaticTree(PARENTS), chain(2), DynamicTree(5, depth=3, breadth=2), chain(1)]
    limits = [9, 0, 9, 2]
    growing = [Growth(plan, choice(), limit) for plan, limit in zip(plans, limits, strict=True)]
    together = grow_trees(growing, LOGITS.expand(4, -1), expand_alike)
    for proposal, plan, limit in zip(together, plans, limits, strict=True):
        assert proposal.tokens == grow(plan, choice(), limit=limit).tokens
