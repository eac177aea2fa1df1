# ruff: noqa: RUF001
from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from page_reader import PageReader
from report_scenes import all_failed, cells_of, edit_record, method_sweep
from sentences import blanks, texts
from synthetic_results import write_synthetic_results

import harness.findings
from harness.__main__ import main
from harness.config.schema import HarnessConfig
from harness.config.validate import validate
from harness.errors import ConfigError
from harness.findings import RULES, Confidence
from harness.records import Status
from harness.reports import svg
from harness.reports.build import build_report
from harness.reports.language import catalogue, language, retold, say, speaking
from harness.reports.runs import METRICS
from harness.reports.trend import _METRICS as TREND_METRICS
from harness.verdicts import LosslessVerdict

ENGLISH_ENDINGS = {"s", "verb", "stand", "replica_word"}
"""Blanks that hold what only English inflects."""
SAID_BY_VALUE = {
    *Status,
    *Confidence,
    *LosslessVerdict,
    *("max time", "max repeats", "precision", "interrupted"),
    *("yes", "no"),
    *(title.lower() for title, _ in METRICS.values()),
    *(metric.title.lower() for metric in TREND_METRICS),
    *(text for rule in RULES for text in (rule.title, rule.threshold, rule.next_step)),
}
"""Texts that are looked up by a value, so that the sources don't show them where they are said."""
ENGLISH_SENTENCE = re.compile(r"(?:[A-Za-z][a-z']+[ ,;:]+){3}[A-Za-z][a-z']+")


