"""Choose a draft tree from how often each guess is right and what each verified token costs."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.engine.drafters.base import Drafter, Turn
from harness.engine.sampling import SamplingParams
from harness.engine.tree import parents_of
from harness.engine.verify import Proposal

Accuracies = Sequence[Sequence[float]]
"""[depth][rank]: how often the guess of that rank is the target's token, the path above being right."""


class RankCounter:
    """Counts, at temperature 0, which of a drafter's guesses was right at each depth.

    The drafter must propose the same full tree at every step: `breadth` children of each node, the
    likeliest first. What was committed since tells which path was right.

    Args:
        drafter: whose guesses are counted; proposes trees.
        depth: of its tree.
        breadth: children of each node.
    """

    def __init__(self, drafter: Drafter, *, depth: int, breadth: int) -> None:
        """See the class."""
        self._drafter = drafter
        self.begin, self.settle, self.keep = drafter.begin, drafter.settle, drafter.keep
        self.read_hidden = getattr(drafter, "read_hidden", lambda hidden: None)
        self.right = [[0] * breadth for _ in range(depth)]
        self.reached = [0] * depth
        self._last: list[tuple[int, Proposal]] = []

    def propose(self, turns: Sequence[Turn], *, sampling: SamplingParams) -> list[Proposal]:
        """Count the last proposals' guesses by what followed, and propose anew; batches of one alone."""
        (turn,) = turns
        for length, proposal in self._last:
            if length < len(turn.tokens):
                self._count(turn.tokens[length:], proposal)
        proposals = self._drafter.propose(turns, sampling=sampling)
        self._last = [(len(turn.tokens), proposals[0])]
        return proposals

    @property
    def accuracies(self) -> list[list[float]]:
        """[depth][rank]; a depth that was never reached counts as never right."""
        return [
            [count / max(reached, 1) for count in counts]
            for counts, reached in zip(self.right, self.reached, strict=True)
        ]

    def _count(self, followed: Sequence[int], proposal: Proposal) -> None:
        parents, node = parents_of(proposal), 0
        for depth, token in enumerate(followed[: len(self.right)]):
            children = [child for child, parent in enumerate(parents, start=1) if parent == node]
            if not children:
                return
            self.reached[depth] += 1
            ranks = [rank for rank, child in enumerate(children) if proposal.tokens[child - 1] == token]
            if not ranks:
                return
            self.right[depth][ranks[0]] += 1
            node = children[ranks[0]]


@dataclass(frozen=True, slots=True)
class ChosenTree:
    """A tree and what it promises.

    Attributes:
        paths: of its nodes, in breadth-first order: the rank taken at each level, as `method.tree` has them.
        accepted: tokens expected to be accepted in a step.
        speedup: (1 + accepted) over the step's cost in target steps.
    """

    paths: tuple[tuple[int, ...], ...]
    accepted: float
    speedup: float


def choose_tree(
    accuracies: Accuracies, *, verify: Sequence[float], draft: Sequence[float]
) -> ChosenTree | None:
    """The tree with the largest expected speedup, each node bought where it is likeliest.

    A node stands on the accepted path with the product of the accuracies along its path. For every number
    of nodes the likeliest ones down to some depth are taken, which always form a tree, as no node is
    likelier than its parent or than its elder sibling; among these trees the fastest is chosen.

    Args:
        accuracies: [depth][rank], falling with the rank.
        verify: target steps that a forward over 1 + n tokens takes, for n = 0, 1, ... nodes.
        draft: target steps that drafting takes for a tree of depth 1, 2, ...

    Returns:
        The best tree; None where drafting nothing is faster than any.

    Source: the greedy construction of Chen et al. 2024, "Sequoia", section 3.1, and of Medusa's sparse
    trees (Cai et al. 2024, section 2.3.3), with measured costs.
    """
    found = [
        tree
        for levels in range(1, min(len(accuracies), len(draft)) + 1)
        for tree in _likeliest_trees(accuracies[:levels], verify=verify, draft_cost=draft[levels - 1])
    ]
    best = max(found, key=lambda tree: tree.speedup, default=None)
    return best if best is not None and best.speedup > 1.0 else None


def _likeliest_trees(
    accuracies: Accuracies, *, verify: Sequence[float], draft_cost: float
) -> Iterator[ChosenTree]:
    """For 1, 2, ... nodes the tree of the likeliest."""
    # a max-heap of the nodes that could come next: minus the probability, then the path
    waiting: list[tuple[float, tuple[int, ...]]] = [(-accuracies[0][0], (0,))]
    chosen: list[tuple[int, ...]] = []
    accepted = 0.0
    while waiting and len(chosen) + 1 < len(verify):
        negative, path = heapq.heappop(waiting)
        chosen.append(path)
        accepted -= negative
        paths = tuple(sorted(chosen, key=lambda path: (len(path), path)))
        yield ChosenTree(paths, accepted, (1 + accepted) / (draft_cost + verify[len(chosen)]))
        own, rank = accuracies[len(path) - 1], path[-1]
        if rank + 1 < len(own) and own[rank] > 0:
            heapq.heappush(waiting, (negative * own[rank + 1] / own[rank], (*path[:-1], rank + 1)))
        if len(path) < len(accuracies):
            heapq.heappush(waiting, (negative * accuracies[len(path)][0], (*path, 0)))


def full_tree(*, depth: int, breadth: int) -> list[int]:
    """[nodes] parents, breadth first, of the tree in which every node has `breadth` children."""
    parents: list[int] = []
    level, number = [0], 0
    for _ in range(depth):
        parents += [node for node in level for _ in range(breadth)]
        level = list(range(number + 1, len(parents) + 1))
        number = len(parents)
    return parents
