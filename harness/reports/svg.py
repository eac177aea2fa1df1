"""Matplotlib figures as inline SVG that takes its colours and fonts from the page.

Plots are drawn in sentinel colours (`TEXT`, `GRID`, `Style.colour`, ...) that no palette uses; on the way out
each becomes a CSS variable, so that one drawing serves the light page, the dark page and paper. Looks are
attributes, never `style`: a viewer that blocks inline styles still draws them.
"""

from __future__ import annotations

import io
import re
import warnings
from dataclasses import dataclass
from typing import Any
from unicodedata import east_asian_width

import matplotlib as mpl
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from harness.reports.palette import NUM_SERIES, variable

TEXT = "#010e01"
MUTED = "#010e02"
GRID = "#010e03"
SURFACE = "#010e04"
PART_COLOURS = ("#010e11", "#010e12", "#010e13")
"""Draft, verify, other: the parts of a step's time."""
PART_TEXT_COLOURS = ("#010e15", "#010e16", "#010e17")

_SENTINELS = {
    TEXT: "text",
    MUTED: "muted",
    GRID: "rule",
    SURFACE: "surface",
    **{colour: f"part-{i}" for i, colour in enumerate(PART_COLOURS)},
    **{colour: f"part-text-{i}" for i, colour in enumerate(PART_TEXT_COLOURS)},
    **{f"#010e{0x20 + i:02x}": f"series-{i}" for i in range(NUM_SERIES)},
}
_TOLD = "told:"
_MAKE_UP = "\N{FOUR-PER-EM SPACE}\N{SIX-PER-EM SPACE}"
_UNSTYLED_SCALE = 1.4
"""Pixels per point where no style says how wide a drawing is."""
_UNWANTED = (
    r"<metadata>.*?</metadata>",
    r"<style[^>]*>.*?</style>",
    r"<!--.*?-->",
    r"<defs>\s*</defs>",
    r'<g id="[^"]*"/>',
    r'<path d="[^"]*" style="fill: none; opacity: 0"/>',
)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_MARKER_SHAPES = {
    "o": "<circle cx='16' cy='7' r='4'/>",
    "s": "<path d='M12 3h8v8h-8z'/>",
    "^": "<path d='M16 2.5l4.6 8h-9.2z'/>",
    "D": "<path d='M16 2l5 5-5 5-5-5z'/>",
    "v": "<path d='M16 11.5l4.6-8h-9.2z'/>",
    "P": "<path d='M14.4 2.5h3.2v2.9h2.9v3.2h-2.9v2.9h-3.2v-2.9h-2.9v-3.2h2.9z'/>",
    "X": "<path d='M13 2.5l3 3 3-3 1.6 1.6-3 3 3 3-1.6 1.6-3-3-3 3-1.6-1.6 3-3-3-3z'/>",
}
_DASHES = {"-": "", "--": "5 3", "-.": "6 2 1.5 2", ":": "1.5 2"}
_RC: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "harness",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": TEXT,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": TEXT,
    "ytick.labelcolor": TEXT,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "text.color": TEXT,
}


