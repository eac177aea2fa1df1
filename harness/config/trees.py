"""Draft tree shapes as they're configured, turned into the one form that variants carry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import ConfigError

_REMEDY = (
    "Give a list of paths such as [[0],[1],[0,0]] (which child to take at each level, 0 the likeliest), "
    "a list with the number of children of each node from the root on, level by level, such as [2,1,0,0], "
    "or {nodes: 8, breadth: 3} for a tree that grows where the drafter is confident."
)
_MAX_NODES = 63


@dataclass(frozen=True, slots=True)
class TreeSpec:
    """A tree shape.

    Attributes:
        parents: [nodes] node that node 1, 2, ... follows, in breadth-first order; 0 is the last
            committed token. None where the tree grows anew at every step.
        num_nodes: drafted tokens, or the most of them.
        breadth: of a growing tree: nodes that get children at a level, and children each of them gets.
    """

    parents: tuple[int, ...] | None
    num_nodes: int
    breadth: int = 0

    @property
    def depth(self) -> int | None:
        """Tokens of the longest path; None where k alone limits it."""
        if self.parents is None:
            return None
        depths = [0]
        for parent in self.parents:
            depths.append(depths[parent] + 1)
        return max(depths)

    @property
    def label(self) -> str:
        """A short name, part of the variant's."""
        return f"tree{self.num_nodes}" if self.parents is not None else f"dynamic{self.num_nodes}"


def parse_tree(given: object, *, field: str) -> TreeSpec | None:
    """Read `method.tree`.

    Args:
        given: paths, counts of children, a mapping for a growing tree, or None for chains.
        field: where it stands, for messages.

    Raises:
        ConfigError: no tree, or one in which a node comes before its parent.
    """
    if given is None:
        return None
    if isinstance(given, Mapping):
        return _growing(given, field)
    if not isinstance(given, Sequence) or isinstance(given, str) or not given:
        raise ConfigError(field, "must be a tree", given, _REMEDY)
    parents = (
        _from_counts(given, field) if all(_is_count(item) for item in given) else _from_paths(given, field)
    )
    if len(parents) > _MAX_NODES:
        raise ConfigError(field, f"must have at most {_MAX_NODES} nodes", len(parents))
    return TreeSpec(tuple(parents), len(parents))


def _growing(given: Mapping[Any, Any], field: str) -> TreeSpec:
    unknown = sorted(set(given) - {"nodes", "breadth"})
    if unknown or "nodes" not in given:
        raise ConfigError(field, "needs nodes, may have breadth, and nothing else", dict(given), _REMEDY)
    nodes, breadth = given["nodes"], given.get("breadth", 3)
    for name, value, most in (("nodes", nodes, _MAX_NODES), ("breadth", breadth, 16)):
        if not _is_count(value) or not 1 <= value <= most:
            raise ConfigError(f"{field}.{name}", f"must be a whole number from 1 to {most}", value)
    return TreeSpec(None, nodes, breadth)


def _from_counts(counts: Sequence[int], field: str) -> list[int]:
    """Children of each node, from the root on; nodes behind the list's end have none."""
    parents: list[int] = []
    for node, count in enumerate(counts):
        if node > len(parents):
            raise ConfigError(
                field,
                "must give no node children before its parent has them",
                list(counts),
                f"Entry {node} is the number of children of node {node}, but the entries before make only "
                f"{len(parents)} node(s). {_REMEDY}",
            )
        parents += [node] * count
    if not parents:
        raise ConfigError(field, "must have at least one node", list(counts), _REMEDY)
    return parents


def _from_paths(given: Sequence[object], field: str) -> list[int]:
    paths = sorted((_path(path, field) for path in given), key=lambda path: (len(path), path))
    if len(set(paths)) < len(paths):
        raise ConfigError(field, "must not repeat a path", given, _REMEDY)
    number: dict[tuple[int, ...], int] = {(): 0}
    parents = []
    for path in paths:
        before = (*path[:-1], path[-1] - 1) if path[-1] else path[:-1]
        if path[:-1] not in number or before not in number:
            missing = path[:-1] if path[:-1] not in number else before
            raise ConfigError(
                field,
                "must give a node only with its parent and its likelier siblings",
                list(path),
                f"Add {list(missing)}, or leave {list(path)} out.",
            )
        number[path] = len(number)
        parents.append(number[path[:-1]])
    return parents


def _path(path: object, field: str) -> tuple[int, ...]:
    if isinstance(path, Sequence) and not isinstance(path, str) and path and all(map(_is_count, path)):
        return tuple(path)
    raise ConfigError(field, "must be paths of whole numbers from 0", path, _REMEDY)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
