"""Where the nodes of draft trees go in a cache, and what they may see there."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from harness.engine.cache import KVCache, Placement
from harness.engine.tree import ancestor_mask, depths


def place_trees(cache: KVCache, parents: Sequence[Sequence[int]]) -> Placement:
    """Place each sequence's last committed token and its drafted tree behind the committed rows.

    Node i goes to row length + i and stands at position length + depth: siblings share a position.

    Args:
        cache: of the same batch.
        parents: [batch] parents of each tree's nodes 1, 2, ...
    """
    device = cache.keys[0].device
    new = 1 + max(len(own) for own in parents)
    seen = torch.eye(new, dtype=torch.bool).expand(len(parents), -1, -1).clone()
    offsets = torch.zeros(len(parents), new, dtype=torch.int64)
    for row, own in enumerate(parents):
        size = len(own) + 1
        seen[row, :size, :size] = ancestor_mask(own)
        offsets[row, :size] = torch.tensor(depths(own))
    return _placement(cache, 0, offsets.to(device), seen.to(device))


class NodeSlots:
    """Where a drafter's cache holds the nodes it was fed, of every sequence of a batch.

    The root's row is committed; nodes come level by level, behind the committed rows.

    Args:
        cache: of the drafter.
    """

    def __init__(self, cache: KVCache) -> None:
        """Start with empty trees."""
        self._cache = cache
        self._slots: list[dict[int, int]] = [{} for _ in range(cache.batch)]
        self._used = 0

    def place(self, parents: Sequence[Sequence[int]], nodes: Sequence[Sequence[int]]) -> Placement:
        """Place one level's nodes.

        Args:
            parents: [batch] parent of every node of each tree, the root's first.
            nodes: [batch] those to be fed now; may be empty, though not all of them.
        """
        new, device = max(map(len, nodes)), self._cache.keys[0].device
        first, self._used = self._used, self._used + new
        seen = torch.zeros(len(nodes), new, self._used, dtype=torch.bool)
        # padding sees itself, as it must see something
        seen[:, :, first:] = torch.eye(new, dtype=torch.bool)
        offsets = torch.zeros(len(nodes), new, dtype=torch.int64)
        for row, (own, level) in enumerate(zip(parents, nodes, strict=True)):
            for place, node in enumerate(level):
                self._slots[row][node] = first + place
                ancestor = own[node]
                while ancestor > 0:
                    seen[row, place, self._slots[row][ancestor]] = True
                    offsets[row, place] += 1
                    ancestor = own[ancestor]
        return _placement(self._cache, first, offsets.to(device), seen.to(device))


def _placement(cache: KVCache, first: int, offsets: Tensor, seen: Tensor) -> Placement:
    """Rows behind the lengths.

    Args:
        cache: of the batch.
        first: row past the committed ones that the first new token goes to; the others follow.
        offsets: [batch, new] positions past the committed ones.
        seen: [batch, new, first + new] which of the uncommitted rows each new token sees.
    """
    new, used = seen.shape[1:]
    lengths = torch.tensor(cache.lengths, device=seen.device)
    total = max(cache.lengths) + used
    mask = torch.arange(total, device=seen.device) < lengths[:, None, None]
    mask = mask.expand(-1, new, -1).clone()
    for row, length in enumerate(cache.lengths):
        mask[row, :, length : length + used] = seen[row]
    angles = lengths[:, None] + offsets
    branches = (seen.long() << torch.arange(used, device=seen.device)).sum(-1)
    if min(cache.lengths) == max(cache.lengths):
        # rows of equal lengths are written as one slice
        return Placement(
            total=total, start=total - new, angles=angles, mask=mask, first=first, branches=branches
        )
    return Placement(
        total=total,
        start=None,
        rows=torch.arange(len(lengths), device=seen.device)[:, None],
        positions=lengths[:, None] + torch.arange(first, used, device=seen.device),
        angles=angles,
        mask=mask,
        first=first,
        branches=branches,
    )
