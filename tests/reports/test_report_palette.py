from __future__ import annotations

import re
from itertools import combinations

import pytest

from harness.reports import palette

THEMES = ("light", "dark")
Rgb = tuple[float, float, float]


def colours(theme: int) -> dict[str, Rgb]:
    found = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\);", palette.declarations())
    return {name: _linear(both[theme]) for name, *both in found}


def _linear(colour: str) -> Rgb:
    """sRGB to linear light."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    first, second, third = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return first, second, third


def contrast(one: Rgb, other: Rgb) -> float:
    """WCAG 2: 1 to 21."""
    weights = (0.2126, 0.7152, 0.0722)
    high, low = sorted(
        (sum(w * c for w, c in zip(weights, rgb, strict=True)) for rgb in (one, other)), reverse=True
    )
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", range(2), ids=THEMES)
def test_text_and_lines_stand_out_from_the_page(theme: int) -> None:
    found = colours(theme)
    for name in ("text", "muted", "link", "pays", "costs", "unclear"):
        assert contrast(found[name], found["page"]) >= 4.5, name
    for i in range(palette.NUM_SERIES):
        assert contrast(found[f"series-{i}"], found["page"]) >= 3, i
    for i in range(3):
        assert contrast(found[f"part-text-{i}"], found[f"part-{i}"]) >= 4.5, i
    assert contrast(found["text"], found["caution"]) >= 4.5


def as_seen(rgb: Rgb, matrix: list[list[float]]) -> tuple[float, ...]:
    """What someone with this dichromacy sees, in a lightness scale (cube root, as Lab)."""
    mixed = [sum(m * c for m, c in zip(row, rgb, strict=True)) for row in matrix]
    return tuple(max(value, 0.0) ** (1 / 3) for value in mixed)


# Vienot, Brettel and Mollon 1999, table of linear RGB to linear RGB
PROTAN = [[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]]
DEUTAN = [[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]]


@pytest.mark.parametrize("theme", range(2), ids=THEMES)
@pytest.mark.parametrize("matrix", [PROTAN, DEUTAN], ids=["protan", "deutan"])
def test_verdicts_and_the_first_series_differ_for_the_colour_blind(
    theme: int, matrix: list[list[float]]
) -> None:
    found = colours(theme)
    pairs = [("pays", "costs"), *combinations(("series-0", "series-1", "series-2"), 2), ("part-0", "part-1")]
    for one, other in pairs:
        seen = (as_seen(found[name], matrix) for name in (one, other))
        distance = sum((a - b) ** 2 for a, b in zip(*seen, strict=True)) ** 0.5
        assert distance > 0.1, (one, other, distance)