@dataclass(frozen=True, slots=True)
class Style:
    """How one series looks: colour, marker and line differ together, none carries the meaning alone."""

    index: int

    @property
    def colour(self) -> str:
        """The sentinel colour to draw with."""
        return f"#010e{0x20 + self.index % NUM_SERIES:02x}"

    @property
    def marker(self) -> str:
        """The Matplotlib marker."""
        return _MARKERS[(self.index + self.index // NUM_SERIES) % len(_MARKERS)]

    @property
    def line(self) -> str:
        """The Matplotlib line style."""
        return tuple(_DASHES)[self.index % len(_DASHES)]

    def swatch(self, name: str, *, line: bool) -> Markup:
        """The key of the series for a legend in the page.

        Args:
            name: of the series.
            line: whether its points are joined.
        """
        colour = variable(f"series-{self.index % NUM_SERIES}")
        stroke = Markup("<path d='M0 7h32' fill='none' stroke-width='1.8' stroke-dasharray='{}'/>")
        return Markup(
            "<svg class='swatch' viewBox='0 0 32 14' width='32' height='14' role='img' "
            "stroke='{colour}'><title>{name}</title>{stroke}<g stroke='none' "
            "fill='{colour}'>{shape}</g></svg>"
        ).format(
            name=name,
            colour=colour,
            stroke=stroke.format(_DASHES[self.line]) if line else "",
            shape=Markup(_MARKER_SHAPES[self.marker]),
        )


def part_swatch(index: int, name: str) -> Markup:
    """The key of one part of a stacked bar for a legend in the page."""
    return Markup(
        "<svg class='swatch' viewBox='0 0 32 14' width='32' height='14' role='img'><title>{name}</title>"
        "<path d='M2 1h28v12h-28z' fill='{colour}'/></svg>"
    ).format(name=name, colour=variable(f"part-{index}"))


def new_figure(width_in: float, height_in: float) -> Figure:
    """An empty figure with the page's look; it belongs to no global state."""
    with mpl.rc_context(_RC):
        figure = Figure(figsize=(width_in, height_in), layout="constrained")
        figure.add_subplot()
    figure.patch.set_alpha(0)
    figure.axes[0].patch.set_alpha(0)
    return figure


def label(text: str, limit: int = 34) -> str:
    """Text that Matplotlib draws literally: no mathematics, at most `limit` characters, of wide ones half."""
    cut = text
    if _width(text) > limit:
        while _width(cut) >= limit:
            cut = cut[:-1]
        cut = f"{cut}…"
    return spaced(cut.replace("$", r"\$"))


def spaced(text: str) -> str:
    """A text as wide for Matplotlib as for the reader, whose fonts have the characters that its font lacks.

    What stands for a lacking character is three fifths of it: blanks, taken out again, make up for the rest.
    """
    return "".join(f"{character}{_MAKE_UP}" if _is_wide(character) else character for character in text)


def _is_wide(character: str) -> bool:
    return east_asian_width(character) in ("W", "F")


def _width(text: str) -> int:
    """In columns of a terminal: wide characters take two."""
    return sum(2 if _is_wide(character) else 1 for character in text)


def told(text: str) -> str:
    """The `gid` that makes an artist tell `text` when a reader points at it."""
    return f"{_TOLD}{text}"


def inline(figure: Figure, identifier: str, *, title: str, description: str) -> Markup:
    """The figure as an `<svg>` element, deterministic, with a title and a description.

    Args:
        figure: made by `new_figure`.
        identifier: unique in the page; prefixes every id inside.
        title: short name, read out by screen readers.
        description: what the plot shows, in a sentence.
    """
    buffer = io.StringIO()
    with mpl.rc_context(_RC), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # the reader's fonts draw the text
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return Markup(_themed(buffer.getvalue(), identifier, title=title, description=description))


def _themed(source: str, identifier: str, *, title: str, description: str) -> str:
    viewbox = re.search(r'viewBox="([^"]+)"', source)
    if viewbox is None:
        raise ValueError("the SVG has no viewBox")
    body = source[source.index(">", source.index("<svg")) + 1 :]
    for unwanted in _UNWANTED:
        body = re.sub(unwanted, "", body, flags=re.DOTALL)
    body = re.sub(rf'<g id="{_TOLD}([^"]*)">', r'<g class="point"><title>\1</title>', body)
    body = re.sub(r'<g id="[^"]*">', "<g>", body)
    body = re.sub(r'(?<= )id="', f'id="{identifier}-', body)
    body = body.replace("url(#", f"url(#{identifier}-").replace('xlink:href="#', f'href="#{identifier}-')
    body = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", body)
    body = re.sub(r"font-family: [^;\"]*;?\s*", "", body)
    body = re.sub(r' style="([^"]*)"', _as_attributes, body)
    for sentinel, name in _SENTINELS.items():
        body = body.replace(sentinel, variable(name))
    body = body.replace(_MAKE_UP, "")
    body = re.sub(r"\s*\n\s*", "\n", body)
    width, height = viewbox.group(1).split()[2:]
    head = (
        f'<svg class="plot" viewBox="{viewbox.group(1)}" width="{float(width) * _UNSTYLED_SCALE:g}" '
        f'height="{float(height) * _UNSTYLED_SCALE:g}" role="img" stroke-linejoin="round" '
        f'aria-labelledby="{identifier}-title {identifier}-desc">'
        f'<title id="{identifier}-title">{escape(title)}</title>'
        f'<desc id="{identifier}-desc">{escape(description)}</desc>'
    )
    return head + body


def _as_attributes(style: re.Match[str]) -> str:
    """CSS declarations as the SVG attributes of the same names."""
    pairs = (declaration.partition(":") for declaration in style.group(1).split(";") if declaration.strip())
    return "".join(f' {name.strip()}="{value.strip()}"' for name, _, value in pairs)
