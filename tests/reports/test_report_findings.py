from __future__ import annotations

from pathlib import Path
from typing import Any

from page_reader import PageReader
from report_scenes import HOSTILE, cells_of, edit_record, set_facts
from synthetic_results import Truth, write_synthetic_results

from harness.reports.build import build_report
from harness.reports.labels import cell_labels, varying_facts
from harness.reports.sweep import Sweep
from harness.reports.terminal import summary_table
from harness.results import load

BUSY = {"other_cpu_share": 0.4, "swapped_bytes": 2**30}


def written(root: Path, *, temperatures: tuple[float, ...] = (0.0,), alpha_shift: float = 0.0) -> Path:
    truth = Truth(alpha_shift=alpha_shift)
    return write_synthetic_results(
        root, "found", temperatures=temperatures, ks=(2,), num_prompts=8, num_repeats=1, truth=truth
    )


def disturb(folder: Path, **machine: Any) -> None:
    for cell in cells_of(folder):
        edit_record(cell, lambda record: record["environment"].update(while_measuring=BUSY | machine))


def page_of(folder: Path, tmp_path: Path) -> PageReader:
    return PageReader(build_report(folder, tmp_path / "out").read_text())


def plain(text: str) -> str:
    return " ".join(text.split())


def test_a_finding_has_evidence_threshold_confidence_and_next_step(tmp_path: Path) -> None:
    folder = written(tmp_path)
    disturb(folder)
    page = page_of(folder, tmp_path)
    text = plain(page.sections["findings"])
    assert text.index("About the measurement") < text.index("Other processes used the CPU")
    assert "They took 40% of all cores' time. (counted)" in text
    assert "Threshold" in text
    assert "more than 10% of the machine's CPU time" in text
    assert "Next step" in text
    assert "Stop them, or give the measurement cores of its own." in text
    assert "1024 MiB went in or out" in text
    summary = plain(page.sections["summary"])
    assert "Other processes used the CPU." in summary
    assert "The machine swapped." in summary


def test_findings_of_several_cells_stand_under_one_heading(tmp_path: Path) -> None:
    folder = written(tmp_path, temperatures=(0.0, 1.0), alpha_shift=-0.5)
    disturb(folder)
    text = plain(page_of(folder, tmp_path).sections["findings"])
    assert text.count("Other processes used the CPU") == 1
    assert "temperature 0: they took 40%" in text
    assert "temperature 1: they took 40%" in text
    assert "temperature 1 · draft model, k = 2: alpha is" in text
    assert text.index("About speculation") < text.index("About the measurement")


def test_the_terminal_gets_a_line(tmp_path: Path) -> None:
    folder = written(tmp_path, alpha_shift=-0.5)
    disturb(folder)
    lines = summary_table(load(folder)).splitlines()
    (line,) = [line for line in lines if "finding" in line]
    assert "other processes used the CPU" in line
    assert line.startswith(f"{len({f.rule.name for f in Sweep(load(folder)).findings})} findings: ")


def test_hostile_texts_stay_texts(tmp_path: Path) -> None:
    folder = written(tmp_path)
    disturb(folder, gpu_throttle_reason=HOSTILE)
    html = build_report(folder, tmp_path / "out").read_text()
    assert "<script>alert" not in html
    assert "\x1b" not in html
    assert "The clock was throttled" in html


def test_what_was_simulated_says_so(tmp_path: Path) -> None:
    folder = written(tmp_path)
    assert "imulated" not in page_of(folder, tmp_path).sections["summary"]
    set_facts(cells_of(folder)[0], device="no device")
    html = build_report(folder, tmp_path / "out").read_text()
    assert "Simulated, not measured." in html
    assert "Simulated: no model ran." in PageReader(html).sections["summary"]
    assert "simulated: no model ran." in summary_table(load(folder)).splitlines()


def test_forced_acceptance_says_so(tmp_path: Path) -> None:
    folder = written(tmp_path)

    def force(record: dict[str, Any]) -> None:
        record["variants"][1] |= {"method": "synthetic", "lossless": False}

    edit_record(cells_of(folder)[0], force)
    page = page_of(folder, tmp_path)
    assert "Acceptance was forced, not earned" in page.sections["summary"]
    assert "synthetic acceptance" in page.sections["results"]


def test_cells_that_differ_in_a_nested_setting_are_told_apart_by_it() -> None:
    cells = [
        {
            "cell_id": f"{n}" * 16,
            "temperature": 0.0,
            "simulator.draft_model.alpha": alpha,
            "simulator.seed": 1,
        }
        for n, alpha in enumerate((0.5, 0.8))
    ]
    assert varying_facts(cells) == ["simulator.draft_model.alpha"]
    assert list(cell_labels(cells).values()) == ["draft model alpha 0.5", "draft model alpha 0.8"]
    # what has a name of its own comes first, and suffices
    hot = [cell | {"temperature": float(n)} for n, cell in enumerate(cells)]
    assert varying_facts(hot) == ["temperature"]
