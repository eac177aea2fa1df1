"""The colours of the page, each once: light and dark, told apart by the colour-blind."""

from __future__ import annotations

NUM_SERIES = 7

_COLOURS = {
    "page": ("#fcfcfb", "#14161a"),
    "surface": ("#ffffff", "#191c21"),
    "text": ("#1c1f23", "#e4e6ea"),
    "muted": ("#646b75", "#9aa2ae"),
    "rule": ("#e2e4e7", "#31363e"),
    "faint": ("#f4f5f5", "#1d2126"),
    "link": ("#00578a", "#7cc0f0"),
    "pays": ("#00694c", "#4fd0a5"),
    "costs": ("#a53f00", "#ff9d63"),
    "unclear": ("#646b75", "#9aa2ae"),
    "caution": ("#fff8e6", "#29230f"),
    "caution-rule": ("#d99a00", "#c78f08"),
    "series-0": ("#0072b2", "#56a9ea"),
    "series-1": ("#d55e00", "#f08545"),
    "series-2": ("#00916a", "#2fc093"),
    "series-3": ("#b5568f", "#e08fc0"),
    "series-4": ("#a87000", "#e3ad2b"),
    "series-5": ("#3a93c7", "#a5d8f3"),
    "series-6": ("#5b6068", "#b3b9c2"),
    "part-0": ("#e69f00", "#e0a21b"),
    "part-1": ("#0072b2", "#3f8fca"),
    "part-2": ("#ccd0d6", "#474d57"),
    "part-text-0": ("#201600", "#1c1400"),
    "part-text-1": ("#ffffff", "#06121c"),
    "part-text-2": ("#22262b", "#e8eaed"),
}


def variable(name: str) -> str:
    """The colour for an SVG attribute: the page's, or the light one where the page's style is blocked."""
    return f"var(--{name},{_COLOURS[name][0]})"


def declarations() -> str:
    """The CSS that defines every colour for both themes."""
    lines = [f"  --{name}: light-dark({light}, {dark});" for name, (light, dark) in _COLOURS.items()]
    return "\n".join([":root {", *lines, "}"])
