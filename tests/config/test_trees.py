from __future__ import annotations

import pytest

from harness.config.trees import TreeSpec, parse_tree
from harness.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "parents"),
    [
        ([[0], [1], [0, 0]], (0, 0, 1)),
        ([[0, 0], [0], [1], [1, 0], [0, 1], [0, 0, 0]], (0, 0, 1, 1, 2, 3)),
        ([2, 1], (0, 0, 1)),
        ([2, 2, 1, 1], (0, 0, 1, 1, 2, 3)),
        ([2, 1, 0, 0], (0, 0, 1)),
        ([1, 1, 1], (0, 1, 2)),
        ([3], (0, 0, 0)),
    ],
)
def test_paths_and_counts_become_parents(given: object, parents: tuple[int, ...]) -> None:
    spec = parse_tree(given, field="method.tree")
    assert spec == TreeSpec(parents, len(parents))
    assert spec.label == f"tree{len(parents)}"


def test_no_tree_is_a_chain() -> None:
    assert parse_tree(None, field="method.tree") is None


def test_depth_is_the_longest_path() -> None:
    spec = parse_tree([[0], [1], [0, 0], [0, 0, 0]], field="method.tree")
    assert spec is not None
    assert spec.depth == 3


def test_a_growing_tree_is_limited_by_k_alone() -> None:
    spec = parse_tree({"nodes": 8, "breadth": 2}, field="method.tree")
    assert spec == TreeSpec(None, 8, 2)
    assert (spec.depth, spec.label) == (None, "dynamic8")
    assert parse_tree({"nodes": 8}, field="method.tree") == TreeSpec(None, 8, 3)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([[0], [0, 0], [1, 0]], "Add [1], or leave [1, 0] out"),
        ([[0, 0]], "Add [0]"),
        ([[0], [2]], "Add [1]"),
        ([1, 1, 1, 0, 2], "Entry 4 is the number of children of node 4"),
        ([0], "must have at least one node"),
        ([[0], [0]], "must not repeat a path"),
        ([[0], [-1]], "must be paths of whole numbers"),
        ([[0], []], "must be paths of whole numbers"),
        ([], "must be a tree"),
        ("wide", "must be a tree"),
        (7, "must be a tree"),
        ([64], "must have at most 63 nodes"),
        ({"nodes": 0}, "method.tree.nodes: must be a whole number from 1 to 63"),
        ({"nodes": 8, "breadth": 17}, "method.tree.breadth"),
        ({"breadth": 2}, "needs nodes"),
        ({"nodes": 8, "depth": 2}, "needs nodes, may have breadth, and nothing else"),
    ],
)
def test_what_is_no_tree_is_refused(given: object, says: str) -> None:
    with pytest.raises(ConfigError, match=r"method\.tree") as caught:
        parse_tree(given, field="method.tree")
    assert says in str(caught.value)
