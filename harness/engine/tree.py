"""Draft trees: which drafted token follows which, where each stands and what it may see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from harness.engine.verify import Proposal

ROOT = 0
"""Number of the root: the last committed token, which is no draft but is fed with them."""


@dataclass(frozen=True, slots=True)
class TreeProposal(Proposal):
    """Drafted tokens that share their beginnings.

    Node 0 is the last committed token, node i the i-th drafted one.

    Attributes:
        tokens: [nodes] drafted ids of nodes 1, 2, ...
        probs: [rows, draft_vocab] the distributions that children were drawn from without
            replacement, in the order of their numbers; None where children were chosen with
            certainty, as the likeliest ones are.
        parents: [nodes] node that each of them follows; no node comes before its parent.
        rows: node to the row of `probs` that its children come from.
    """

    parents: Sequence[int] = ()
    rows: dict[int, int] = field(default_factory=dict)

    @property
    def length(self) -> int:
        """Tokens of the longest path."""
        return max(depths(self.parents))

    def children(self) -> dict[int, list[int]]:
        """Each inner node's children, in the order of their numbers."""
        found: dict[int, list[int]] = {}
        for node, parent in enumerate(self.parents, start=1):
            found.setdefault(parent, []).append(node)
        return found


def parents_of(proposal: Proposal) -> Sequence[int]:
    """Parents of a proposal's nodes 1, 2, ...; each token of a chain follows the one before."""
    return proposal.parents if isinstance(proposal, TreeProposal) else range(len(proposal.tokens))


def check_parents(parents: Sequence[int]) -> None:
    """Refuse what isn't a tree rooted at node 0.

    Args:
        parents: [nodes] parent of node 1, 2, ...

    Raises:
        ValueError: a node comes before its parent, or names none.
    """
    for node, parent in enumerate(parents, start=1):
        if not ROOT <= parent < node:
            raise ValueError(
                f"tree node {node} must follow a node from 0 (the root) to {node - 1}, got {parent}"
            )


def depths(parents: Sequence[int]) -> list[int]:
    """How many steps each node is from the root, the root included.

    Args:
        parents: [nodes] parent of node 1, 2, ...

    Returns:
        [nodes + 1]; the root's is 0. A node's position is the root's plus its depth.
    """
    found = [0]
    for parent in parents:
        found.append(found[parent] + 1)
    return found


def ancestor_mask(parents: Sequence[int], *, device: torch.device | str = "cpu") -> Tensor:
    """Which nodes each node may see: itself and its ancestors, up to and with the root.

    Args:
        parents: [nodes] parent of node 1, 2, ...
        device: where to put it.

    Returns:
        Boolean [nodes + 1, nodes + 1], True where the row's node may look; the root is row and column 0.

    Source: Miao et al. 2023, "SpecInfer", section 4.2.
    """
    size = len(parents) + 1
    mask = torch.eye(size, dtype=torch.bool)
    for node, parent in enumerate(parents, start=1):
        mask[node] |= mask[parent]
    return mask.to(device)


def path_to(parents: Sequence[int], node: int) -> list[int]:
    """Nodes from below the root down to `node`; none for the root itself."""
    path: list[int] = []
    while node != ROOT:
        path.append(node)
        node = parents[node - 1]
    return path[::-1]
