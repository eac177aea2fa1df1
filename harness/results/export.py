"""A data frame as a Parquet file for others to read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from harness.results.storage import write_atomic

if TYPE_CHECKING:
    import pandas as pd


def write_frame(path: Path, frame: pd.DataFrame) -> None:
    """Write a frame, without its index; a column of values of several types becomes JSON.

    Raises:
        StorageError: the disk is full, read-only or not writable.
    """
    table = pa.table({name: _column(frame[name]) for name in frame.columns})
    write_atomic(path, lambda file: pq.write_table(table, file, compression="zstd"))


def _column(values: pd.Series) -> pa.Array:
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([json.dumps(value, default=str) for value in values], pa.string())
