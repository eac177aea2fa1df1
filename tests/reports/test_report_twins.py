from __future__ import annotations

import json
from pathlib import Path

import pytest
from report_scenes import SCENES
from synthetic_results import write_synthetic_results

from harness.reports.blocks import Column, Facts, Figures, Page, Prose, Section, Table, Verbatim, entry
from harness.reports.build import build_report
from harness.reports.page import page_of
from harness.reports.sweep import Sweep
from harness.reports.trend import build_trend
from harness.reports.twins import as_markdown, document
from harness.results import load


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("twins")
    return write_synthetic_results(root, temperatures=(0.0, 0.7), ks=(1, 4), num_prompts=6)


def tables_of(page: Page) -> list[Table]:
    blocks = [block for section in page.sections for block in section.blocks]
    drawn = (block.table if isinstance(block, Figures) else block for block in blocks)
    return [block for block in drawn if isinstance(block, Table)]


def test_the_json_twin_says_what_the_page_says(folder: Path, tmp_path: Path) -> None:
    build_report(folder, tmp_path)
    page = page_of(Sweep(load(folder)))
    found = json.loads((tmp_path / "report.json").read_text())
    assert found == json.loads(json.dumps(document(page)))
    assert found["format_version"] == 1
    assert [one["id"] for one in found["sections"]] == [one.identifier for one in page.sections]
    blocks = [block for section in found["sections"] for block in section["blocks"]]
    tables = [block.get("table", block) for block in blocks if block["kind"] in ("table", "figures")]
    assert len(tables) == len(tables_of(page)) > 5
    for told, table in zip(tables, tables_of(page), strict=True):
        assert told["rows"] == [[one.text for one in row] for row in table.rows]
        assert all(len(row) == len(told["columns"]) for row in told["rows"])


def test_the_markdown_twin_has_every_section_and_every_row(folder: Path, tmp_path: Path) -> None:
    build_report(folder, tmp_path)
    page = page_of(Sweep(load(folder)))
    lines = (tmp_path / "report.md").read_text().splitlines()
    assert [line[3:] for line in lines if line.startswith("## ")] == [one.title for one in page.shown]
    rows = [line for line in lines if line.startswith("| ")]
    # two lines of a table are its head
    assert len(rows) == sum(len(table.rows) + 2 for table in tables_of(page))


def test_text_from_results_stays_text_in_markdown() -> None:
    hostile = "<script>alert(1)</script> | a `b` [c](d) *e*\nf"
    table = Table("T", [Column(hostile), Column("x")], [[entry(hostile), entry("1")]])
    blocks = [table, Prose(hostile), Facts([(hostile, "y")]), Verbatim("V", "a ``` b ```` c")]
    text = as_markdown(Page("P", "", "", [Section("s", "S", blocks=blocks)]))
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert [len(line.replace("\\|", "").split("|")) for line in rows] == [4, 4, 4]
    outside_code = text.split("`````")[0]
    assert "<script" not in outside_code.replace("\\<", "")
    assert "[c](" not in outside_code
    assert "`````\na ``` b ```` c\n`````" in text


def test_hostile_results_give_twins(tmp_path: Path) -> None:
    build_report(SCENES["hostile"](tmp_path / "results"), tmp_path / "out")
    assert json.loads((tmp_path / "out" / "report.json").read_text())["sections"]
    assert "<script" not in (tmp_path / "out" / "report.md").read_text().replace("\\<", "").split("```")[0]


def test_a_trend_has_twins(folder: Path, tmp_path: Path) -> None:
    build_trend([folder], tmp_path)
    assert json.loads((tmp_path / "report.json").read_text())["title"] == "Trend"
    assert (tmp_path / "report.md").read_text().startswith("# Trend\n")
