"""The tables that are derived cell by cell: which there are, and where they come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd
import pyarrow as pa

from harness.records import Phase
from harness.results.agreement import greedy_agreement
from harness.results.breakdowns import by_task, per_position
from harness.results.ceiling import chosen_k, look_ahead
from harness.results.cell_folder import StoredCell
from harness.results.engines import prompt_sums
from harness.results.frames import Frames
from harness.results.pace import pace_by_step, pace_shares
from harness.results.spread import spread
from harness.results.summary import summarise


def num_repeats(frames: Frames) -> pd.DataFrame:
    """Measured passes over the prompts, a row per cell with any."""
    rows = frames.observations
    repeats = rows[rows["phase"] == Phase.MEASURE.value].groupby("cell_id")["repeat"].nunique()
    return repeats.rename("num_repeats").reset_index()


TABLES: Mapping[str, Callable[[Frames], pd.DataFrame]] = {
    "summary": summarise,
    "by_task": by_task,
    "per_position": per_position,
    "look_ahead": look_ahead,
    "chosen_k": chosen_k,
    "pace_by_step": pace_by_step,
    "pace_shares": pace_shares,
    "spread": spread,
    "greedy_agreement": greedy_agreement,
    "prompt_sums": prompt_sums,
    "num_repeats": num_repeats,
}
"""By name: a table of one cell's rows, without its facts."""


def derive(path: Path, cell: StoredCell) -> dict[str, pa.Table]:
    """Every table of one cell from its observations.

    Raises:
        ResultFormatError: the observations can't be read.
    """
    frames = Frames(path, [cell])
    return {name: pa.Table.from_pandas(of(frames), preserve_index=False) for name, of in TABLES.items()}


def joined(tables: list[pa.Table]) -> pd.DataFrame:
    """Tables of several cells one after the other; a column that one of them lacks values for takes the type
    it has in the others.
    """
    filled = [table.replace_schema_metadata(None) for table in tables if table.num_rows]
    filled = filled or [tables[0].replace_schema_metadata(None)]
    whole = pa.concat_tables(_with_types_of_others(filled), promote_options="permissive")
    frame: pd.DataFrame = whole.to_pandas()
    return frame


def _with_types_of_others(tables: list[pa.Table]) -> list[pa.Table]:
    """Give columns without any value the type that they have where there are values."""
    known = {
        field.name: field.type
        for table in tables
        for field, column in zip(table.schema, table.columns, strict=True)
        if column.null_count < len(column)
    }
    found = []
    for table in tables:
        for place, (field, column) in enumerate(zip(table.schema, table.columns, strict=True)):
            wanted = known.get(field.name, field.type)
            if column.null_count == len(column) and field.type != wanted:
                table = table.set_column(place, field.name, pa.nulls(len(column), wanted))
        found.append(table)
    return found
