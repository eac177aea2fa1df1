"""The leading columns of every table: which cell, which variant."""

from __future__ import annotations

from harness.reports.blocks import Column, Entry, entry
from harness.reports.labels import Row, variant_label
from harness.reports.sweep import Sweep


def variant_columns(sweep: Sweep) -> list[Column]:
    """Columns that name a row: the cell where there are several, and the variant."""
    cell = [Column("cell", numeric=False)] if sweep.has_many_cells else []
    return [*cell, Column("variant", numeric=False)]


def variant_entries(sweep: Sweep, row: Row) -> list[Entry]:
    """What `variant_columns` head."""
    cell = [entry(sweep.labels[row["cell_id"]])] if sweep.has_many_cells else []
    return [*cell, entry(variant_label(row))]
