"""Made-up runs that are compared without going through a disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from synthetic_results import USUAL, Truth, synthetic_cells

from harness.gate.check import Check, Comparison
from harness.gate.comparison import compare
from harness.gate.settings import GateSettings, MetricSettings, load_gate
from harness.records import CellRecord, Observation
from harness.results import Results, StoredCell
from harness.results.observation_table import to_table

KS = (1, 3)
Change = Callable[[CellRecord, list[Observation]], list[Observation]]


def made_up(
    *,
    seed: int = 0,
    ks: Sequence[int] = KS,
    temperatures: Sequence[float] = (0.0,),
    num_prompts: int = 12,
    num_repeats: int = 2,
    truth: Truth = USUAL,
    change: Change = lambda _, rows: rows,
) -> Results:
    """A run in memory; `change` edits each cell's record and rows before they are stored."""
    cells = synthetic_cells(
        "run",
        temperatures=temperatures,
        ks=ks,
        num_prompts=num_prompts,
        seed=seed,
        num_repeats=num_repeats,
        truth=truth,
    )
    return Results(
        Path("run"),
        [StoredCell(record, to_table(change(record, list(chain(*blocks))))) for record, blocks in cells],
    )


def edit(**changes: Any) -> Callable[[Observation], Observation]:
    return lambda row: replace(row, **changes)


def gate(
    metrics: dict[str, MetricSettings] | None = None, *, name: str = "default", **settings: Any
) -> GateSettings:
    """A shipped gate's own metrics without those that are only shown, which take time; or other metrics."""
    shipped = load_gate(name)
    deciding = {metric: one for metric, one in shipped.metrics.items() if one.gated}
    return replace(shipped, **{"num_resamples": 500, **settings}, metrics=metrics or deciding)


def judged(base: Results, head: Results, **settings: Any) -> Comparison:
    return compare(base, head, gate(**settings))


def checks(found: Comparison, metric: str, variant: str | None = None) -> list[Check]:
    return [c for c in found.checks if c.metric == metric and variant in (None, c.variant)]
