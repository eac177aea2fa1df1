"""A drawing of values over steps with the spread around them."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, ScalarFormatter

from harness.reports import svg
from harness.reports.language import say
from harness.reports.plots import WIDTH_IN, Line

_FILL = 0.18


def bands(series: Sequence[Line], *, x_label: str, y_label: str) -> Figure:
    """One line per series in a band from its points' `low` to their `high`; the value axis begins at 0.

    Args:
        series: at least one line with at least one point, its points in order.
        x_label: what goes on.
        y_label: what the values are.
    """
    figure = svg.new_figure(WIDTH_IN, 3.2)
    axes = figure.axes[0]
    for line in series:
        known = [point for point in line.points if point.low is not None and point.high is not None]
        xs = [point.x for point in known]
        low, high = [point.low or 0.0 for point in known], [point.high or 0.0 for point in known]
        axes.fill_between(xs, low, high, color=line.style.colour, alpha=_FILL, linewidth=0)
        axes.plot(
            [point.x for point in line.points],
            [point.y for point in line.points],
            color=line.style.colour,
            linestyle=line.style.line,
            linewidth=1.5,
        )
    axes.set_ylim(bottom=0)
    axes.set_xlabel(svg.spaced(say(x_label)))
    axes.set_ylabel(svg.spaced(say(y_label)))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(8, integer=True))
        axis.set_major_formatter(ScalarFormatter(useOffset=False))
    return figure
