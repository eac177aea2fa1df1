"""A cell's counting rows, prepared and paired once for every table that is derived from them."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import pandas as pd

from harness.results.observation_table import SCHEMA
from harness.results.pairing import pair_each, prepare


class PreparedCell:
    """The counting rows of one cell, by variant, each beside its baseline's."""

    def __init__(self, cell_id: str, rows: pd.DataFrame, baseline_ids: set[Any]) -> None:
        """Prepare the rows.

        Args:
            cell_id: the cell.
            rows: its counting observations; facts are left out.
            baseline_ids: names of its variants that draft nothing.
        """
        self.cell_id = cell_id
        self.baseline_ids = baseline_ids
        self.rows = prepare(rows[SCHEMA.names])

    @cached_property
    def variants(self) -> dict[Any, pd.DataFrame]:
        """Rows by variant, in the order in which they were first decoded."""
        return dict(iter(self.rows.groupby("variant_id", sort=False)))

    @cached_property
    def baseline(self) -> pd.DataFrame:
        """Rows without speculation."""
        return self.rows[self.rows["variant_id"].isin(self.baseline_ids)]

    @cached_property
    def paired(self) -> dict[Any, pd.DataFrame]:
        """Each variant's rows joined to the baseline's, see `harness.results.pairing.pair`."""
        return pair_each(self.rows, self.baseline)
