"""The page's drawings from plain numbers: lines, dots with intervals, stacked bars, a scatter plot."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import Formatter, MaxNLocator, NullLocator, PercentFormatter, ScalarFormatter

from harness.reports import svg
from harness.reports.display import decimal, percent, rate, ratio, with_interval
from harness.reports.language import before, say
from harness.reports.svg import Style

WIDTH_IN = 5.0
_NUM_INTERVAL_DODGES = 8


@dataclass(frozen=True, slots=True)
class Point:
    """One drawn value and its interval; `low` and `high` are None where there is none.

    `chosen` fills the marker: the reader's eye should land there.
    """

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """A named series of points in one style."""

    name: str
    style: Style
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Scale:
    """What an axis measures: its label, `ratio`, `share` or `plain`, and a reference value worth a line."""

    label: str
    kind: str = "ratio"
    reference: float | None = None
    limits: tuple[float, float] | None = None

    def shared(self, series: Sequence[Line]) -> Scale:
        """The same scale with limits that hold all these points, so that panels can be compared."""
        ends = [end for line in series for point in line.points for end in (point.y, point.low, point.high)]
        values = [end for end in ends if end is not None] + [r for r in (self.reference,) if r is not None]
        margin = 0.06 * (max(values) - min(values)) or 0.05
        return replace(self, limits=(min(values) - margin, max(values) + margin))

    def written(self, point: Point) -> str:
        """A value on this scale with its interval, as the tables have it."""
        write = {"ratio": ratio, "share": percent}.get(self.kind, decimal if point.y < 100 else rate)
        return with_interval((point.y, point.low, point.high), write)


def lines(
    series: Sequence[Line],
    *,
    x_label: str,
    scale: Scale,
    height_in: float = 3.2,
    tick_text: Callable[[float], str] = "{:g}".format,
) -> Figure:
    """Values over a whole-number axis such as k, one line per series, intervals as bars.

    Args:
        series: at least one line with at least one point.
        x_label: what the whole numbers are.
        scale: what the values are.
        height_in: height of the drawing in inches.
        tick_text: what to write at a whole number.
    """
    figure = svg.new_figure(WIDTH_IN, height_in)
    axes = figure.axes[0]
    ticks = sorted({point.x for line in series for point in line.points})
    said_label = say(x_label)
    step = min((b - a for a, b in pairwise(ticks)), default=1.0)
    for place, line in enumerate(series):
        shift = step * 0.3 * _dodge(place, len(series))
        points = sorted(line.points, key=lambda point: point.x)
        xs = [point.x + shift for point in points]
        axes.plot(
            xs,
            [point.y for point in points],
            color=line.style.colour,
            linestyle=line.style.line,
            linewidth=1.5,
        )
        for x, point in zip(xs, points, strict=True):
            at = f"{before(',', said_label)} {tick_text(point.x)}"
            _vertical_point(axes, x, point, line.style, told=_told(line.name, at, scale.written(point)))
    axes.set_xticks(_thinned(ticks), [tick_text(tick) for tick in _thinned(ticks)])
    axes.set_xlabel(svg.spaced(say(x_label)))
    axes.grid(visible=False, axis="x")
    _scale_y(axes, scale)
    return figure


def dots(rows: Sequence[str], series: Sequence[Line], *, scale: Scale) -> Figure:
    """One row per name, one dot with its interval per series: values along x, `Point.x` holds the row number.

    Args:
        rows: names from top to bottom.
        series: points whose `x` is an index into `rows` and whose `y` is the value.
        scale: what the values are.
    """
    per_row_in = 0.22 + 0.1 * min(len(series), 8)
    figure = svg.new_figure(WIDTH_IN, 0.8 + per_row_in * len(rows))
    axes = figure.axes[0]
    for place, line in enumerate(series):
        shift = 0.7 * _dodge(place, len(series))
        for point in line.points:
            at = point.x + shift
            if point.low is not None and point.high is not None:
                axes.plot([point.low, point.high], [at, at], color=line.style.colour, linewidth=1.2)
            text = _told(rows[round(point.x)], line.name, scale.written(point))
            axes.plot([point.y], [at], **_marker(line.style, point, told=text))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks(range(len(rows)), [svg.label(row) for row in rows])
    axes.grid(visible=False, axis="y")
    _scale_x(axes, scale)
    return figure


def stacked(rows: Sequence[str], shares: Sequence[Sequence[float]], *, parts: Sequence[str]) -> Figure:
    """Horizontal bars of parts that add to the whole, each labelled where there is room.

    Args:
        rows: names from top to bottom.
        shares: per row, the parts' shares in drawing order, each 0..1.
        parts: what the shares are of.
    """
    figure = svg.new_figure(WIDTH_IN, 0.7 + 0.27 * len(rows))
    axes = figure.axes[0]
    for row, own in enumerate(shares):
        start = 0.0
        for part, share in enumerate(own):
            (bar,) = axes.barh(row, share, left=start, height=0.7, color=svg.PART_COLOURS[part])
            bar.set(edgecolor=svg.SURFACE, gid=_told(rows[row], parts[part], percent(share)))
            if share >= 0.12:
                text = f"{100 * share:.0f}%"
                middle = start + share / 2
                axes.text(
                    middle, row, text, ha="center", va="center", size=8, color=svg.PART_TEXT_COLOURS[part]
                )
            start += share
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks(range(len(rows)), [svg.label(row) for row in rows])
    axes.grid(visible=False, axis="y")
    _scale_x(axes, Scale("share of decode time", "share"))
    axes.set_xlim(0, 1)
    return figure


def against(series: Sequence[Line], *, x_label: str, y_label: str) -> Figure:
    """Measured (y) against predicted (x) with the diagonal on which both agree.

    Args:
        series: points with the prediction as `x`, the measurement as `y`.
        x_label: what was predicted.
        y_label: what was measured.
    """
    figure = svg.new_figure(WIDTH_IN, 3.6)
    axes = figure.axes[0]
    values = [value for line in series for point in line.points for value in (point.x, point.y)]
    values += [
        end for line in series for point in line.points for end in (point.low, point.high) if end is not None
    ]
    low, high = min([*values, 1.0]), max([*values, 1.0])
    margin = 0.06 * (high - low) or 0.1
    ends = (low - margin, high + margin)
    axes.plot(ends, ends, color=svg.MUTED, linewidth=1.0, linestyle=(0, (4, 3)))
    for line in series:
        for point in line.points:
            text = say(
                "{measured}, predicted {predicted}",
                measured=Scale("").written(point),
                predicted=ratio(point.x),
            )
            _vertical_point(axes, point.x, point, line.style, told=_told(line.name, "", text))
    axes.set_xlim(*ends)
    axes.set_ylim(*ends)
    axes.set_xlabel(svg.spaced(say(x_label)))
    axes.set_ylabel(svg.spaced(say(y_label)))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
        axis.set_major_formatter(_RatioFormatter())
    return figure


def tradeoff(series: Sequence[Line], *, x_label: str, y_label: str) -> Figure:
    """What is won against what is paid: points joined in their own order, both axes from 0.

    Args:
        series: at least one line with at least one point.
        x_label: what is paid.
        y_label: what is won.
    """
    figure = svg.new_figure(WIDTH_IN, 3.6)
    axes = figure.axes[0]
    for line in series:
        xs, ys = [point.x for point in line.points], [point.y for point in line.points]
        axes.plot(xs, ys, color=line.style.colour, linestyle=line.style.line, linewidth=1.5)
        for point in line.points:
            text = f"{rate(point.y)} ({say(y_label)}), {decimal(point.x)} ({say(x_label)})"
            axes.plot([point.x], [point.y], **_marker(line.style, point, told=_told(line.name, "", text)))
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel(svg.spaced(say(x_label)))
    axes.set_ylabel(svg.spaced(say(y_label)))
    return figure


def _told(name: str, at: str, value: str) -> str:
    """What a mark says when pointed at: whose it is, where, and its value."""
    return svg.told(f"{', '.join(part for part in (name, at) if part)}: {value}")


def _vertical_point(axes: Axes, x: float, point: Point, style: Style, *, told: str) -> None:
    if point.low is not None and point.high is not None:
        axes.plot([x, x], [point.low, point.high], color=style.colour, linewidth=1.2)
    axes.plot([x], [point.y], **_marker(style, point, told=told))


def _marker(style: Style, point: Point, *, told: str) -> dict[str, Any]:
    return {
        "gid": told,
        "marker": style.marker,
        "markersize": 6.5 if point.chosen else 5.0,
        "markerfacecolor": style.colour if point.chosen else svg.SURFACE,
        "markeredgecolor": style.colour,
        "markeredgewidth": 1.3,
        "linestyle": "none",
    }


def _dodge(place: int, total: int) -> float:
    """Where in -0.5..0.5 a series stands, so that intervals at one x don't cover each other."""
    used = min(total, _NUM_INTERVAL_DODGES)
    return 0.0 if used < 2 else (place % used - (used - 1) / 2) / used


