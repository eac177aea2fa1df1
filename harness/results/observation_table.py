"""Observations as an Arrow table: the schema, and reading and writing it as Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from harness.errors import ResultFormatError
from harness.records import FORMAT_VERSION, Observation
from harness.results.storage import write_atomic

_VERSION_KEY = b"format_version"
_PARTS_KEY = b"num_parts_merged"

SCHEMA = pa.schema(
    [
        pa.field("cell_id", pa.string(), nullable=False),
        pa.field("variant_id", pa.string(), nullable=False),
        pa.field("phase", pa.string(), nullable=False),
        pa.field("repeat", pa.int32(), nullable=False),
        pa.field("block", pa.int32(), nullable=False),
        pa.field("order", pa.int32(), nullable=False),
        pa.field("prompt_id", pa.string(), nullable=False),
        pa.field("task", pa.string(), nullable=False),
        pa.field("seed", pa.int64(), nullable=False),
        pa.field("status", pa.string(), nullable=False),
        pa.field("error", pa.string()),
        pa.field("started_s", pa.float64()),
        pa.field("trial_s", pa.float64()),
        pa.field("num_prompt_tokens", pa.int32()),
        pa.field("num_output_tokens", pa.int32()),
        pa.field("finish_reason", pa.string()),
        pa.field("ttft_s", pa.float64()),
        pa.field("decode_s", pa.float64()),
        pa.field("total_s", pa.float64()),
        pa.field("num_target_forwards", pa.int32()),
        pa.field("last_step_truncated", pa.bool_()),
        pa.field("step_proposed", pa.list_(pa.int32())),
        pa.field("step_accepted", pa.list_(pa.int32())),
        pa.field("step_emitted", pa.list_(pa.int32())),
        pa.field("step_draft_s", pa.list_(pa.float64())),
        pa.field("step_verify_s", pa.list_(pa.float64())),
        pa.field("step_s", pa.list_(pa.float64())),
        pa.field("steps_missing_reason", pa.string()),
        pa.field("peak_memory_bytes", pa.int64()),
        pa.field("output_tokens", pa.list_(pa.int32())),
    ]
)
"""One field per attribute of `Observation`, in its order."""


def to_table(observations: Sequence[Observation]) -> pa.Table:
    """Rows as an Arrow table of `SCHEMA`."""
    return pa.Table.from_pylist([observation.row() for observation in observations], schema=SCHEMA)


def write_table(path: Path, table: pa.Table, *, num_parts_merged: int = 0) -> None:
    """Write a table as Parquet, whole or not at all.

    Args:
        path: of the file.
        table: rows of `SCHEMA`.
        num_parts_merged: parts with a lower number are contained in the table.

    Raises:
        StorageError: the disk is full, read-only or not writable.
    """
    metadata = {_VERSION_KEY: str(FORMAT_VERSION), _PARTS_KEY: str(num_parts_merged)}
    stamped = table.replace_schema_metadata(metadata)
    write_atomic(path, lambda file: pq.write_table(stamped, file, compression="zstd", use_dictionary=True))


def read_table(path: Path) -> tuple[pa.Table, int]:
    """Read what `write_table` wrote.

    Returns:
        The rows, and `num_parts_merged`.

    Raises:
        ResultFormatError: another format version, or other columns than `SCHEMA`.
        OSError: the file is damaged (`pyarrow.ArrowException` likewise).
    """
    with path.open("rb") as file:
        table = pq.read_table(file)
    metadata = table.schema.metadata or {}
    check_version(path, metadata.get(_VERSION_KEY, b"none").decode())
    if not table.schema.equals(SCHEMA, check_metadata=False):
        odd = sorted(set(table.schema.names) ^ set(SCHEMA.names)) or ["types differ"]
        raise ResultFormatError(
            f"{path}: needs the columns of format version {FORMAT_VERSION}, differs in {', '.join(odd)}. "
            "Measure the cell again."
        )
    return table.replace_schema_metadata(None), int(metadata.get(_PARTS_KEY, b"0"))


DAMAGE = (pa.ArrowException, OSError)
"""What `read_table` raises for a truncated or overwritten file."""


def check_version(path: Path, found: object) -> None:
    """Refuse a file of another format version.

    Raises:
        ResultFormatError: names both versions.
    """
    if str(found) != str(FORMAT_VERSION):
        raise ResultFormatError(
            f"{path}: format version {found}, this release reads version {FORMAT_VERSION}. "
            "Read it with the release that wrote it, or measure again."
        )
