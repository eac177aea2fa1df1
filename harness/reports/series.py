"""How variants are grouped for reading: a series is one cell's method over k, a panel holds a few series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.records import Status
from harness.reports.display import number
from harness.reports.labels import (
    Row,
    in_reading_order,
    is_lossless,
    marked,
    method_label,
    phrase,
    varying_facts,
)
from harness.reports.svg import Style

_MOST_IN_A_PANEL = 6


@dataclass(frozen=True, slots=True)
class Series:
    """One method in one cell, over k.

    Attributes:
        cell_id: the cell.
        method: the drafting method.
        label: by everything that differs between series; unique in the page.
        name: the same without what the panel already says.
        panel: facet the series is drawn in; empty where there is one.
        style: equal names look equal in every panel.
        rows: summary rows with a speedup, by k.
        best: the fastest and the recommended k, as the results derive them.
    """

    cell_id: str
    method: str
    label: str
    name: str
    panel: str
    style: Style
    rows: tuple[Row, ...]

    best: Row | None

    @property
    def is_lossless(self) -> bool:
        """Whether its output is the target's, by its own account."""
        return all(map(is_lossless, self.rows))

    @property
    def method_name(self) -> str:
        """The method as prose has it, and that it changes the output where it does."""
        name = method_label(self.method)
        return marked(name, self.rows[0]) if self.rows else name

    @property
    def fastest(self) -> Row | None:
        """The row with the largest speedup."""
        return max(self.rows, key=lambda row: float(row["speedup"]), default=None)

    @property
    def chosen(self) -> Row | None:
        """The recommended row; the fastest where none is recommended."""
        wanted = self.best.get("recommended_variant_id") if self.best else None
        return next((row for row in self.rows if row["variant_id"] == wanted), self.fastest)


def series_of(cells: Sequence[Row], variants: Sequence[Row], best: Sequence[Row]) -> list[Series]:
    """The series of a sweep in reading order, assigned to panels of at most six where facts allow.

    Args:
        cells: one row of facts per cell.
        variants: summary rows; baselines are left out.
        best: one row per cell and method with its fastest and its recommended k.
    """
    speculating = [row for row in variants if not row.get("is_baseline")]
    ordered = in_reading_order(cells)
    names = varying_facts(ordered)
    methods = list(dict.fromkeys(str(row["method"]) for row in speculating))
    tells_method = len(methods) > 1 or not all(map(is_lossless, speculating))
    keys: list[tuple[str, str, dict[str, str]]] = []
    grouped: dict[tuple[str, str], list[Row]] = {}
    for row in speculating:
        grouped.setdefault((row["cell_id"], str(row["method"])), []).append(row)
    for cell in ordered:
        for method in methods:
            if own := grouped.get((cell["cell_id"], method)):
                told = {name: phrase(name, cell.get(name)) for name in names}
                if tells_method:
                    told["method"] = marked(method_label(method), own[0])
                keys.append((str(cell["cell_id"]), method, told))
    facet = _facet([told for _, _, told in keys])
    return _styled(keys, facet, grouped, {(row["cell_id"], row["method"]): row for row in best})


def has_curve(series: Sequence[Series]) -> bool:
    """Whether any series was measured at more than one k."""
    return any(len(one.rows) > 1 for one in series)


def panels(series: Sequence[Series]) -> dict[str, list[Series]]:
    """Series by panel, in order."""
    grouped: dict[str, list[Series]] = {}
    for one in series:
        grouped.setdefault(one.panel, []).append(one)
    return grouped


def _facet(told: Sequence[dict[str, str]]) -> str | None:
    """The fact to spread over panels: the one that needs fewest panels to keep each readable."""
    if len(told) <= _MOST_IN_A_PANEL or len(told[0]) < 2:
        return None
    sizes = {name: len({one[name] for one in told}) for name in told[0]}
    enough = {name: size for name, size in sizes.items() if len(told) / size <= _MOST_IN_A_PANEL}
    return min(enough, key=lambda name: enough[name]) if enough else max(sizes, key=lambda name: sizes[name])


def _styled(
    keys: Sequence[tuple[str, str, dict[str, str]]],
    facet: str | None,
    rows: Mapping[tuple[str, str], Sequence[Row]],
    best: Mapping[tuple[str, str], Row],
) -> list[Series]:
    styles: dict[str, Style] = {}
    labels: dict[str, int] = {}
    found = []
    for cell_id, method, told in keys:
        label = " · ".join(told.values()) or method_label(method)
        labels[label] = labels.get(label, 0) + 1
        if labels[label] > 1:
            label = f"{label} · {cell_id[:8]}"
        name = label if facet is None else " · ".join(text for key, text in told.items() if key != facet)
        style = styles.setdefault(name, Style(len(styles)))
        own = rows[cell_id, method]
        panel = "" if facet is None else told[facet]
        found.append(
            Series(cell_id, method, label, name, panel, style, _measured(own), best.get((cell_id, method)))
        )
    return found


def _measured(rows: Sequence[Row]) -> tuple[Row, ...]:
    kept = [
        row for row in rows if number(row.get("speedup")) is not None and row.get("status") != Status.FAILED
    ]
    return tuple(sorted(kept, key=lambda row: number(row.get("k")) or 0.0))