def _thinned(ticks: Sequence[float]) -> list[float]:
    """At most a dozen of the ticks, the first always among them."""
    return list(ticks[:: math.ceil(len(ticks) / 12)])


def _scale_y(axes: Axes, scale: Scale) -> None:
    axes.set_ylabel(svg.spaced(say(scale.label)))
    axes.yaxis.set_major_formatter(_formatter(scale))
    if scale.limits is not None:
        axes.set_ylim(*scale.limits)
    if scale.kind == "share":
        axes.set_ylim(*_share_limits(*axes.get_ylim()))
    if scale.reference is not None:
        axes.axhline(scale.reference, color=svg.MUTED, linewidth=1.0, linestyle=(0, (4, 3)), zorder=1)


def _scale_x(axes: Axes, scale: Scale) -> None:
    axes.set_xlabel(svg.spaced(say(scale.label)))
    axes.xaxis.set_major_formatter(_formatter(scale))
    axes.xaxis.set_minor_locator(NullLocator())
    if scale.limits is not None:
        axes.set_xlim(*scale.limits)
    if scale.kind == "share":
        axes.set_xlim(*_share_limits(*axes.get_xlim()))
    if scale.reference is not None:
        axes.axvline(scale.reference, color=svg.MUTED, linewidth=1.0, linestyle=(0, (4, 3)), zorder=1)


def _share_limits(low: float, high: float) -> tuple[float, float]:
    """Shares start at 0, so that a small difference looks small, and end near the largest."""
    return min(0.0, low), min(max(1.04 * high, 0.1), 1.03)


def _formatter(scale: Scale) -> Formatter:
    if scale.kind == "plain":
        return ScalarFormatter(useOffset=False)
    return PercentFormatter(1.0, decimals=0) if scale.kind == "share" else _RatioFormatter()


class _RatioFormatter(Formatter):
    """Ticks such as `1.0x`, with the digits that the tick spacing needs."""

    _digits = 2

    def __call__(self, x: float, pos: int | None = None) -> str:
        return f"{x:.{self._digits}f}x"

    def set_locs(self, locs: Sequence[float]) -> None:
        self._digits = 1 if all(abs(tick * 10 - round(tick * 10)) < 1e-6 for tick in locs) else 2
