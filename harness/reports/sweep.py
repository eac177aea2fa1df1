"""The results of a sweep as plain rows: read once from the frames, then shared by every section."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from harness.records import CellRecord, Phase
from harness.reports.labels import Row, cell_labels, in_reading_order, varying_facts
from harness.reports.series import Series, series_of

if TYPE_CHECKING:
    import pandas as pd

    from harness.results import Results


@dataclass(frozen=True)
class Sweep:
    """Rows by topic; every row has a `cell_id`, most a `variant_id`.

    Attributes:
        name: of the run or sweep.
        cells: one row per cell, in reading order.
        variants: summary rows, baselines included.
        best: fastest and recommended k per cell and method.
        tasks: summary by task.
        positions: acceptance by place in the draft.
        agreement: greedy output compared with the baseline's.
        cold_start: timed set-up parts.
        failures: what went wrong.
        records: full records by cell id.
        facts: names of the cell columns that hold facts.
        num_repeats: measured passes over the prompts, by cell id.
    """

    name: str
    cells: Sequence[Row]
    variants: Sequence[Row]
    best: Sequence[Row]
    tasks: Sequence[Row]
    positions: Sequence[Row]
    agreement: Sequence[Row]
    cold_start: Sequence[Row]
    failures: Sequence[Row]
    records: dict[str, CellRecord]
    facts: Sequence[str]
    num_repeats: dict[str, int]

    @cached_property
    def labels(self) -> dict[str, str]:
        """A label per cell id."""
        return cell_labels(self.cells)

    @cached_property
    def varying(self) -> list[str]:
        """Names of the facts that differ between cells."""
        return varying_facts(self.cells)

    @cached_property
    def series(self) -> list[Series]:
        """The speculating variants, grouped for reading."""
        return series_of(self.cells, self.variants, self.best)

    @property
    def has_many_cells(self) -> bool:
        """Whether a row needs to say which cell it belongs to."""
        return len(self.cells) > 1

    @property
    def all_variants(self) -> list[Row]:
        """Summary rows in reading order."""
        return [row for cell in self.cells for row in self.variants_of(cell["cell_id"])]

    def baseline(self, cell_id: str) -> Row | None:
        """The row without speculation of a cell."""
        return next((row for row in self.variants_of(cell_id) if row["is_baseline"]), None)

    def variants_of(self, cell_id: str) -> list[Row]:
        """Summary rows of a cell, the baseline first, then by method and k."""
        own = [row for row in self.variants if row["cell_id"] == cell_id]
        return sorted(own, key=lambda row: (not row["is_baseline"], str(row["method"]), float(row["k"] or 0)))


def read_sweep(results: Results) -> Sweep:
    """Take from results what a report shows; derives no statistic of its own."""
    measured = results.observations
    measured = measured[measured["phase"] == Phase.MEASURE.value]
    repeats = measured.groupby("cell_id")["repeat"].nunique()
    cells = in_reading_order(_rows(results.cells))
    return Sweep(
        name=str(next((cell["name"] for cell in cells if cell.get("name")), results.path.name)),
        cells=cells,
        variants=_rows(results.summary()),
        best=_rows(results.best_k()),
        tasks=_rows(results.by_task()),
        positions=_rows(results.per_position()),
        agreement=_rows(results.greedy_agreement()),
        cold_start=_rows(results.cold_start),
        failures=_rows(results.failures),
        records=dict(results.records),
        facts=list(results.fact_columns),
        num_repeats={str(cell_id): int(count) for cell_id, count in repeats.items()},
    )


def _rows(frame: pd.DataFrame) -> list[Row]:
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]
