from __future__ import annotations

import base64
import getpass
import hashlib
import json
import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from page_reader import PageReader
from report_scenes import PRIVATE_PATH, SCENES, cells_of, edit_record
from synthetic_results import add_failed_variant, write_synthetic_results

from harness.errors import ResultFormatError, StorageError
from harness.reports.build import build_report

SECTIONS = [
    "summary",
    "speedup",
    "acceptance",
    "positions",
    "tasks",
    "methods",
    "trees",
    "choosing-k",
    "pacing",
    "batches",
    "quantization",
    "engines",
    "prediction",
    "split",
    "latency",
    "cold-start",
    "capacity",
    "lossless",
    "findings",
    "failures",
    "results",
    "efficiency",
    "environment",
    "glossary",
]
ALL_SCENES = ["k_temperature", *SCENES]
DRAWN_SCENES = [scene for scene in ALL_SCENES if scene != "nothing-measured"]
Html = Callable[[str], str]


@pytest.mark.parametrize("scene", ALL_SCENES)
def test_every_scene_is_a_well_formed_page_of_sections_in_order(scene_html: Html, scene: str) -> None:
    page = PageReader(scene_html(scene))
    assert list(page.sections) == [name for name in SECTIONS if name in page.sections]
    assert {"summary", "results", "environment", "glossary"} <= set(page.sections)
    assert all(text.strip() for text in page.sections.values())
    assert len(page.ids) == len(set(page.ids))
    targets = {value[1:] for _, name, value in page.attributes if name == "href"}
    assert targets <= set(page.ids)
    assert "Left out" not in scene_html(scene)


def test_what_was_not_measured_is_named_once_with_its_command(scene_html: Html) -> None:
    html = scene_html("k_temperature")
    page = PageReader(html)
    assert not {"batches", "quantization", "engines", "failures", "capacity"} & set(page.sections)
    footer = html[html.index("<footer>") : html.index("</footer>")]
    assert "Batch size (<code>+sweep=batch</code>)" in footer
    assert "Capacity (<code>plan results/k_temperature</code>)" in footer
    assert "Failures" not in footer
    assert "By task" not in footer


@pytest.mark.parametrize("scene", ALL_SCENES)
def test_a_page_loads_nothing_and_runs_only_its_own_script(scene_html: Html, scene: str) -> None:
    html = scene_html(scene)
    page = PageReader(html)
    assert not {"link", "img", "iframe", "object", "embed", "base", "form", "image"} & set(page.tags)
    for _, name, value in page.attributes:
        if name in ("src", "srcset", "href", "xlink:href", "action", "data"):
            assert value.startswith("#")
        assert not name.startswith("on")
        assert name != "style"
    style, script = (_inside(html, tag) for tag in ("style", "script"))
    assert page.tags.count("style") == page.tags.count("script") == 1
    assert "@import" not in style
    assert "url(" not in style
    for text, directive in ((style, "style-src"), (script, "script-src")):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}';" in html
    assert all(found.startswith("#plot-") for found in re.findall(r"url\(([^)]*)\)", html))
    assert not re.search(r"https?://", html)


def test_a_default_sweep_stays_small(tmp_path: Path) -> None:
    temperatures, ks = (0.0, 0.7, 1.0), tuple(range(1, 11))
    folder = write_synthetic_results(tmp_path, "default", temperatures=temperatures, ks=ks, num_prompts=8)
    assert build_report(folder, tmp_path / "out").stat().st_size < 1_000_000


@pytest.mark.parametrize("scene", DRAWN_SCENES)
def test_every_drawing_has_a_text_alternative_and_theme_colours_only(scene_html: Html, scene: str) -> None:
    html = scene_html(scene)
    page = PageReader(html)
    plots = [svg for svg in page.svgs if svg["class"] == "plot"]
    assert all(svg["role"] == "img" and svg.get("title") for svg in page.svgs)
    assert all(svg.get("desc") for svg in plots)
    assert plots
    drawn = "".join(re.findall(r"<svg class=\"plot\".*?</svg>", html, flags=re.DOTALL))
    assert re.search(r"var\(--(series|part)-", drawn)
    assert not re.search(r"#[0-9a-f]{6}\b", re.sub(r"var\(--[\w-]+,#[0-9a-f]{6}\)", "", drawn))


