from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from page_reader import PageReader
from report_scenes import cells_of, set_facts
from simulated_cells import measured, simulated
from synthetic_results import write_synthetic_results

from harness.reports.batches import Course, courses
from harness.reports.build import build_report
from harness.reports.svg import Style
from harness.reports.sweep import Sweep
from harness.results import load


def course(*intervals: tuple[float, float]) -> Course:
    rows = tuple(
        {"is_baseline": False, "batch_size": 2**place, "speedup_low": low, "speedup_high": high}
        for place, (low, high) in enumerate(intervals)
    )
    return Course("", "k = 4", Style(0), rows)


@pytest.mark.parametrize(
    ("intervals", "batch"),
    [
        ([(1.5, 1.7), (1.1, 1.3), (0.7, 0.9)], 4),
        ([(1.5, 1.7), (0.8, 0.95), (0.7, 0.9)], 2),
        ([(0.5, 0.7)], 1),
        # the interval still reaches 1
        ([(1.5, 1.7), (0.8, 1.01)], None),
        # it dips below 1 and comes back: no crossing
        ([(0.8, 0.9), (1.1, 1.2)], None),
    ],
)
def test_the_crossing_is_where_the_whole_interval_falls_below_one(
    intervals: list[tuple[float, float]], batch: int | None
) -> None:
    found = course(*intervals).crossing
    assert (None if found is None else found["batch_size"]) == batch


@pytest.fixture(scope="module")
def batch_sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Verifying a drafted token costs an eighth of a step, however large the batch: speedups fall."""
    cells = [
        simulated(
            batch_size=batch,
            method__k=3,
            workload__name="all_tasks",
            workload__num_prompts=32,
            simulator__verify_slope=0.125,
            simulator__batch_slope=0.0,
            simulator__prompt_spread=0.1,
        )
        for batch in (1, 4, 16)
    ]
    return measured(tmp_path_factory.mktemp("batches"), *cells).path


def test_a_batch_sweep_says_where_speculation_stops_paying(batch_sweep: Path, tmp_path: Path) -> None:
    text = PageReader(build_report(batch_sweep, tmp_path).read_text()).sections["batches"]
    assert "faster at batch 1; from batch 4 on it costs" in text
    assert "Speedup by batch size" in text
    assert "Throughput against latency" in text


def test_the_courses_are_the_results_own_figures(batch_sweep: Path) -> None:
    results = load(batch_sweep)
    baseline, drafting = courses(Sweep(results))
    assert baseline.is_baseline
    assert [row["batch_size"] for row in drafting.rows] == [1, 4, 16]
    speedups = [float(row["speedup"]) for row in drafting.rows]
    assert speedups == sorted(speedups, reverse=True)
    # no cost of a further sequence: a batch of 16 gives sixteen times the tokens per step
    first, last = baseline.rows[0]["decode_tok_per_s"], baseline.rows[-1]["decode_tok_per_s"]
    assert float(last) / float(first) == pytest.approx(16, rel=0.1)


def test_a_quantisation_sweep_sets_cost_beside_gain(tmp_path: Path) -> None:
    folder = write_synthetic_results(tmp_path, "formats", temperatures=(0.0, 0.7), ks=(1, 3), num_prompts=6)
    quality: dict[str, Any] = {"perplexity_change": 0.0123, "greedy_agreement": 0.97}
    formats = [("none", {}), ("int4", quality)]
    for cell, (scheme, facts) in zip(cells_of(folder), formats, strict=True):
        set_facts(cell, temperature=0.0, target_quantization=scheme, target_weight_bytes=2**27, quality=facts)
    text = PageReader(build_report(folder, tmp_path / "out").read_text()).sections["quantization"]
    words = " ".join(text.split())
    assert "+1.23%" in words
    assert "97%" in words
    assert "128 MiB" in words
    assert "none none draft model" in words
    assert "int4 none draft model" in words
