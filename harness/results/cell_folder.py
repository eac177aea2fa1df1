"""A cell's folder as it is read: the record, the merged observations and the parts that came after them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from harness.errors import ResultFormatError
from harness.records import CellRecord, Failure
from harness.results.digest import DIGEST_FILE, Digest, read_digest, stamp_of
from harness.results.observation_table import DAMAGE, SCHEMA, check_version, read_table

if TYPE_CHECKING:
    import pandas as pd

CELL_FILE = "cell.json"
LATEST_FILE = "latest.json"
OBSERVATIONS_FILE = "observations.parquet"
PARTS_FOLDER = "observations"
ASIDE_SUFFIX = ".damaged"

_PART = re.compile(r"part-\d+-(\d+)\.parquet(\.damaged)?")


@dataclass(frozen=True, slots=True)
class StoredCell:
    """A cell as read: its record, one row per observation, and the parts that couldn't be read.

    Attributes:
        record: all but the observations.
        rows: the observations, or the folder they are read from each time `table` is asked for.
        problems: the parts that couldn't be read, and why.
        digest: tables derived earlier, where they are those that would be derived now.
    """

    record: CellRecord
    rows: pa.Table | Path
    problems: tuple[str, ...] = ()
    digest: Digest | None = None

    @property
    def table(self) -> pa.Table:
        """One row per observation.

        Raises:
            ResultFormatError: the file is damaged or of another format version.
        """
        return read_observations(self.rows)[0] if isinstance(self.rows, Path) else self.rows

    @property
    def observations(self) -> pd.DataFrame:
        """The rows as a data frame, columns as in `Observation`."""
        frame: pd.DataFrame = self.table.to_pandas()
        return frame


def latest_cells(folder: Path) -> frozenset[str] | None:
    """Names of the cells the latest command was about, where one of them is stored; None otherwise.

    Raises:
        ResultFormatError: the list is damaged or of another version.
    """
    file = folder / LATEST_FILE
    if not file.is_file():
        return None
    names = frozenset(str(name) for name in read_json(file).get("cells", ()))
    return names if any((folder / name / CELL_FILE).is_file() for name in names) else None


def read_cell(folder: Path) -> StoredCell:
    """Read a cell's folder.

    Raises:
        ResultFormatError: a file is of another version or damaged; a damaged part is a `problem` instead.
    """
    record = _record_of(folder / CELL_FILE, read_json(folder / CELL_FILE))
    table, problems = read_observations(folder)
    return StoredCell(record, table, tuple(problems.values()))


def read_digested(folder: Path) -> StoredCell:
    """Read a cell's folder; where there is a digest of it, the observations only when they are asked for.

    Raises:
        ResultFormatError: as `read_cell`; what is wrong with the observations of a digested cell shows later.
    """
    digest = read_digest(folder / DIGEST_FILE, stamp=cell_stamp(folder))
    if digest is None:
        return read_cell(folder)
    return StoredCell(_record_of(folder / CELL_FILE, read_json(folder / CELL_FILE)), folder, digest=digest)


def cell_stamp(folder: Path) -> str | None:
    """What a cell's derived tables hang on; None while it has parts that aren't merged, or damaged ones."""
    if any((folder / PARTS_FOLDER).glob("*")):
        return None
    try:
        text = (folder / CELL_FILE).read_bytes()
    except OSError:
        return None
    return stamp_of(text, folder / OBSERVATIONS_FILE)


def read_json(path: Path) -> dict[str, Any]:
    """Read `cell.json`.

    Raises:
        ResultFormatError: it is damaged or of another format version.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ResultFormatError(
            f"{path}: can't be read ({error}). Delete the folder and measure again."
        ) from error
    if not isinstance(data, dict):
        raise ResultFormatError(f"{path}: needs a JSON object. Delete the folder and measure again.")
    check_version(path, data.get("format_version", "none"))
    return data


def _record_of(path: Path, data: dict[str, Any]) -> CellRecord:
    odd = set(data) - {field.name for field in fields(CellRecord)}
    try:
        if odd:
            raise TypeError(f"unknown fields {sorted(odd)}")
        failures = [Failure(**failure) for failure in data.pop("failures", [])]
        return CellRecord(**data, failures=failures)
    except TypeError as error:
        raise ResultFormatError(f"{path}: not a cell record ({error}). Measure the cell again.") from error


def numbered_parts(parts: Path) -> list[tuple[int, Path]]:
    """Parts in the order they were written, those set aside as damaged included."""
    found = [(match, path) for path in parts.glob("part-*") if (match := _PART.fullmatch(path.name))]
    return sorted((int(match[1]), path) for match, path in found)


def read_merged(folder: Path) -> tuple[pa.Table, int]:
    """The merged file's rows, and the number of the first part that isn't among them.

    Raises:
        ResultFormatError: it is damaged or of another format version.
    """
    path = folder / OBSERVATIONS_FILE
    if not path.is_file():
        return SCHEMA.empty_table(), 0
    try:
        return read_table(path)
    except DAMAGE as error:
        raise ResultFormatError(
            f"{path}: damaged ({error}). Delete the folder {folder.name} and measure the cell again."
        ) from error


def read_observations(folder: Path) -> tuple[pa.Table, dict[Path, str]]:
    """The merged file and the parts that came after it; damaged parts by path, with what is wrong."""
    merged, num_merged = read_merged(folder)
    tables, problems = [merged], {}
    for number, path in numbered_parts(folder / PARTS_FOLDER):
        if path.suffix == ASIDE_SUFFIX or number < num_merged:
            continue
        try:
            tables.append(read_table(path)[0])
        except DAMAGE as error:
            problems[path] = f"{path}: damaged ({error})."
    return pa.concat_tables(tables), problems
