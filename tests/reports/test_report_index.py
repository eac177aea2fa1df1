from __future__ import annotations

from pathlib import Path

import pytest
from page_reader import PageReader
from synthetic_results import write_synthetic_results

from harness.cli import report
from harness.reports.blocks import Page
from harness.reports.html import render
from harness.reports.index import write_index


def put(folder: Path, name: str, page: Page) -> None:
    path = folder / name
    path.parent.mkdir(parents=True)
    path.write_text(render(page))


def test_all_reports_are_listed_with_what_they_say(tmp_path: Path) -> None:
    put(tmp_path, "b/index.html", Page("Sweep & <b>", "cpu · 2026", "Speculation pays."))
    put(tmp_path, "a #1/plan.html", Page("Plan", "", "Run 3 replicas.", kind="plan"))
    (tmp_path / "c").mkdir()
    (tmp_path / "c/index.html").write_text("<title>not ours</title>")
    path = write_index(tmp_path)
    assert path == tmp_path / "index.html"
    html = path.read_text()
    links = [value for _, name, value in PageReader(html).attributes if name == "href" and value[0] != "#"]
    assert links == ["a%20%231/plan.html", "b/index.html"]
    text = " ".join(PageReader(html).sections["reports"].split())
    assert "Plan plan Run 3 replicas." in text
    assert "Sweep & <b> sweep Speculation pays. cpu · 2026" in text
    assert "Sweep &amp; &lt;b&gt;" in html
    assert "not ours" not in html
    assert write_index(tmp_path) == path
    assert path.read_text() == html


def test_another_programs_index_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<title>mine</title>")
    assert write_index(tmp_path) is None
    assert (tmp_path / "index.html").read_text() == "<title>mine</title>"


def test_rendering_a_report_in_its_usual_place_lists_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_synthetic_results(tmp_path, "nightly", temperatures=(0.0,), ks=(1,), num_prompts=6)
    monkeypatch.chdir(tmp_path)
    report.main([str(folder), "--out", str(tmp_path / "elsewhere/page")])
    assert not (tmp_path / "elsewhere/index.html").exists()
    report.main([str(folder)])
    assert "nightly" in PageReader((tmp_path / "reports/index.html").read_text()).sections["reports"]