def test_a_drawing_stands_beside_its_numbers(scene_html: Html) -> None:
    page = PageReader(scene_html("k_temperature"))
    assert re.search(r"temperature 0\.7\s+1\.\d\dx \[1\.\d\d, 1\.\d\d\]", page.sections["speedup"])
    assert re.search(
        r"temperature 0\s+draft model, k = 6\s+1\s+\d\d%\s+\d\d%", _plain(page.sections["positions"])
    )
    assert "extraction" in page.sections["tasks"]


def test_series_follow_the_facts_that_differ(scene_html: Html) -> None:
    methods, workloads = PageReader(scene_html("methods")), PageReader(scene_html("workloads"))
    assert {svg["title"] for svg in methods.svgs if svg["class"] == "swatch"} >= {"draft model", "n-gram"}
    assert "temperature" not in methods.sections["speedup"]
    names = {svg["title"] for svg in workloads.svgs if svg["class"] == "swatch"}
    assert {"temperature 0 · draft model", "temperature 1 · n-gram"} <= names
    panels = [svg["title"] for svg in workloads.svgs if svg["class"] == "plot"]
    assert panels.count("Decode speedup by k") == 2
    assert "code · temperature 1 · n-gram" in workloads.sections["summary"]


def test_a_single_k_is_drawn_as_dots_and_empty_sections_are_left_out(scene_html: Html) -> None:
    page = PageReader(scene_html("single"))
    titles = [svg["title"] for svg in page.svgs if svg["class"] == "plot"]
    assert "Decode speedup" in titles
    assert "Decode speedup by k" not in titles
    assert not {"tasks", "lossless", "methods", "choosing-k"} & set(page.sections)
    assert "this cell" not in page.sections["summary"]


def test_a_backend_without_steps_gets_reasons_instead_of_numbers(scene_html: Html) -> None:
    page = PageReader(scene_html("without-steps"))
    assert not {"acceptance", "positions", "prediction", "split"} & set(page.sections)
    assert "the server reports no steps" in page.sections["results"]
    assert "faster" in page.sections["summary"]


@pytest.mark.parametrize("scene", ["baseline-only", "nothing-measured"])
def test_without_speculation_there_is_nothing_to_advise(scene_html: Html, scene: str) -> None:
    page = PageReader(scene_html(scene))
    assert "nothing to compare" in page.sections["summary"]
    assert "speedup" not in page.sections
    assert "faster" not in page.sections["summary"]


def test_failures_are_shown_without_paths(scene_html: Html) -> None:
    html = scene_html("failed")
    page = PageReader(html)
    assert "1 of 2 cells failed: temperature 0." in page.sections["summary"]
    assert "No speedup could be measured in 1 more." in html
    assert 'File "harness/runner/cell.py", line 10, in run' in page.sections["failures"]
    assert 'File "torch/nn/module.py", line 5' in page.sections["failures"]
    assert "somebody" not in html
    assert "/opt/env" not in html


def test_a_failed_variant_is_named_with_its_error(tmp_path: Path) -> None:
    folder = write_synthetic_results(tmp_path, "oom", temperatures=(0.0,), ks=(2,), num_prompts=6)
    add_failed_variant(tmp_path, "oom", cells_of(folder)[0].name)
    page = PageReader(build_report(folder, tmp_path / "out").read_text())
    assert "1 of 1 cell incomplete" in page.sections["summary"]
    assert "EAGLE, k = 4" in _plain(page.sections["summary"])
    assert "3.1 GiB needed, 1.2 GiB free" in page.sections["results"]
    assert "3.1 GiB needed, 1.2 GiB free" in page.sections["failures"]


def test_hostile_texts_are_inert(scene_html: Html) -> None:
    html = scene_html("hostile")
    assert html.count("<script") == 1
    assert "<img" not in html
    assert "&lt;script&gt;alert" in html
    assert "{{ 7 * 7 }}" in html
    assert "49 " not in PageReader(html).sections["failures"]
    assert "\x00" not in html
    assert "\x1b" not in html
    assert not re.search("[\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069]", html)
    assert "characters left out" in html
    assert len(html) < 2_000_000


@pytest.mark.parametrize("scene", ["k_temperature", "failed", "hostile"])
def test_no_user_host_or_folder_reaches_the_page(scene_html: Html, scene: str, tmp_path: Path) -> None:
    html = scene_html(scene)
    assert "somebody" not in html
    assert PRIVATE_PATH not in html
    assert "secret-machine" not in html
    assert str(tmp_path.parent) not in html
    assert str(Path(__file__).parents[2]) not in html
    for name in (socket.gethostname(), getpass.getuser()):
        if name not in ("root", "localhost", "runner"):
            assert not re.search(rf"\b{re.escape(name)}\b", html)


