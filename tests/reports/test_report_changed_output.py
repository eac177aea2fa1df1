"""A variant that isn't lossless says so wherever it is named, and is never what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from report_scenes import cells_of, edit_observations, edit_record, method_sweep

from harness.findings import find
from harness.reports.blocks import Bullets, Decision, Figures, Table
from harness.reports.html import render
from harness.reports.losslessness import lossless_line
from harness.reports.page import page_of
from harness.reports.sweep import Sweep
from harness.reports.terminal import summary_table
from harness.results import Results, load

MARK = "(not lossless)"


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """A draft model, and a faster n-gram drafter whose output isn't the target's."""
    folder = method_sweep(tmp_path)
    cell = cells_of(folder)[0]

    def change(record: dict[str, Any]) -> None:
        for variant in record["variants"]:
            variant["lossless"] = variant["method"] != "ngram"

    def faster(row: dict[str, Any]) -> dict[str, Any]:
        if not row["variant_id"].startswith("ngram"):
            return row
        return row | {name: row[name] * 0.5 for name in ("decode_s", "total_s", "trial_s")}

    edit_record(cell, change)
    edit_observations(cell, faster)
    return load(folder)


def test_the_column_is_false_in_every_frame(results: Results) -> None:
    for frame in (results.summary(), results.variants, results.measured, results.by_task()):
        ngram = frame["variant_id"].str.startswith("ngram")
        assert frame.loc[ngram, "lossless"].eq(False).all()
        assert frame.loc[~ngram, "lossless"].eq(True).all()


def test_the_headline_is_about_what_is_lossless_and_names_the_rest_apart(results: Results) -> None:
    page = page_of(Sweep(results))
    first, _, rest = page.headline.partition("Not lossless, so not compared with the others: ")
    assert first.startswith("Speculation pays: draft model with")
    assert "n-gram" not in first
    assert rest.startswith(f"n-gram {MARK} with k")


def test_tables_legends_and_advice_say_so(results: Results) -> None:
    page = page_of(Sweep(results))
    blocks = [block for section in page.sections for block in section.blocks]
    figures = [block for block in blocks if isinstance(block, Figures)]
    tables = [block for block in blocks if isinstance(block, Table)] + [figure.table for figure in figures]
    named = [entry.text for table in tables for row in table.rows for entry in row]
    named += [key.name for figure in figures for key in figure.legend]
    named += [text for block in blocks if isinstance(block, Bullets) for text in block.items]
    answers = [block.items for block in blocks if isinstance(block, Decision)]
    named += [text for items in answers for _, texts in items for text in texts]
    of_ngram = [text for text in named if text.lower().startswith("n-gram")]
    assert len(of_ngram) > 10
    assert all(MARK in text for text in of_ngram)
    (told,) = [text for text in of_ngram if "compared too" in text]
    assert "not lossless, the output isn't the target's" in told
    (best,) = [table for table in tables if table.caption == "Best k of each setting"]
    assert {row[0].text: row[1].text for row in best.rows} == {
        "draft model": "faster",
        f"n-gram {MARK}": "faster, not lossless",
    }
    assert "pays" not in {row[1].tone for row in best.rows if MARK in row[0].text}
    render(page)


def test_the_terminal_says_so(results: Results) -> None:
    (line,) = [line for line in summary_table(results).splitlines() if line.startswith("n-gram")]
    assert MARK in line
    assert line.endswith("faster, not lossless")


def test_a_finding_weighs_it_against_the_fastest_lossless_variant(results: Results) -> None:
    (found,) = [one for one in find(results) if one.rule.name == "changed_output"]
    assert str(found.sighting.variant_id).startswith("ngram")
    summary = results.summary().set_index("variant_id")["speedup"]
    kept = summary[~summary.index.str.startswith("ngram")].max()
    assert found.sighting.figures["best_lossless_speedup"] == pytest.approx(kept)


def test_only_what_is_lossless_is_there(tmp_path: Path) -> None:
    folder = method_sweep(tmp_path)
    assert MARK not in render(page_of(Sweep(load(folder))))
    assert not [one for one in find(load(folder)) if one.rule.name == "changed_output"]


def row(
    variant_id: str, *, test: str, verdict: str, lossless: bool = False, **figures: Any
) -> dict[str, Any]:
    return {
        "variant_id": variant_id,
        "test": test,
        "verdict": verdict,
        "lossless": lossless,
        "is_baseline": variant_id == "autoregressive",
        **figures,
    }


def test_the_check_counts_what_differs_by_design_and_calls_it_no_defect() -> None:
    control = row("autoregressive", test="greedy", verdict="equal", lossless=True, num_prompts=8, num_equal=8)
    exact = row("draft_model-k2", test="greedy", verdict="equal", lossless=True, num_prompts=8, num_equal=8)
    greedy = row("draft_model-typical0.09-k2", test="greedy", verdict="lossy", num_prompts=8, num_equal=5)
    sampled = row(
        "draft_model-typical0.09-k2", test="distribution", verdict="lossy", num_prompts=8, distance=0.314
    )
    assert lossless_line([control, exact, greedy, sampled]) == (
        "1 of 1 variants write exactly the baseline's tokens. 2 aren't lossless by design: 3 of 8 greedy "
        "outputs differ from the baseline's and sampled tokens lie up to 0.31 from the target's distribution."
    )
    assert lossless_line([control, greedy]) == (
        "1 isn't lossless by design: 3 of 8 greedy outputs differ from the baseline's."
    )
