"""Made-up runs that are compared without going through a disk."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from synthetic_results import USUAL, Truth, synthetic_cells

from harness.gate.check import Check, Comparison
from harness.gate.comparison import compare
from harness.gate.settings import GateSettings, parse_gate
from harness.records import CellRecord, Observation
from harness.results import Results, StoredCell
from harness.results.observation_table import to_table

KS = (1, 3)
MARGINS = {
    "acceptance_rate": 0.02,
    "tokens_per_forward": 0.03,
    "greedy_agreement": 0.05,
    "speedup": 0.05,
    "end_to_end_speedup": 0.05,
}


def made_up(
    *,
    seed: int = 0,
    ks: Sequence[int] = KS,
    temperatures: Sequence[float] = (0.0,),
    num_prompts: int = 12,
    num_repeats: int = 2,
    truth: Truth = USUAL,
) -> Results:
    cells = synthetic_cells(
        "run",
        temperatures=temperatures,
        ks=ks,
        num_prompts=num_prompts,
        seed=seed,
        num_repeats=num_repeats,
        truth=truth,
    )
    return Results(Path("run"), [stored(record, list(chain(*blocks))) for record, blocks in cells])


def stored(record: CellRecord, rows: Sequence[Observation]) -> StoredCell:
    return StoredCell(record, to_table(rows))


def gate(metrics: dict[str, Any] | None = None, **settings: Any) -> GateSettings:
    """A gate without tails, so that no summary is computed; `metrics` adds to or replaces the usual ones."""
    content = {name: {"margin": margin} for name, margin in MARGINS.items()} | (metrics or {})
    return parse_gate({"num_resamples": 500, **settings, "metrics": content}, name="test")


def checks(found: Comparison, metric: str, variant: str | None = None) -> list[Check]:
    return [c for c in found.checks if c.metric == metric and variant in (None, c.variant)]


def judged(base: Results, head: Results, **settings: Any) -> Comparison:
    return compare(base, head, gate(**settings))
