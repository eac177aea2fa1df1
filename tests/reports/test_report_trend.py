from __future__ import annotations

from pathlib import Path

import pytest
from page_reader import PageReader
from report_scenes import cells_of, edit_record
from synthetic_results import Truth, write_synthetic_results

from harness.__main__ import main
from harness.errors import ResultFormatError
from harness.reports.trend import build_trend
from harness.results.history import history

NUM_RUNS = 12
SLOWER_FROM = 6


def written(root: Path, *, num_runs: int = NUM_RUNS, slowdown: float = 1.3) -> Path:
    """Nightly runs of one experiment, of which the later ones draft more slowly."""
    for number in range(num_runs):
        slow = slowdown if number >= SLOWER_FROM else 1.0
        folder = write_synthetic_results(
            root,
            f"night-{number:02d}",
            temperatures=(0.0,),
            ks=(3,),
            num_prompts=6,
            num_repeats=1,
            seed=number,
            truth=Truth(luck=7, slowdown={"draft_model-k3": slow}),
        )
        (cell,) = cells_of(folder)
        moment = f"2026-01-{number + 1:02d}T03:00:00+00:00"
        environment = {"code_version": f"c0de{number:02d}"}
        edit_record(cell, lambda record, m=moment, e=environment: record.update(started_at=m, environment=e))
    return root


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("nights"))


def test_history_has_a_row_per_cell_and_variant_in_order_of_time(nights: Path) -> None:
    table = history([nights])
    assert len(table) == 2 * NUM_RUNS
    assert table["experiment"].nunique() == 1
    drafting = table[table["variant_id"] == "draft_model-k3"]
    assert drafting["code_version"].tolist() == [f"c0de{number:02d}" for number in range(NUM_RUNS)]
    assert drafting["speedup"].iloc[:SLOWER_FROM].min() > drafting["speedup"].iloc[SLOWER_FROM:].max()
    assert drafting["baseline_tok_per_s"].isna().all()
    baseline = table[table["is_baseline"].astype(bool)]
    assert baseline["baseline_tok_per_s"].between(30, 60).all()
    assert baseline["speedup"].isna().all()
    # naming a folder twice counts it once, and one run alone is a run
    assert len(history([nights, nights / "night-03"])) == len(table)
    assert len(history([nights / "night-03"])) == 2


def test_the_page_marks_the_change_and_says_what_it_is_not_for(nights: Path, tmp_path: Path) -> None:
    path, sentences = build_trend([nights], tmp_path / "out")
    page = PageReader(path.read_text())
    speedups = [text for text in sentences if text.startswith("Decode speedup")]
    assert len(speedups) == 1
    assert "2026-01-07 03:00" in speedups[0]
    assert "c0de06" in speedups[0]
    assert not any(text.startswith(("Acceptance", "Tokens per forward")) for text in sentences)
    assert list(page.sections) == [
        "changes",
        "speedup",
        "acceptance-rate",
        "tokens-per-forward",
        "baseline-tok-per-s",
    ]
    assert "not for gating" in page.sections["changes"]
    assert " ".join(speedups[0].split()) in " ".join(page.sections["changes"].split())
    assert sum(svg["class"] == "plot" for svg in page.svgs) == 4
    assert page.tags.count("script") == 1
    assert len(page.ids) == len(set(page.ids))


def test_other_settings_are_another_series(nights: Path, tmp_path: Path) -> None:
    other = write_synthetic_results(tmp_path / "other", "hot", temperatures=(1.0,), ks=(3,), num_prompts=6)
    path, _ = build_trend([nights, other], tmp_path / "out")
    text = PageReader(path.read_text()).sections["speedup"]
    assert "temperature 0" in text
    assert "temperature 1" in text


def test_a_short_history_is_shown_without_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = written(tmp_path / "runs", num_runs=3)
    assert main(["trend", str(runs), "--out", str(tmp_path / "page")]) == 0
    assert capsys.readouterr().out == f"report: {tmp_path / 'page' / 'index.html'}\n"
    assert "Too little history" in (tmp_path / "page" / "index.html").read_text()


def test_no_runs_are_bad_input(tmp_path: Path) -> None:
    with pytest.raises(ResultFormatError, match="no stored runs"):
        build_trend([tmp_path], tmp_path / "out")
    assert main(["trend", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
