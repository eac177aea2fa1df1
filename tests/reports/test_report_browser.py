"""The page in a real browser: what scripts add, what stays without them, and that nothing leaves the page."""

from __future__ import annotations

import base64
import csv
import io
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from chromium import Browser, Tab, chromium_path

from harness.reports.blocks import Column, Page, Section, Table, entry
from harness.reports.html import render

Scene = Callable[[str], Path]
TAB, ARROW_RIGHT, ARROW_LEFT = ("Tab", 9), ("ArrowRight", 39), ("ArrowLeft", 37)
COLUMN = """((table, column) => [...document.querySelectorAll(table)[0].tBodies[0].rows]
    .filter((row) => !row.hidden).map((row) => row.cells[column].textContent.trim()))"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    path = chromium_path()
    if path is None:
        pytest.skip("no Chromium on the PATH: the page isn't opened in a browser (apt-get install chromium)")
    found = Browser(path, tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


@pytest.fixture
def tab(browser: Browser) -> Iterator[Tab]:
    found = Tab(browser)
    yield found
    found.close()


@pytest.fixture(scope="module")
def scene(scene_html: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> Scene:
    folder = tmp_path_factory.mktemp("scenes")

    def write(name: str) -> Path:
        path = folder / f"{name}.html"
        path.write_text(scene_html(name), encoding="utf-8")
        return path

    return write


def table_page(rows: list[list[str]], *, numeric: bool = False) -> str:
    columns = [Column("name", numeric=False), Column("value", numeric=numeric)]
    table = Table("A table", columns, [[entry(text) for text in row] for row in rows])
    return render(Page("Title", "", "", [Section("s", "S", blocks=[table])]))


@pytest.mark.parametrize("width", [360, 1600])
@pytest.mark.parametrize("name", ["k_temperature", "workloads", "hostile"])
def test_a_page_opens_quietly_and_fits_its_window(tab: Tab, scene: Scene, name: str, width: int) -> None:
    url = scene(name).as_uri()
    tab.open(url, width=width)
    tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true })")
    assert tab.errors == []
    assert tab.requests == [url]
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.evaluate("document.querySelectorAll('.tools').length") > 5
    assert tab.evaluate("document.title") != "hacked"


def test_a_column_sorts_down_up_and_back(tab: Tab, scene: Scene) -> None:
    tab.open(scene("k_temperature").as_uri())
    headers = "[...document.querySelectorAll('#results thead th')]"
    header = f"{headers}.find((one) => one.innerText === 'decode tok/s')"
    read = (
        "[...document.querySelector('#results table').tBodies[0].rows]"
        f".map((row) => Number(row.cells[{header}.cellIndex].dataset.v))"
    )
    before = tab.evaluate(read)
    seen = []
    for _ in range(3):
        tab.evaluate(f"{header}.querySelector('button').click()")
        seen.append((tab.evaluate(f"{header}.getAttribute('aria-sort')"), tab.evaluate(read)))
    assert len(before) == 10
    assert before != sorted(before)
    assert seen == [
        ("descending", sorted(before, reverse=True)),
        ("ascending", sorted(before)),
        (None, before),
    ]


def test_units_sort_by_size_and_missing_values_come_last(tab: Tab, tmp_path: Path) -> None:
    values = ["90 ms", "\N{EN DASH}", "1.20 s", "2.0 min", "5.0 us"]
    file = tmp_path / "units.html"
    file.write_text(table_page([[str(i), text] for i, text in enumerate(values)], numeric=True))
    tab.open(file.as_uri())
    button = "document.querySelectorAll('thead button')[1]"
    tab.evaluate(f"{button}.click()")
    assert tab.evaluate(f"{COLUMN}('table', 1)") == ["2.0 min", "1.20 s", "90 ms", "5.0 us", "\N{EN DASH}"]
    tab.evaluate(f"{button}.click()")
    assert tab.evaluate(f"{COLUMN}('table', 1)") == ["5.0 us", "90 ms", "1.20 s", "2.0 min", "\N{EN DASH}"]


def test_a_filter_keeps_rows_with_all_words_and_the_csv_has_only_those(tab: Tab, scene: Scene) -> None:
    tab.open(scene("k_temperature").as_uri())
    tab.evaluate(
        "(() => { const input = document.querySelector('#results .tools input'); "
        "input.value = '\"Temperature 0.7\" \"K = 4\"'; input.dispatchEvent(new Event('input')) })()"
    )
    kept = tab.evaluate(f"{COLUMN}('#results table', 1)")
    assert [text.replace("\N{NO-BREAK SPACE}", " ") for text in kept] == ["draft model, k = 4"]
    assert tab.evaluate("document.querySelector('#results output').value") == "1 of 10 rows"
    text = tab.evaluate("csvOf(document.querySelector('#results table'))")
    rows = list(csv.reader(io.StringIO(text)))
    assert len(rows) == 2
    assert rows[0][:2] == ["cell", "variant"]
    assert rows[1][0] == "temperature 0.7"


def test_formulas_leave_as_text_and_numbers_as_numbers(tab: Tab, tmp_path: Path) -> None:
    texts = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", '"quoted", and\tmore', "-3.1%", "+1.25x", "-4"]
    file = tmp_path / "formulas.html"
    file.write_text(table_page([[str(i), text] for i, text in enumerate(texts)]))
    tab.open(file.as_uri())
    rows = list(csv.reader(io.StringIO(tab.evaluate("csvOf(document.querySelector('table'))"))))
    assert [row[1] for row in rows[1:]] == [*(f"'{text}" for text in texts[:4]), *texts[4:]]


def test_a_table_is_downloaded_as_a_file(browser: Browser, tab: Tab, scene: Scene, tmp_path: Path) -> None:
    browser.command("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    tab.open(scene("k_temperature").as_uri())
    tab.evaluate("document.querySelector('#summary .tools button').click()")
    found: list[Path] = []
    deadline = time.monotonic() + 20
    while not found and time.monotonic() < deadline:
        time.sleep(0.05)
        found = list(tmp_path.glob("*.csv"))
    (file,) = found
    assert file.name == "Speculative-decoding-k-temperature-Best-k-of-each-setting.csv"
    rows = list(csv.reader(io.StringIO(file.read_bytes().decode("utf-8-sig"))))
    assert [row[0] for row in rows] == ["setting", "temperature 0", "temperature 0.7"]


def test_the_theme_is_switched_and_remembered(tab: Tab, scene: Scene) -> None:
    url, colour = scene("k_temperature").as_uri(), "getComputedStyle(document.body).backgroundColor"
    tab.open(url)
    assert tab.evaluate(colour) == "rgb(252, 252, 251)"
    tab.evaluate("document.querySelector('.theme [value=dark]').click()")
    assert tab.evaluate(colour) == "rgb(20, 22, 26)"
    tab.open(url)
    assert tab.evaluate(colour) == "rgb(20, 22, 26)"
    assert tab.evaluate("document.querySelector('.theme [value=dark]').checked")
    tab.evaluate("document.querySelector('.theme [value=auto]').click()")
    assert tab.evaluate(colour) == "rgb(252, 252, 251)"
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    tab.command("Emulation.setEmulatedMedia", features=dark)
    assert tab.evaluate(colour) == "rgb(20, 22, 26)"


def test_the_theme_works_without_storage(tab: Tab, tmp_path: Path) -> None:
    text = table_page([["a", "1"], ["b", "2"]])
    tab.open(f"data:text/html;base64,{base64.b64encode(text.encode()).decode()}")
    tab.evaluate("document.querySelector('.theme [value=dark]').click()")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 22, 26)"
    assert tab.errors == []


def test_marks_tell_their_values_to_the_mouse_and_to_the_arrow_keys(tab: Tab, scene: Scene) -> None:
    tab.open(scene("k_temperature").as_uri())
    tip = "document.querySelector('#speedup .tip').textContent"
    row = tab.evaluate(f"{COLUMN}('#speedup table', 2)")  # k = 2
    tab.point_at("#speedup .point")
    assert tab.evaluate(tip) != ""
    tab.command("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
    assert tab.evaluate(tip) == ""
    tab.evaluate("document.querySelector('#speedup svg.plot').focus()")
    for key in (ARROW_RIGHT, ARROW_RIGHT):
        tab.press(*key)
    assert tab.evaluate(tip) == f"temperature 0, k 2: {row[0]}"
    tab.press(*ARROW_LEFT)
    assert tab.evaluate(tip).startswith("temperature 0, k 1: ")


def test_the_first_key_offers_to_skip_to_the_content(tab: Tab, scene: Scene) -> None:
    tab.open(scene("k_temperature").as_uri())
    tab.press(*TAB)
    assert tab.evaluate("[document.activeElement.className, document.activeElement.hash]") == [
        "skip",
        "#main",
    ]
    assert tab.evaluate("document.activeElement.getBoundingClientRect().left") == 0


def test_the_contents_stay_in_sight_and_say_where_the_reader_is(tab: Tab, scene: Scene) -> None:
    for width in (360, 1600):
        tab.open(scene("k_temperature").as_uri(), width=width)
        tab.evaluate("document.querySelector('#latency').scrollIntoView()")
        tab.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 100)))")
        assert tab.evaluate("document.querySelector('nav').getBoundingClientRect().top") == 0
        assert tab.evaluate("document.querySelector('nav [aria-current]').hash") == "#latency"


def test_print_is_light_unfolded_and_without_controls(tab: Tab, scene: Scene) -> None:
    tab.open(scene("k_temperature").as_uri())
    tab.evaluate("document.querySelector('.theme [value=dark]').click()")
    tab.command("Emulation.setEmulatedMedia", media="print")
    shown = "document.querySelector({!r}).checkVisibility({{contentVisibilityAuto: true}})"
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not any(tab.evaluate(shown.format(one)) for one in ("nav", ".tools", ".theme"))
    assert tab.evaluate(shown.format("#speedup details table"))
    pdf = base64.b64decode(tab.command("Page.printToPDF")["data"])
    assert pdf.startswith(b"%PDF")
    tab.command("Emulation.setEmulatedMedia", media="")
    tab.evaluate("document.querySelector('.theme [value=auto]').click()")


def blocked(scene: Scene) -> Path:
    """The page as a viewer shows it that allows neither scripts nor inline styles."""
    path = scene("k_temperature")
    policy = "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'\">"
    text = path.read_text().replace('<meta charset="utf-8">', f'<meta charset="utf-8">{policy}')
    strict = path.with_name("strict.html")
    strict.write_text(text)
    return strict


def test_under_a_strict_policy_everything_can_be_read(tab: Tab, scene: Scene) -> None:
    tab.open(blocked(scene).as_uri(), width=1000)
    assert tab.evaluate("getComputedStyle(document.body).marginTop") == "8px"  # the style is blocked
    assert tab.evaluate("document.querySelector('.tools, .theme')") is None  # and so is the script
    text = tab.evaluate("document.body.innerText")
    for wanted in ("What to do", "How sure", "Best k of each setting", "tokens per forward"):
        assert wanted in text
    assert tab.evaluate("document.querySelector('template').checkVisibility()") is False
    plots = tab.evaluate(
        "[...document.querySelectorAll('svg')].map((one) => [one.getBoundingClientRect().width, "
        "one.querySelector('title').textContent])"
    )
    assert all(5 < width < 700 and title for width, title in plots)
    colours = set(
        tab.evaluate(
            "[...document.querySelectorAll('#speedup .plot path')].map((one) => getComputedStyle(one).stroke)"
        )
    )
    assert {"rgb(0, 114, 178)", "rgb(213, 94, 0)"} <= colours
    marks = tab.evaluate(
        "[...document.querySelectorAll('#speedup .point title')].map((one) => one.textContent)"
    )
    assert any(mark.startswith("temperature 0.7, k 4: ") for mark in marks)
    fonts = tab.evaluate(
        "[...document.querySelectorAll('#speedup .plot text')].map((one) => getComputedStyle(one).fontSize)"
    )
    assert set(fonts) == {"9px"}
    assert tab.evaluate("getComputedStyle(document.querySelector('#summary td')).borderTopStyle") != "none"


def test_a_foreign_script_in_the_page_is_not_run(tab: Tab, scene: Scene, tmp_path: Path) -> None:
    text = (
        scene("k_temperature").read_text().replace("<main", "<script>document.title = 'hacked'</script><main")
    )
    file = tmp_path / "changed.html"
    file.write_text(text)
    tab.open(file.as_uri())
    assert tab.evaluate("document.title") == "Speculative decoding: k_temperature"
    assert any("Content Security Policy" in error for error in tab.errors)
