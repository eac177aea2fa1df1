"""Waits against load: one line per option, the limit as a dashed line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from harness.reports import svg
from harness.reports.display import seconds, with_interval
from harness.reports.language import say
from harness.reports.plots import WIDTH_IN
from harness.reports.svg import Style


@dataclass(frozen=True, slots=True)
class LoadLine:
    """One option: loads, values with their intervals (None without one), and the load it is planned for."""

    name: str
    style: Style
    loads: Sequence[float]
    values: Sequence[float]
    lows: Sequence[float | None]
    highs: Sequence[float | None]
    planned: float | None


def load_plot(
    lines: Sequence[LoadLine], *, identifier: str, title: str, y_label: str, limit: float | None
) -> Markup:
    """Seconds over requests per second of one replica.

    Args:
        lines: at least one with a point.
        identifier: unique in the page.
        title: of the drawing.
        y_label: what the seconds are.
        limit: drawn across where it is set.
    """
    figure = svg.new_figure(WIDTH_IN, 3.2)
    axes = figure.axes[0]
    for line in lines:
        _draw(axes, line)
    top = max(value for line in lines for value in line.values)
    if limit is not None:
        axes.axhline(limit, color=svg.MUTED, linewidth=1.0, linestyle=(0, (4, 3)), zorder=1)
        # far beyond the limit nothing is worth telling apart
        top = min(top, 3 * limit) if top > limit else max(top, 1.05 * limit)
    axes.set_ylim(0, 1.05 * top if top > 0 else 1.0)
    axes.set_xlim(left=0)
    axes.set_xlabel(svg.spaced(say("requests per second of one replica")))
    axes.set_ylabel(svg.spaced(say(y_label)))
    title = say(title)
    description = say("{subject}. The table below the drawings has the numbers.", subject=title)
    return svg.inline(figure, identifier, title=title, description=description)


def _draw(axes: Any, line: LoadLine) -> None:
    """A curve with its intervals, its marks, which tell their values, and the planned load."""
    style = line.style
    axes.plot(line.loads, line.values, color=style.colour, linestyle=style.line, linewidth=1.5)
    for load, value, low, high in zip(line.loads, line.values, line.lows, line.highs, strict=True):
        if low is not None and high is not None:
            axes.plot([load, load], [max(low, 0.0), high], color=style.colour, linewidth=1.2)
        told = say(
            "{name}, {load:.3g} requests/s: {wait}",
            name=line.name,
            load=load,
            wait=with_interval((value, low, high), seconds),
        )
        axes.plot(
            [load],
            [value],
            gid=svg.told(told),
            marker=style.marker,
            markersize=4.5,
            linestyle="none",
            markerfacecolor=svg.SURFACE,
            markeredgecolor=style.colour,
            markeredgewidth=1.2,
        )
    if line.planned is not None:
        axes.axvline(line.planned, color=style.colour, linewidth=0.8, linestyle=":")
