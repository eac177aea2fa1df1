"""Grow draft trees level by level: of a given shape, or where the drafter is most confident."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Protocol

import torch
from torch import Tensor

from harness.engine.drafters.base import Turn
from harness.engine.sampling import SamplingParams, distribution
from harness.engine.tree import ROOT, TreeProposal, check_parents, depths
from harness.engine.verify import Proposal

Expand = Callable[[Sequence["GrowingTree"], Sequence[Sequence[int]]], Tensor]
"""Feeds nodes of each sequence's tree to the drafter; gives its logits after each of them,
[nodes of all sequences, draft_vocab]."""


@dataclass(slots=True)
class GrowingTree:
    """A tree while it grows; entry 0 of each list is the root.

    Attributes:
        tokens: drafted ids.
        parents: node that each follows.
        depths: steps from the root.
        confidences: probability the drafter gives to the path that ends there.
    """

    tokens: list[int] = field(default_factory=lambda: [-1])
    parents: list[int] = field(default_factory=lambda: [-1])
    depths: list[int] = field(default_factory=lambda: [0])
    confidences: list[float] = field(default_factory=lambda: [1.0])

    def add(self, parent: int, token: int, confidence: float) -> None:
        """Append a child of `parent`."""
        self.tokens.append(token)
        self.parents.append(parent)
        self.depths.append(self.depths[parent] + 1)
        self.confidences.append(self.confidences[parent] * confidence)

    def best(self, nodes: Sequence[int], count: int) -> list[int]:
        """The `count` most confident of `nodes`, in the order of their numbers."""
        return sorted(sorted(nodes, key=lambda node: -self.confidences[node])[:count])


class TreePlan(Protocol):
    """Decides how many children each node gets."""

    @property
    def depth(self) -> int:
        """Deepest level it plans."""

    @property
    def is_chain(self) -> bool:
        """Whether no node ever gets a second child."""

    @property
    def min_confidence(self) -> float:
        """A chain ends where the likeliest next token would bring its path's probability below."""

    def widths(self, tree: GrowingTree, level: Sequence[int], *, sampled: bool) -> dict[int, int]:
        """How many children each node of the newest level gets; nodes without any are left out.

        It may look at the tokens of `level`, but not at those of the children it plans: sampled
        children would no longer have the distribution they were drawn from.
        """

    def kept(self, *, sampled: bool) -> int | None:
        """Keep so many of the most confident nodes in the end; None keeps all."""


class StaticTree:
    """The same shape at every step.

    Args:
        parents: [nodes] parent of node 1, 2, ... in breadth-first order.
        min_confidence: see `TreePlan`; for chains alone.

    Raises:
        ValueError: not a tree, or not in breadth-first order.
    """

    def __init__(self, parents: Sequence[int], min_confidence: float = 0.0) -> None:
        """See the class."""
        self.min_confidence = min_confidence
        check_parents(parents)
        if list(parents) != sorted(parents):
            raise ValueError(f"tree nodes must come in breadth-first order, got the parents {list(parents)}")
        self.parents = tuple(parents)
        self.depth = max(depths(parents))
        self._counts = {parent: list(parents).count(parent) for parent in parents}
        self.is_chain = max(self._counts.values()) == 1

    def widths(self, tree: GrowingTree, level: Sequence[int], *, sampled: bool) -> dict[int, int]:
        """As the shape says."""
        return {node: self._counts[node] for node in level if node in self._counts}

    def kept(self, *, sampled: bool) -> int | None:
        """All."""
        return None


def chain(length: int, min_confidence: float = 0.0) -> StaticTree:
    """A tree without branches."""
    return StaticTree(range(length), min_confidence)


@dataclass(frozen=True, slots=True)
class DynamicTree:
    """Branches where the drafter is confident, and keeps the most confident nodes.

    At each level the `breadth` most confident nodes get `breadth` children each. In the end the
    `num_nodes` most confident nodes are kept: a node is never more confident than its parent, so
    what is kept is a tree. Sampled children can't be dropped for their value without changing the
    output's distribution: then each level gets an even share of the nodes that are left, the most
    confident nodes first, and all of them are kept.

    Attributes:
        num_nodes: drafted tokens.
        depth: deepest level.
        breadth: nodes expanded at a level, and children each of them gets.

    Source: Li et al. 2024, "EAGLE-2", section 4.
    """

    num_nodes: int
    depth: int
    breadth: int

    @property
    def is_chain(self) -> bool:
        """Never: even a breadth of 1 leaves out nodes it isn't sure of."""
        return False

    @property
    def min_confidence(self) -> float:
        """None: the most confident nodes are kept, however confident they are."""
        return 0.0

    def widths(self, tree: GrowingTree, level: Sequence[int], *, sampled: bool) -> dict[int, int]:
        """`breadth` children for each of the `breadth` most confident nodes."""
        chosen = tree.best(level, self.breadth)
        if not sampled:
            return dict.fromkeys(chosen, self.breadth)
        levels = self.depth - tree.depths[level[0]]
        share = ceil((self.num_nodes - (len(tree.tokens) - 1)) / levels)
        widths: dict[int, int] = {}
        for node in sorted(chosen, key=lambda node: -tree.confidences[node]):
            if share > 0:
                widths[node] = min(self.breadth, share)
                share -= widths[node]
        return dict(sorted(widths.items()))

    def kept(self, *, sampled: bool) -> int | None:
        """`num_nodes` where nodes may be dropped."""
        return None if sampled else self.num_nodes


