from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from page_reader import PageReader
from synthetic_results import write_synthetic_results

from harness.reports import sweep as sweep_module
from harness.reports.build import build_report
from harness.reports.sweep import Sweep
from harness.reports.terminal import summary_table
from harness.results import load

TEMPERATURES = (0.0, 0.3, 0.6, 0.9)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("many")
    return write_synthetic_results(root, "many", temperatures=TEMPERATURES, ks=(2, 4), num_prompts=6)


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages that list at most three cells, and show two of more."""
    monkeypatch.setattr(sweep_module, "MOST_CELLS", 3)
    monkeypatch.setattr(sweep_module, "NUM_SHOWN", 2)


@pytest.mark.usefixtures("cut")
def test_a_page_of_many_cells_counts_all_and_shows_the_ends_of_the_ranking(
    folder: Path, tmp_path: Path
) -> None:
    sections = PageReader(build_report(folder, tmp_path).read_text()).sections
    ranked = sorted(Sweep(load(folder)).series, key=lambda one: -one.chosen["speedup"])
    fastest, slowest = ranked[0].label, ranked[-1].label
    for name in ("speedup", "results", "latency", "split"):
        assert "2 of 4 cells" in sections[name], name
        assert fastest in sections[name], name
        assert slowest in sections[name], name
        assert ranked[1].label not in sections[name], name
    assert all(f"temperature {value:g}" in sections["overview"] for value in TEMPERATURES)
    assert "Best k of each setting, 2 of 4" in sections["summary"]
    # sentences are about every cell
    assert "all 4 settings" in (tmp_path / "report.md").read_text()


@pytest.mark.usefixtures("cut")
def test_every_row_that_the_page_leaves_out_is_beside_it(folder: Path, tmp_path: Path) -> None:
    build_report(folder, tmp_path)
    results = load(folder)
    for name, expected in (("summary", results.summary()), ("by_task", results.by_task())):
        stored = pd.read_parquet(tmp_path / "tables" / f"{name}.parquet")
        assert len(stored) == len(expected)
        assert stored["speedup"].to_numpy() == pytest.approx(expected["speedup"].to_numpy(), nan_ok=True)
    assert set(pd.read_parquet(tmp_path / "tables" / "cells.parquet")["temperature"]) == set(TEMPERATURES)


@pytest.mark.usefixtures("cut")
def test_a_terminal_says_that_it_shows_some_of_the_settings(folder: Path) -> None:
    table = summary_table(load(folder))
    assert "2 of 4 settings" in table
    assert sum(line.startswith("temperature") for line in table.splitlines()) == 2


def test_tables_of_an_older_cut_report_go(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sweep_module, "MOST_CELLS", 3)
        build_report(folder, tmp_path)
        assert any((tmp_path / "tables").iterdir())
    page = PageReader(build_report(folder, tmp_path).read_text())
    assert not any((tmp_path / "tables").iterdir())
    assert "overview" not in page.sections
    assert "2 of 4" not in page.sections["results"]
