"""A finished cell's derived tables, kept beside its observations so that thousands of cells read quickly.

A digest holds nothing that the observations don't give: it is used only if the same code would derive it from
the same files, and left aside otherwise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa

from harness.records import FORMAT_VERSION
from harness.results.storage import write_atomic

DIGEST_FILE = "derived.arrow"

_STAMP_KEY = b"stamp"
_DERIVING = ("records.py", "metrics/*.py", "results/*.py", "findings/*.py")
_LIBRARIES = ("numpy", "pandas", "pyarrow", "scipy")
_COMPRESSION = "zstd"
_FOOTER_END_BYTES = 8  # of a Parquet file: the footer's length and the magic bytes


class Digest:
    """The kept tables of one cell by name; each is decoded when asked for."""

    def __init__(self, encoded: pa.Table) -> None:
        """Wrap one row of encoded tables."""
        self._encoded = encoded

    def __contains__(self, name: str) -> bool:
        """Whether a table of this name was kept."""
        return name in self._encoded.column_names

    def __getitem__(self, name: str) -> pa.Table:
        """A table by name."""
        compressed = pa.BufferReader(self._encoded[name][0].as_buffer())
        with pa.ipc.open_stream(pa.CompressedInputStream(compressed, _COMPRESSION)) as reader:
            return reader.read_all()


def write_digest(path: Path, tables: Mapping[str, pa.Table], *, stamp: str) -> None:
    """Keep derived tables.

    Args:
        path: of the file.
        tables: by name.
        stamp: what they were derived from and by, see `stamp_of`.

    Raises:
        StorageError: the disk is full, read-only or not writable.
    """
    columns = {name: pa.array([_encode(table)], pa.large_binary()) for name, table in tables.items()}
    row = pa.table(columns).replace_schema_metadata({_STAMP_KEY: stamp})

    write_atomic(path, lambda file: _write_table(file, row))


def read_digest(path: Path, *, stamp: str | None) -> Digest | None:
    """The kept tables; None where there are none, or they are of other files or of other code.

    Args:
        path: of the file.
        stamp: what they must have been derived from and by.
    """
    if stamp is None:
        return None
    try:
        with pa.ipc.open_file(pa.py_buffer(path.read_bytes())) as reader:
            if (reader.schema.metadata or {}).get(_STAMP_KEY) != stamp.encode():
                return None
            return Digest(reader.read_all())
    except (OSError, pa.ArrowException):
        # a damaged digest is no loss: the observations give it again
        return None


def stamp_of(record_text: bytes, observations: Path) -> str | None:
    """What a cell's derived tables hang on: its record, its observations, and the code that derives.

    Args:
        record_text: content of `cell.json`.
        observations: the Parquet file, of whose content the footer speaks: sizes, and the columns' extremes.

    Returns:
        A hash; None where a part can't be read.
    """
    code = code_stamp()
    try:
        footer = _footer(observations)
    except OSError:
        return None
    if code is None or footer is None:
        return None
    parts = (code.encode(), record_text, str(observations.stat().st_size).encode(), footer)
    return hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


@lru_cache(maxsize=1)
def code_stamp() -> str | None:
    """A hash of the code that derives and of the libraries it calls; None where its source can't be read."""
    package = Path(__file__).parents[1]
    files = sorted(file for pattern in _DERIVING for file in package.glob(pattern))
    if not files:
        return None
    told = hashlib.sha256(str(FORMAT_VERSION).encode())
    for name in _LIBRARIES:
        told.update(f"{name} {version(name)}\n".encode())
    for file in files:
        told.update(file.name.encode() + file.read_bytes())
    return told.hexdigest()


def _footer(path: Path) -> bytes | None:
    """The footer of a Parquet file, its length and magic bytes included; None where there is none."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size < _FOOTER_END_BYTES:
            return None
        file.seek(size - _FOOTER_END_BYTES)
        length = int.from_bytes(file.read(4), "little")
        file.seek(max(0, size - _FOOTER_END_BYTES - length))
        return file.read()


def _encode(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with (
        pa.CompressedOutputStream(sink, _COMPRESSION) as stream,
        pa.ipc.new_stream(stream, table.schema) as writer,
    ):
        writer.write_table(table)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def _write_table(file: object, table: pa.Table) -> None:
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
