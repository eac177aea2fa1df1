from __future__ import annotations

import re

import pytest

from harness.reports import plots, svg
from harness.reports.plots import Line, Point, Scale
from harness.reports.svg import Style

LINES = [
    Line("a", Style(0), (Point(1, 1.2, 1.1, 1.3), Point(2, 1.4, 1.3, 1.5, chosen=True))),
    Line("b", Style(1), (Point(1, 0.9), Point(2, 0.8))),
]


def drawn(identifier: str = "p") -> str:
    figure = plots.lines(LINES, x_label="k", scale=Scale("speedup", reference=1.0))
    return str(svg.inline(figure, identifier, title="A <title>", description="what & why"))


def test_a_drawing_is_deterministic_and_carries_no_date() -> None:
    assert drawn() == drawn()
    assert "<metadata" not in drawn()
    assert not re.search(r"20\d\d-\d\d-\d\d", drawn())


def test_a_drawing_takes_colours_and_fonts_from_the_page() -> None:
    text = drawn()
    for variable in ("--series-0", "--series-1", "--surface", "--muted", "--rule"):
        assert f"var({variable},#" in text
    assert "#" not in re.sub(r'href="#|url\(#|var\(--[\w-]+,#', "", text)
    assert "style=" not in text
    assert "DejaVu" not in text
    assert "A &lt;title&gt;" in text
    assert "what &amp; why" in text


def test_marks_tell_their_series_place_and_value() -> None:
    text = drawn()
    told = re.findall(r'<g class="point"><title>([^<]*)</title>', text)
    assert told == [
        "a, k 1: 1.20x [1.10, 1.30]",
        "a, k 2: 1.40x [1.30, 1.50]",
        "b, k 1: 0.90x",
        "b, k 2: 0.80x",
    ]
    bars = plots.stacked(["k = 1"], [(0.25, 0.75, 0.0)], parts=("draft", "verify", "<other>"))
    text = str(svg.inline(bars, "p", title="t", description="d"))
    assert "<title>k = 1, draft: 25%</title>" in text
    assert "<title>k = 1, &lt;other&gt;: 0%</title>" in text


def test_two_drawings_share_no_id() -> None:
    ids = [re.findall(r'\bid="([^"]+)"', drawn(name)) for name in ("one", "two")]
    assert ids[0]
    assert not set(ids[0]) & set(ids[1])
    references = re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', drawn("one"))
    assert {first or second for first, second in references} <= set(ids[0])


def test_dollars_are_drawn_as_they_are() -> None:
    figure = plots.dots(["$\\frac{1}{2}$ <b>"], [Line("", Style(0), (Point(0, 1.1),))], scale=Scale("x"))
    text = str(svg.inline(figure, "p", title="t", description="d"))
    assert "$\\frac{1}{2}$ &lt;b&gt;" in text


def test_styles_differ_in_more_than_colour() -> None:
    looks = [(Style(i).colour, Style(i).marker) for i in range(14)]
    assert len(set(looks)) == 14
    assert len({Style(i).marker for i in range(7)}) == 7


def test_panels_share_their_limits() -> None:
    scale = Scale("speedup", reference=1.0).shared(LINES)
    assert scale.limits is not None
    low, high = scale.limits
    assert low < 0.8
    assert high > 1.5
    limits = [plots.lines([line], x_label="k", scale=scale).axes[0].get_ylim() for line in LINES]
    assert limits[0] == limits[1] == pytest.approx((low, high))


@pytest.mark.parametrize("rows", [1, 40])
def test_dots_and_bars_fit_any_number_of_rows(rows: int) -> None:
    names = [f"task {i}" for i in range(rows)]
    line = Line("a", Style(0), tuple(Point(i, 0.5, 0.4, 0.6) for i in range(rows)))
    dots = plots.dots(names, [line], scale=Scale("rate", "share"))
    bars = plots.stacked(names, [(0.3, 0.6, 0.1)] * rows, parts=("a", "b", "c"))
    for figure in (dots, bars):
        assert len(figure.axes[0].get_yticklabels()) == rows
    assert bars.axes[0].get_xlim() == (0, 1)
