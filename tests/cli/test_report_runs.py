from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "reports"))

from page_reader import PageReader
from report_scenes import cells_of, edit_record
from synthetic_results import Truth, write_synthetic_results

from harness.__main__ import main
from harness.results import load
from harness.results.digest import DIGEST_FILE


def run_of(root: Path, name: str, *, temperature: float = 0.0, slowdown: float = 1.0) -> Path:
    truth = Truth(luck=7, slowdown={"draft_model-k3": slowdown})
    return write_synthetic_results(
        root, name, temperatures=(temperature,), ks=(1, 3), num_prompts=8, num_repeats=1, truth=truth
    )


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_of(tmp_path_factory.mktemp("before"), "before")


def report(tmp_path: Path, *runs: Path) -> dict[str, dict[str, object]]:
    """Sections of the page's JSON twin by id."""
    assert main(["report", *map(str, runs), "--out", str(tmp_path / "out")]) == 0
    assert PageReader((tmp_path / "out" / "index.html").read_text()).sections
    document = json.loads((tmp_path / "out" / "report.json").read_text())
    return {"page": document, **{section["id"]: section for section in document["sections"]}}


def lines(section: dict[str, object]) -> dict[str, list[str]]:
    (table,) = section["blocks"]
    return {row[0].replace("\N{NO-BREAK SPACE}", " "): row[1:] for row in table["rows"]}


def test_a_slower_variant_is_told_from_an_equal_one(before: Path, tmp_path: Path) -> None:
    after = run_of(tmp_path, "after", slowdown=1.3)
    found = report(tmp_path, before, after)
    speedups = lines(found["speedup"])
    figures = [
        load(path).summary().set_index("variant_id").loc["draft_model-k3", "speedup"]
        for path in (before, after)
    ]
    assert [text.split("x")[0] for text in speedups["draft model, k = 3"][:2]] == [
        f"{x:.2f}" for x in figures
    ]
    change = speedups["draft model, k = 3"][2]
    assert float(change.split("%")[0]) == pytest.approx(100 * (figures[1] / figures[0] - 1), abs=0.06)
    assert {"row": 2, "column": 3, "tone": "costs"} in found["speedup"]["blocks"][0]["tones"]
    # the same tokens were drafted and accepted
    assert lines(found["acceptance_rate"])["draft model, k = 3"][2].startswith("+0.0 pt")
    assert "1 fell" in found["page"]["headline"]


def test_changes_between_machines_are_left_out_with_the_reason(before: Path, tmp_path: Path) -> None:
    after = run_of(tmp_path, "elsewhere")
    (cell,) = cells_of(after)
    edit_record(cell, lambda record: record["environment"].update(cpu="another"))
    found = report(tmp_path, before, after)
    rates, speedups = lines(found["decode_tok_per_s"]), lines(found["speedup"])
    assert all(row[2] == "\N{EN DASH}" for row in rates.values())
    assert all(row[1] != "\N{EN DASH}" for row in rates.values())
    assert "%" in speedups["draft model, k = 3"][2]
    reasons = [row[1] for row in found["not-compared"]["blocks"][0]["rows"]]
    assert any("cpu (synthetic -> another)" in reason for reason in reasons)
    warnings = [text for block in found["runs"]["blocks"] for text in block["items"] if block.get("tone")]
    assert any("cpu" in text for text in warnings)


def test_other_settings_stand_beside_each_other_without_a_change(before: Path, tmp_path: Path) -> None:
    hot = run_of(tmp_path, "hot", temperature=0.7)
    same = run_of(tmp_path, "same")
    found = report(tmp_path, before, hot, same)
    (table,) = found["speedup"]["blocks"]
    assert [column["name"] for column in table["columns"]][2:] == [
        "before", "hot", "same", "hot, change", "same, change"
    ]  # fmt: skip
    assert len(table["rows"]) == 6
    for cell, _, first, other, third, to_other, to_third in table["rows"]:
        is_hot = "0.7" in cell
        assert (first == "\N{EN DASH}", other == "\N{EN DASH}") == (is_hot, not is_hot)
        assert to_other == "\N{EN DASH}"
        assert (third == "\N{EN DASH}") is is_hot
        assert (to_third == "\N{EN DASH}") is (is_hot or "no speculation" in _)
    reasons = [row[1] for row in found["not-compared"]["blocks"][0]["rows"]]
    assert any("temperature" in reason for reason in reasons)


def test_derived_tables_are_kept_only_when_asked(tmp_path: Path) -> None:
    run = run_of(tmp_path, "run")
    command = ["report", str(run), "--out", str(tmp_path / "out")]
    assert main(command) == 0
    assert not list(run.rglob(DIGEST_FILE))
    assert main([*command, "--keep"]) == 0
    assert load(run).stored[0].digest is not None
