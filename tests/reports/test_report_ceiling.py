from __future__ import annotations

from pathlib import Path
from typing import Any

from page_reader import PageReader
from report_scenes import cells_of, edit_observations, edit_record
from synthetic_results import write_synthetic_results

from harness.reports.build import build_report

ADAPTIVE = "draft_model-adaptive-k3"


def adaptive_sweep(root: Path) -> Path:
    """One cell: fixed k of 1, 2 and 4, and an adaptive variant with what k=3 measured."""
    folder = write_synthetic_results(root, "adaptive", temperatures=(0.0,), ks=(1, 2, 3, 4), num_prompts=8)

    def change(record: dict[str, Any]) -> None:
        for variant in record["variants"]:
            if variant["variant_id"] == "draft_model-k3":
                variant |= {"method": "draft_model adaptive", "variant_id": ADAPTIVE}
                variant["options"] = {"adaptive": True}

    (cell,) = cells_of(folder)
    edit_record(cell, change)
    names = {"draft_model-k3": ADAPTIVE}
    edit_observations(cell, lambda row: row | {"variant_id": names.get(row["variant_id"], row["variant_id"])})
    return folder


def test_the_ceiling_stands_beside_fixed_and_adaptive_k(tmp_path: Path) -> None:
    page = PageReader(build_report(adaptive_sweep(tmp_path), tmp_path / "reports").read_text())
    section = page.sections["choosing-k"]
    assert "Speedup by how k is chosen" in section
    # k=3 drafts three tokens at every step
    pacing = page.sections["pacing"]
    assert "draft model adaptive" in pacing
    assert "Mean number of tokens drafted per step" in pacing
    assert "3.00" in pacing


def test_one_k_leaves_the_section_out(tmp_path: Path) -> None:
    folder = write_synthetic_results(tmp_path, temperatures=(0.0,), ks=(2,), num_prompts=4)
    page = PageReader(build_report(folder, tmp_path / "reports").read_text())
    assert "choosing-k" not in page.sections
