from __future__ import annotations

from pathlib import Path

import pytest
from synthetic_results import Truth, write_synthetic_results

from harness.reports.blocks import Table
from harness.reports.engines import engines_section
from harness.reports.sweep import Sweep
from harness.results import Results, load


def several_engines(root: Path, **backends: float) -> Results:
    """The same work on engines that are so many times slower than the usual one, speculation and all."""
    folder = root
    for seed, (name, slowdown) in enumerate(backends.items()):
        variants = ("autoregressive", "draft_model-k2")
        truth = Truth(slowdown=dict.fromkeys(variants, slowdown), luck=1, facts={"backend": name})
        folder = write_synthetic_results(root, temperatures=(0.0,), ks=(2,), seed=seed, truth=truth)
    return load(folder)


def test_speed_is_compared_with_the_fastest_baseline_on_the_same_prompts(tmp_path: Path) -> None:
    results = several_engines(tmp_path, native=1.0, vllm=0.5)
    found = results.across_engines().set_index(["backend", "variant_id"])
    assert set(found["best_backend"]) == {"vllm"}
    assert found.loc[("vllm", "autoregressive"), "over_best"] == 1.0
    assert found.loc[("native", "autoregressive"), "over_best"] == pytest.approx(0.5, rel=0.02)
    summary = results.summary().set_index(["backend", "variant_id"])
    ours = summary.loc[("native", "draft_model-k2"), "end_to_end_speedup"]
    over_best = found.loc[("native", "draft_model-k2")]
    assert over_best["over_best"] == pytest.approx(ours / 2, rel=0.05)
    assert over_best["over_best_low"] < over_best["over_best"] < over_best["over_best_high"]


def test_work_that_differs_is_not_compared(tmp_path: Path) -> None:
    one = several_engines(tmp_path / "one", native=1.0)
    assert one.across_engines().empty
    assert engines_section(Sweep(one)).omitted
    write_synthetic_results(
        tmp_path / "two", temperatures=(0.0,), ks=(2,), truth=Truth(facts={"backend": "native"})
    )
    folder = write_synthetic_results(
        tmp_path / "two", temperatures=(1.0,), ks=(2,), seed=1, truth=Truth(facts={"backend": "vllm"})
    )
    assert load(folder).across_engines().empty


def test_the_section_has_a_line_per_engine_and_variant(tmp_path: Path) -> None:
    section = engines_section(Sweep(several_engines(tmp_path, native=1.0, transformers=2.0, vllm=0.5)))
    table = section.blocks[0]
    assert isinstance(table, Table)
    assert "fastest without speculation: vllm" in table.caption
    lines = [[entry.text for entry in row] for row in table.rows]
    assert [line[0] for line in lines] == ["native", "transformers", "vllm"] * 2
    assert [line[3] for line in lines[:3]] == ["baseline"] * 3
    over_best = [float(line[4].split("x")[0]) for line in lines]
    assert over_best[:3] == pytest.approx([0.5, 0.25, 1.0], abs=0.02)
    assert over_best[3] < over_best[5]
    # equal luck: acceptance is the pair's, not the engine's
    assert len({line[5] for line in lines[3:]}) == 1
    assert all(line[7].endswith("s") for line in lines)
    assert {line[6] for line in lines} == {"\N{EN DASH}"}  # at temperature 0 nothing is drawn