def test_cold_start_is_apart_and_efficiency_is_shown(scene_html: Html) -> None:
    page = PageReader(scene_html("k_temperature"))
    assert "3.20 s" in page.sections["cold-start"]
    assert "3.20 s" not in page.sections["results"] + page.sections["latency"]
    assert "98%" in page.sections["efficiency"]


def test_idle_time_single_repeats_and_interruptions_are_cautioned(tmp_path: Path) -> None:
    folder = write_synthetic_results(tmp_path, "slow", temperatures=(0.0,), ks=(2,), num_prompts=6)
    cell = cells_of(folder)[0]
    edit_record(
        cell,
        lambda record: record.update(measured_wall_s=100.0, decode_wall_s=90.0, stop_reason="interrupted"),
    )
    summary = PageReader(build_report(folder, tmp_path / "out").read_text()).sections["summary"]
    assert "Less than 95% of the measured phase was spent decoding in this cell (90%)" in summary
    assert "1 of 1 cell was interrupted" in summary
    assert "measured once" not in summary


def test_differing_greedy_output_is_flagged(scene_html: Html) -> None:
    page = PageReader(scene_html("hostile"))
    assert "0 of 8" in page.sections["lossless"]
    assert "8 of 8" in page.sections["lossless"]
    assert "Greedy output differs" in page.sections["summary"]
    assert "nearly equal" in page.sections["lossless"]


def test_the_same_results_give_the_same_bytes_and_replace_the_old_page(tmp_path: Path) -> None:
    folder = write_synthetic_results(tmp_path, "same", temperatures=(0.0,), ks=(1, 2), num_prompts=6)
    first = build_report(folder, tmp_path / "out").read_bytes()
    (tmp_path / "out" / "index.html").write_text("old")
    assert build_report(folder, tmp_path / "out").read_bytes() == first
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"index.html", "report.json", "report.md"}


def test_an_unwritable_folder_is_a_storage_error(tmp_path: Path) -> None:
    folder = write_synthetic_results(tmp_path, "full", temperatures=(0.0,), ks=(1,), num_prompts=6)
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file"):
        build_report(folder, tmp_path / "file" / "out")


def test_an_empty_folder_is_a_format_error(tmp_path: Path) -> None:
    with pytest.raises(ResultFormatError):
        build_report(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_summary_answers_what_how_sure_and_why(scene_html: Html) -> None:
    text = _plain(" ".join(PageReader(scene_html("k_temperature")).sections["summary"].split()))
    places = [text.index(part) for part in ("What to do", "How sure", "Why", "Best k of each setting")]
    assert places == sorted(places)
    assert re.search(r"What to do Temperature 0: [a-z]+", text)
    assert re.search(r"lies on one side of 1 in \d of 2 settings", text)
    assert re.search(r"Intervals reach \d+%( to \d+%)? to either side, from 8 prompts", text)
    assert re.search(r"\d+%( to \d+%)? of the drafted tokens are accepted, so that a forward", text)
    assert "faster where the whole 95% interval of the speedup lies above 1" in text


def test_methods_stand_side_by_side(scene_html: Html) -> None:
    page = PageReader(scene_html("methods"))
    assert "methods" not in PageReader(scene_html("k_temperature")).sections
    text = _plain(" ".join(page.sections["methods"].split()))
    assert re.search(r"draft model \d+ \d[\d.]*x \[", text)
    assert re.search(r"n-gram \d+ \d[\d.]*x \[", text)


def test_a_plan_beside_the_page_is_quoted_and_linked(tmp_path: Path) -> None:
    folder = write_synthetic_results(tmp_path, "planned", temperatures=(0.0,), ks=(1,), num_prompts=6)
    out = tmp_path / "out"
    out.mkdir()
    plan = {"format_version": 1, "configurations": [{"label": "this <b>", "advice": "Run 3 replicas."}]}
    (out / "plan.json").write_text(json.dumps(plan))
    assert "capacity" not in PageReader(build_report(folder, out).read_text()).sections
    (out / "plan.html").write_text("")
    html = build_report(folder, out).read_text()
    assert "Run 3 replicas." in PageReader(html).sections["capacity"]
    assert '<a href="plan.html">the plan</a>' in html
    assert "this &lt;b&gt;" in html
    (out / "plan.json").write_text("{broken")
    assert "capacity" not in PageReader(build_report(folder, out).read_text()).sections


def _inside(html: str, tag: str) -> str:
    return html[html.index(f"<{tag}>") + len(tag) + 2 : html.index(f"</{tag}>")]


def _plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")
