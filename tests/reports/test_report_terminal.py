from __future__ import annotations

from pathlib import Path

from report_scenes import all_failed, hostile, method_sweep
from synthetic_results import write_synthetic_results

from harness.reports.terminal import summary_table
from harness.results import load


def test_one_row_per_temperature(tmp_path: Path) -> None:
    results = load(write_synthetic_results(tmp_path, temperatures=(0.0, 1.0), ks=(1, 2, 4), num_prompts=8))
    lines = summary_table(results).splitlines()
    assert " ".join(lines[0].split()) == "setting best k speedup [95%] acceptance tok/s baseline verdict"
    assert lines[2].startswith("temperature 0 ")
    assert lines[3].startswith("temperature 1 ")
    best = results.best_k().iloc[0]
    expected = f"{best.recommended_speedup:.2f}x [{best.recommended_speedup_low:.2f}, "
    assert expected in lines[2]
    assert f" {int(best.recommended_k)}  {expected}" in lines[2]
    assert lines[2].endswith("faster")


def test_one_row_per_method(tmp_path: Path) -> None:
    lines = summary_table(load(method_sweep(tmp_path))).splitlines()
    assert [line.split("  ")[0] for line in lines[2:4]] == ["draft model", "n-gram"]


def test_failed_cells_and_hostile_names_keep_the_table_straight(tmp_path: Path) -> None:
    failed = summary_table(load(all_failed(tmp_path))).splitlines()
    assert failed[2].endswith("not measured")
    assert failed[-1] == "3 cautions: see the report's summary."
    table = summary_table(load(hostile(tmp_path)))
    assert "\x1b" not in table
    assert all(len(line) < 140 for line in table.splitlines())
