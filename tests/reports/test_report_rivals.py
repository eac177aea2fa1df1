"""Methods, trees and adaptive k against what they stand beside, in words that follow the intervals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from report_scenes import cells_of, edit_observations, edit_record, method_sweep
from synthetic_results import Truth, write_synthetic_results

from harness.reports.blocks import Bullets, Figures, Section, Table
from harness.reports.methods import methods_section
from harness.reports.pacing import pacing_section
from harness.reports.sweep import Sweep
from harness.reports.trees import trees_section
from harness.results import load

Change = Callable[[dict[str, Any]], None]
NBSP = "\N{NO-BREAK SPACE}"


def renamed(root: Path, name: str, change: dict[str, Any], **truth: Any) -> Path:
    """One cell with k of 1, 2 and 3, of which k=3 becomes another variant of k=2."""
    folder = write_synthetic_results(
        root, name, temperatures=(0.0,), ks=(1, 2, 3), num_prompts=12, truth=Truth(**truth)
    )
    (cell,) = cells_of(folder)

    def edit(record: dict[str, Any]) -> None:
        record["variants"][3] |= change

    edit_record(cell, edit)
    names = {"draft_model-k3": change["variant_id"]}
    edit_observations(cell, lambda row: row | {"variant_id": names.get(row["variant_id"], row["variant_id"])})
    return folder


def tree_sweep(root: Path, **truth: Any) -> Path:
    change = {"method": "draft_model tree3", "variant_id": "draft_model-tree3-k2", "k": 2}
    return renamed(root, "tree", change | {"options": {"tree_parents": [0, 0, 1], "label": "tree3"}}, **truth)


def adaptive_sweep(root: Path, **truth: Any) -> Path:
    change = {"method": "draft_model adaptive", "variant_id": "draft_model-adaptive-k3"}
    return renamed(root, "adaptive", change | {"options": {"adaptive": True}}, **truth)


def told(section: Section) -> list[str]:
    return [text for block in section.blocks if isinstance(block, Bullets) for text in block.items]


def tables(section: Section) -> dict[str, list[list[str]]]:
    found = [block for block in section.blocks if isinstance(block, Table)]
    found += [block.table for block in section.blocks if isinstance(block, Figures)]
    return {table.caption: [[entry.text for entry in row] for row in table.rows] for table in found}


def test_methods_are_compared_where_there_are_two(tmp_path: Path) -> None:
    section = methods_section(Sweep(load(method_sweep(tmp_path))))
    rows = tables(section)["Each method at its recommended k"]
    assert [row[0] for row in rows] == ["draft model", "n-gram"]
    assert all(len(row) == 10 for row in rows)
    assert any("is fastest" in text for text in told(section))
    (figures,) = [block for block in section.blocks if isinstance(block, Figures)]
    assert [key.name for key in figures.legend] == ["draft model", "n-gram"]


def test_the_method_with_more_tokens_per_forward_is_told_what_it_pays(tmp_path: Path) -> None:
    folder = method_sweep(tmp_path)

    def slow(row: dict[str, Any]) -> dict[str, Any]:
        """Drafting with the draft model takes ten times as long as it would."""
        if not row["variant_id"].startswith("draft_model"):
            return row
        added = 9 * sum(row["step_draft_s"])
        times = {name: row[name] + added for name in ("decode_s", "total_s", "trial_s")}
        return row | times | {"step_draft_s": [10 * s for s in row["step_draft_s"]], "num_target_forwards": 9}

    edit_observations(cells_of(folder)[0], slow)
    first, second = told(methods_section(Sweep(load(folder))))
    assert first.startswith("n-gram at k")
    assert second.startswith("draft model at k")
    assert "gets more tokens per forward" in second
    assert "but a drafted token costs" in second


def test_one_method_needs_no_comparison(tmp_path: Path) -> None:
    folder = write_synthetic_results(tmp_path, temperatures=(0.0,), ks=(1, 2), num_prompts=4)
    sweep = Sweep(load(folder))
    for section in (methods_section(sweep), trees_section(sweep), pacing_section(sweep)):
        assert section.omitted
        assert not section.blocks


@pytest.mark.parametrize(
    ("slowdown", "wording"),
    [
        (1.0, "beats its chain in tokens per forward ("),
        (3.0, "beats its chain in tokens per forward ("),
    ],
)
def test_a_tree_stands_beside_the_chain_of_its_depth(tmp_path: Path, slowdown: float, wording: str) -> None:
    folder = tree_sweep(tmp_path, slowdown={"draft_model-k3": slowdown})
    section = trees_section(Sweep(load(folder)))
    ((name, nodes, depth, *_, chain, _, _, tokens, speed),) = tables(section)["Trees and their chains"]
    assert (name, nodes, depth) == (f"draft model tree3, k{NBSP}={NBSP}2", "3", "2")
    assert chain == f"k{NBSP}={NBSP}2"
    (text,) = told(section)
    assert "(3 nodes, 2 deep)" in text
    assert wording in text
    assert tokens in text
    assert speed in text
    assert ("but is slower (" in text) == (slowdown > 1)


def test_a_tree_without_a_chain_says_so(tmp_path: Path) -> None:
    folder = tree_sweep(tmp_path)

    def drop(record: dict[str, Any]) -> None:
        for variant in record["variants"][1:3]:
            variant["method"] = "ngram"

    edit_record(cells_of(folder)[0], drop)
    (text,) = told(trees_section(Sweep(load(folder))))
    assert text.endswith("no chain of its depth was measured to compare it with.")


@pytest.mark.parametrize(("slowdown", "answer"), [(0.5, "yes, it is faster: "), (2.0, "no, it is slower: ")])
def test_adaptive_k_is_judged_against_the_best_fixed_k(tmp_path: Path, slowdown: float, answer: str) -> None:
    folder = adaptive_sweep(tmp_path, slowdown={"draft_model-k3": slowdown})
    section = pacing_section(Sweep(load(folder)))
    (text,) = told(section)
    assert answer in text
    assert text.endswith(f"of the speed of k{NBSP}={NBSP}2, the fastest fixed one.")
    shares = tables(section)["Share of the steps that drafted so many tokens"]
    assert [row[1:] for row in shares] == [["100%"]]
    (figures,) = [block for block in section.blocks if isinstance(block, Figures)]
    assert "Drafted tokens by step" in figures.items[0].title


def test_as_fast_within_the_interval_is_as_fast(tmp_path: Path) -> None:
    """The adaptive variant measured just what k=2 did."""
    folder = adaptive_sweep(tmp_path)
    (cell,) = cells_of(folder)
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}

    def remember(row: dict[str, Any]) -> dict[str, Any]:
        rows[row["variant_id"], row["prompt_id"], row["repeat"]] = row
        return row

    edit_observations(cell, remember)

    def copied(row: dict[str, Any]) -> dict[str, Any]:
        if "adaptive" not in row["variant_id"]:
            return row
        same = rows["draft_model-k2", row["prompt_id"], row["repeat"]]
        nudge = 1 + 0.01 * (int(row["prompt_id"][-1]) % 3 - 1)
        return row | {"decode_s": same["decode_s"] * nudge, "num_output_tokens": same["num_output_tokens"]}

    edit_observations(cell, copied)
    (text,) = told(pacing_section(Sweep(load(folder))))
    assert "yes, within the interval: " in text