@pytest.fixture(scope="module")
def chinese(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a Chinese report of two methods over several k."""
    root = tmp_path_factory.mktemp("chinese")
    with speaking("zh"):
        build_report(method_sweep(root), root / "out")
    return root / "out"


@pytest.fixture(scope="module")
def document(chinese: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((chinese / "report.json").read_text())
    return found


def test_every_text_has_a_translation_with_its_blanks() -> None:
    chinese = catalogue("zh")
    needed = {text: {"by value"} for text in SAID_BY_VALUE} | texts()
    assert {text: places for text, places in needed.items() if text not in chinese} == {}
    for english, translation in chinese.items():
        assert blanks(translation) <= blanks(english), english
        assert blanks(english) - blanks(translation) <= ENGLISH_ENDINGS, english


def test_no_translation_is_left_over() -> None:
    assert set(catalogue("zh")) - set(texts()) - SAID_BY_VALUE == set()


def test_the_scan_of_the_sources_sees_every_way_to_say_something() -> None:
    """One text each: said in place, by a constant, from a mapping, a column, a loop, a template."""
    found = texts()
    for text in (
        "Use {k}",
        "At the best k of each setting",
        "import of the backend",
        "slower than plain decoding",
        "accepted per draft",
        "first differing token",
        "Recommended k",
        "Download CSV",
    ):
        assert text in found


def _sighted() -> Iterator[str]:
    """Sentences as rules write them, every blank filled."""
    for path in Path(harness.findings.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            targets = [ast.unparse(target) for target in node.targets] if isinstance(node, ast.Assign) else []
            if targets == ["text"] and isinstance(node.value, ast.JoinedStr):
                parts = node.value.values
                text = "".join(part.value if isinstance(part, ast.Constant) else "7" for part in parts)
                if re.search("[a-z]{2} ", text) and "error" not in ast.unparse(node.value):
                    yield text


def test_sentences_of_the_rules_are_recognised() -> None:
    sentences = list(_sighted())
    assert len(sentences) > 15
    with speaking("zh"):
        assert [
            text for text in sentences if ENGLISH_SENTENCE.search(retold(text)) or retold(text) == text
        ] == []
        told = retold("alpha is 12% [10%, 14%] at temperature 1, 60% [55%, 65%] at temperature 0.")
    assert told == "温度 1 时 alpha 为 12% [10%, 14%]，温度 0 时为 60% [55%, 65%]。"
    assert retold("alpha is 12%.") == "alpha is 12%."


def _sentences_of(document: dict[str, Any]) -> Iterator[str]:
    """What the page says in its own words: neither facts nor texts of the results."""
    yield from (document["title"], document["headline"])
    for section in document["sections"]:
        yield from (section["title"], section["lead"], section["omitted"])
        for block in section["blocks"]:
            yield from (block.get(name, "") for name in ("title", "heading", "caption"))
            if block["kind"] == "decision":
                yield from [*block["items"], *(text for told in block["items"].values() for text in told)]
            if block["kind"] == "bullets":
                yield from block["items"]
            if block["kind"] == "prose":
                yield block["text"]
            if block["kind"] == "notice":
                yield from [*block["places"], *block["facts"], *block["facts"].values()]
            if section["id"] == "glossary":
                yield from [*block["items"], *block["items"].values()]
            for table in (block, block.get("table", {})):
                yield table.get("caption", "")
                for column in table.get("columns", ()):
                    yield from (column["name"], column["hint"])


def test_a_chinese_page_says_nothing_in_english(document: dict[str, Any]) -> None:
    told = [text for text in _sentences_of(document) if text]
    assert [text for text in told if ENGLISH_SENTENCE.search(text)] == []
    assert [text for text in told if len(text) > 15 and not re.search("[一-鿿]", text)] == []


def test_the_page_around_the_sections_is_chinese_too(chinese: Path) -> None:
    html = (chinese / "index.html").read_text()
    assert '<html lang="zh-Hans">' in html
    assert '"PingFang SC"' in html
    visible = re.sub(r"<(style|script|svg|main|pre)\b.*?</\1>", "", html, flags=re.DOTALL)
    outside = re.sub(r"<[^>]*>", "\n", visible)
    assert ENGLISH_SENTENCE.search(outside.replace("python -m harness", "")) is None
    assert PageReader(html).sections


def test_drawings_are_labelled_and_told_in_chinese(chinese: Path) -> None:
    html = (chinese / "index.html").read_text()
    labels = re.findall(r"<text[^>]*>([^<]*)</text>", html)
    assert {"k，每步草稿 token 数", "解码加速比", "草稿模型，k = 1".replace(" = ", "\xa0=\xa0")} <= set(
        labels
    )
    assert [label for label in labels if ENGLISH_SENTENCE.search(label)] == []
    descriptions = [one["desc"] for one in PageReader(html).svgs if "desc" in one]
    assert descriptions
    assert all(text.endswith("数值见图下的表格。") for text in descriptions)


def test_markdown_is_the_same_page(chinese: Path, document: dict[str, Any]) -> None:
    markdown = (chinese / "report.md").read_text()
    assert markdown.startswith("# 投机解码：")
    assert all(
        f"## {section['title']}" in markdown for section in document["sections"] if not section["omitted"]
    )


def test_every_number_is_the_same_in_both_languages(document: dict[str, Any], tmp_path: Path) -> None:
    """Words differ; numbers, their units and their order don't."""
    folder = method_sweep(tmp_path)
    build_report(folder, tmp_path / "out")
    english = json.loads((tmp_path / "out" / "report.json").read_text())
    assert english["headline"].startswith("Speculation pays in all 2 settings")
    assert list(_numbers(document)) == list(_numbers(english))
    assert sum(map(len, _numbers(english))) > 300


def _numbers(document: dict[str, Any]) -> Iterator[list[str]]:
    """Row by row, what the columns of numbers hold."""
    for section in document["sections"]:
        for block in section["blocks"]:
            for table in (block, block.get("table", {})):
                numeric = [column["numeric"] for column in table.get("columns", ())]
                for row in table.get("rows", ()):
                    texts = [text for text, is_number in zip(row, numeric, strict=True) if is_number]
                    yield re.findall(r"[\d.,]+(?:[x%]|\xa0?[kMG]iB)?", " ".join(texts))


def test_the_language_holds_for_its_block_alone() -> None:
    with speaking("zh"):
        assert say("Use {k}", k=3) == "使用 3"
        with speaking("en"):
            assert say("Use {k}", k=3) == "Use 3"
    assert language() == "en"
    assert say("Use {k}", k="{k}") == "Use {k}"


def test_what_has_no_translation_stays() -> None:
    with speaking("zh"):
        assert say("my workload") == "my workload"
        assert say("{name} as it is", name="x") == "x as it is"


def test_wide_labels_are_cut_by_their_width() -> None:
    assert len(svg.label("x" * 40)) == 34
    cut = svg.label("草" * 40)
    assert cut.count("草") == 16
    assert cut.endswith("…")


def test_room_is_left_for_wide_labels() -> None:
    """Sixteen full-width characters of 9 pt are 144 pt wide: the axes begin to their right."""
    figure = svg.new_figure(5.0, 2.0)
    axes = figure.axes[0]
    axes.set_yticks([0, 1], [svg.label("草" * 16), svg.label("稿")])
    drawn = svg.inline(figure, "wide", title="", description="")
    assert axes.get_window_extent().x0 * 72 / figure.dpi >= 16 * 9
    assert ">" + "草" * 16 + "<" in drawn


def _findings(root: Path) -> Path:
    """A disturbed machine, hot sampling and everything measured once."""
    folder = write_synthetic_results(
        root, "found", temperatures=(0.0, 1.0), ks=(2,), num_prompts=4, num_repeats=1
    )
    machine = {"other_cpu_share": 0.4, "swapped_bytes": 2**30, "steal_share": 0.3}
    for cell in cells_of(folder):
        edit_record(cell, lambda record: record["environment"].update(while_measuring=machine))
    return folder


def _tree(root: Path) -> Path:
    """A tree, an adaptive k and a chain."""
    folder = write_synthetic_results(root, "tree", temperatures=(0.0,), ks=(1, 2, 3), num_prompts=4)
    (cell,) = cells_of(folder)

    def edit(record: dict[str, Any]) -> None:
        tree, adaptive = record["variants"][2:4]
        tree |= {"method": "draft_model tree3", "k": 1, "options": {"tree_parents": [0, 0, 1]}}
        adaptive |= {"method": "draft_model adaptive", "lossless": False}

    edit_record(cell, edit)
    return folder


@pytest.mark.parametrize("written", [_findings, _tree, all_failed])
def test_pages_of_other_sweeps_say_nothing_in_english(
    written: Callable[[Path], Path], tmp_path: Path
) -> None:
    with speaking("zh"):
        build_report(written(tmp_path), tmp_path / "out")
    found = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [text for text in _sentences_of(found) if ENGLISH_SENTENCE.search(text)] == []


def test_a_page_of_many_cells_says_nothing_in_english(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.reports.sweep.MOST_CELLS", 2)
    monkeypatch.setattr("harness.reports.sweep.NUM_SHOWN", 2)
    folder = write_synthetic_results(
        tmp_path, temperatures=(0.0, 0.5, 1.0), ks=(1,), num_prompts=4, num_repeats=1
    )
    with speaking("zh"):
        build_report(folder, tmp_path / "out")
    found = json.loads((tmp_path / "out" / "report.json").read_text())
    told = [re.sub("：[a-z_, ]+。", "", text) for text in _sentences_of(found)]  # names of files
    assert any("3 个单元中的 2 个" in text for text in told)
    assert [text for text in told if ENGLISH_SENTENCE.search(text)] == []


def test_runs_and_trends_say_nothing_in_english(tmp_path: Path) -> None:
    runs = [
        write_synthetic_results(tmp_path, name, temperatures=(0.0,), ks=(2,), num_prompts=4)
        for name in ("one", "two")
    ]
    for command in ("report", "trend"):
        out = tmp_path / command
        assert main([command, *map(str, runs), "--out", str(out), "--language", "zh"]) == 0
        found = json.loads((out / "report.json").read_text())
        assert re.search("[一-鿿]", found["headline"])
        told = [text.replace("python -m harness compare", "") for text in _sentences_of(found)]
        assert [text for text in told if ENGLISH_SENTENCE.search(text)] == []


@pytest.mark.parametrize("command", ["report", "plan", "trend"])
def test_a_command_refuses_an_unknown_language(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, str(tmp_path), "--language", "klingon"]) == 2
    told = capsys.readouterr().err
    assert "--language: isn't known, got 'klingon'" in told
    assert "Known: en, zh." in told


def test_a_run_refuses_an_unknown_language() -> None:
    with pytest.raises(ConfigError, match=r"report_language: isn't known, got 'chinese'.*Known: en, zh"):
        validate(HarnessConfig(report_language="chinese"))


def test_a_report_can_be_asked_for_in_chinese(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = method_sweep(tmp_path)
    assert main(["report", str(folder), "--out", str(tmp_path / "out"), "--language", "zh"]) == 0
    assert '<html lang="zh-Hans">' in (tmp_path / "out" / "index.html").read_text()
    assert "best k" in capsys.readouterr().out