@dataclass(frozen=True, slots=True)
class ChildChoice:
    """How children are chosen from the drafter's distribution.

    Attributes:
        sampling: of the target; the drafter's logits go through the same transform.
        sampled: draw children without replacement; otherwise the likeliest are taken, with certainty.
        generator: of the draws.
        vocab: [draft_vocab] int64 target ids of the logits' columns; None where they're the same.
    """

    sampling: SamplingParams
    sampled: bool
    generator: torch.Generator
    vocab: Tensor | None = None

    def columns(self, probs: Tensor, count: int) -> Tensor:
        """Choose `count` different columns a row, [rows, count], the first chosen first."""
        keys = probs
        if self.sampled:
            # the largest of q / Exp(1) is a draw from q, the next ones draws without replacement
            keys = probs / torch.empty_like(probs).exponential_(generator=self.generator)
        return keys.topk(min(count, probs.shape[-1]), -1).indices


@dataclass(frozen=True, slots=True)
class Growth:
    """One sequence's tree in the making.

    Attributes:
        plan: how many children each node gets.
        choice: how children are chosen.
        limit: no deeper than this.
        tree: what has grown so far.
    """

    plan: TreePlan
    choice: ChildChoice
    limit: int
    tree: GrowingTree = field(default_factory=GrowingTree)
    _probs: list[Tensor] = field(default_factory=list, init=False)
    _rows: dict[int, int] = field(default_factory=dict, init=False)

    def start(self) -> dict[int, int]:
        """How many children the root gets; empty where nothing is to be drafted."""
        return self._next([ROOT])

    def add_level(self, widths: dict[int, int], logits: Tensor) -> dict[int, int]:
        """Give nodes their children.

        Args:
            widths: node to its number of children, from the call before.
            logits: [nodes, draft_vocab] the drafter's view after each of them.

        Returns:
            How many children each of the new nodes gets; empty where the tree is complete.
        """
        probs = distribution(logits, self.choice.sampling)
        if self._is_unsure(widths, probs):
            return {}
        self._rows.update({node: len(self._probs) + row for row, node in enumerate(widths)})
        self._probs.extend(probs)
        first = len(self.tree.tokens)
        _add_children(self.tree, widths, probs, self.choice)
        return self._next(range(first, len(self.tree.tokens)))

    def proposal(self) -> Proposal:
        """What is to be verified; a tree without branches is a plain proposal."""
        nodes, kept = range(1, len(self.tree.tokens)), self.plan.kept(sampled=self.choice.sampled)
        chosen = list(nodes) if kept is None else self.tree.best(nodes, kept)
        number = {ROOT: ROOT} | {node: place for place, node in enumerate(chosen, start=1)}
        tokens = [self.tree.tokens[node] for node in chosen]
        parents = [number[self.tree.parents[node]] for node in chosen]
        probs = torch.stack(self._probs) if self.choice.sampled and self._probs else None
        if parents == list(range(len(parents))):
            # each node of a chain has one child, so rows come in the order of the nodes
            return Proposal(tokens, probs, self.choice.vocab)
        rows = {number[node]: row for node, row in self._rows.items() if node in number}
        return TreeProposal(tokens, probs, self.choice.vocab, parents=parents, rows=rows)

    def _is_unsure(self, widths: dict[int, int], probs: Tensor) -> bool:
        """Whether a chain ends here; decided before its token is drawn, which keeps its distribution."""
        least = self.plan.min_confidence
        return least > 0.0 and self.tree.confidences[next(iter(widths))] * float(probs.max()) < least

    def _next(self, level: Sequence[int]) -> dict[int, int]:
        deepest = min(self.plan.depth, self.limit)
        if not level or self.tree.depths[level[0]] >= deepest:
            return {}
        return self.plan.widths(self.tree, level, sampled=self.choice.sampled)


def growths(
    plan: TreePlan, turns: Sequence[Turn], sampling: SamplingParams, *, sampled: bool, vocab: Tensor | None
) -> list[Growth]:
    """A tree in the making for each sequence of a step.

    Args:
        plan: of every tree.
        turns: the sequences.
        sampling: of the target; at temperature 0 nothing is sampled.
        sampled: draw children from the drafter's distribution.
        vocab: [draft_vocab] int64 target ids of the drafter's columns; None where they're the same.
    """
    sampled = sampled and not sampling.is_greedy
    return [Growth(plan, ChildChoice(sampling, sampled, turn.generator, vocab), turn.limit) for turn in turns]


def grow_trees(growing: Sequence[Growth], root_logits: Tensor, expand: Expand) -> list[Proposal]:
    """Draft a tree for each sequence of a batch, level by level.

    Args:
        growing: one per sequence.
        root_logits: [batch, draft_vocab] the drafter's view after each last committed token.
        expand: feeds the nodes of a level that get children; a sequence whose tree is complete has none.

    Returns:
        One proposal per sequence.
    """
    levels = [growth.start() for growth in growing]
    logits = root_logits[[row for row, widths in enumerate(levels) if widths]]
    while any(levels):
        parts = iter(torch.split(logits, [len(widths) for widths in levels if widths]))
        levels = [
            growth.add_level(widths, next(parts)) if widths else {}
            for growth, widths in zip(growing, levels, strict=True)
        ]
        if any(levels):
            logits = expand([growth.tree for growth in growing], [list(widths) for widths in levels])
    return [growth.proposal() for growth in growing]


def _add_children(tree: GrowingTree, widths: dict[int, int], probs: Tensor, choice: ChildChoice) -> None:
    columns = choice.columns(probs, max(widths.values()))
    chances = probs.gather(1, columns).tolist()
    tokens = (columns if choice.vocab is None else choice.vocab[columns]).tolist()
    for row, (node, width) in enumerate(widths.items()):
        for token, chance in zip(tokens[row][:width], chances[row], strict=False):
            # a token of no probability can't have been drawn: the support has ended
            if chance > 0.0:
                tree.add(node, token, chance)
