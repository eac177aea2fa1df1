"""Cells on disk: written trial by trial, so that a killed run loses at most the trial it was in.

While a cell is measured its folder holds `cell.json` and one small Parquet part per appended batch of
observations; finishing merges the parts into `observations.parquet`. Both states read the same.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from harness.errors import ConfigError
from harness.records import FORMAT_VERSION, CellRecord, Observation, Status
from harness.results.cell_folder import (
    ASIDE_SUFFIX,
    CELL_FILE,
    LATEST_FILE,
    OBSERVATIONS_FILE,
    PARTS_FOLDER,
    StoredCell,
    numbered_parts,
    read_cell,
    read_json,
    read_merged,
    read_observations,
)
from harness.results.observation_table import to_table, write_table
from harness.results.storage import check_writable, remove_temporaries, storage_errors, write_atomic

Trial = tuple[str, str, int, int]
"""variant_id, phase, repeat, block."""

_LOG = logging.getLogger(__name__)


class ResultStore:
    """The cells of one run or sweep, each in `root/name/cell_id`."""

    def __init__(self, root: Path, name: str) -> None:
        """Point at a folder, which is created when first written to.

        Raises:
            ConfigError: nothing of the name is left without separators and odd characters.
        """
        self.name = file_name(name)
        self.path = Path(root) / self.name

    def check_writable(self) -> None:
        """Prove, before anything is measured, that results can be stored.

        Raises:
            StorageError: they can't; the message says why and what to do.
        """
        check_writable(self.path)

    def open_cell(self, record: CellRecord, *, at_once: bool = False) -> CellWriter:
        """Start a cell, or go on with one that was interrupted; stored trials are kept.

        Args:
            record: of the cell.
            at_once: store its trials when it is finished, as suits trials that take less time than a file.

        Raises:
            StorageError: the folder can't be written.
            ResultFormatError: the folder holds a cell of another format version.
        """
        writer = CellAtOnceWriter if at_once else CellWriter
        return writer(self.path / file_name(record.cell_id), record)

    def load_cell(self, cell_id: str) -> StoredCell | None:
        """Read a cell, finished or not; None where there is none.

        Raises:
            ResultFormatError: a file is of another version or damaged. A damaged part is a `problem` instead.
        """
        folder = self.path / file_name(cell_id)
        return read_cell(folder) if (folder / CELL_FILE).is_file() else None

    def select(self, cell_ids: Sequence[str]) -> None:
        """Say which cells the latest command is about; `load` and reports show these.

        Raises:
            StorageError: the folder can't be written.
        """
        content = {"format_version": FORMAT_VERSION, "cells": sorted(file_name(name) for name in cell_ids)}
        text = json.dumps(content, indent=2) + "\n"
        with storage_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        write_atomic(self.path / LATEST_FILE, lambda file: file.write(text.encode()))

    def discard(self, cell_id: str) -> None:
        """Delete a cell, if it is there, so that it is measured from the start."""
        folder = self.path / file_name(cell_id)
        if folder.is_dir():
            with storage_errors(folder):
                shutil.rmtree(folder)

    def cell_ids(self) -> list[str]:
        """Names of the stored cells, sorted."""
        return sorted(file.parent.name for file in self.path.glob(f"*/{CELL_FILE}"))

    def cells(self) -> Iterator[StoredCell]:
        """All stored cells, in the order of their ids."""
        for cell_id in self.cell_ids():
            yield read_cell(self.path / cell_id)

    def completed_trials(self, cell_id: str) -> set[Trial]:
        """Trials whose every sequence is stored and ok: what a resumed run needn't repeat.

        Failed and skipped trials are not among them, nor those of a damaged part. Warmup trials are, but a
        new process repeats them all the same: their cost is its own.
        """
        cell = self.load_cell(cell_id)
        if cell is None:
            return set()
        columns = [cell.table[key].to_pylist() for key in ("variant_id", "phase", "repeat", "block")]
        trials = list(zip(*columns, strict=True))
        statuses = cell.table["status"].to_pylist()
        unfinished = {trial for trial, status in zip(trials, statuses, strict=True) if status != Status.OK}
        return set(trials) - unfinished


class CellWriter:
    """Appends to one cell. What `append` and `update` return from is on disk."""

    def __init__(self, folder: Path, record: CellRecord) -> None:
        """Create or reopen the folder, clean up after a killed run, and store the record."""
        self.folder = folder
        self._parts = folder / PARTS_FOLDER
        if (folder / CELL_FILE).is_file():
            read_json(folder / CELL_FILE)
        with storage_errors(folder):
            self._parts.mkdir(parents=True, exist_ok=True)
            remove_temporaries(folder)
            remove_temporaries(self._parts)
        self._set_damaged_parts_aside()
        num_merged = read_merged(folder)[1]
        self._next_part = max([num_merged, *(number + 1 for number, _ in numbered_parts(self._parts))])
        self.update(record)

    def append(self, observations: Sequence[Observation]) -> None:
        """Store the observations of a trial (or of several) as one part.

        Raises:
            StorageError: the disk is full, read-only or not writable.
        """
        if not observations:
            return
        with storage_errors(self._parts):
            self._parts.mkdir(exist_ok=True)
        path = self._parts / f"part-{observations[0].block:05d}-{self._next_part}.parquet"
        write_table(path, to_table(observations))
        self._next_part += 1

    def update(self, record: CellRecord) -> None:
        """Replace the stored record.

        Raises:
            StorageError: the disk is full, read-only or not writable.
        """
        text = json.dumps(asdict(record), indent=2, default=str) + "\n"
        write_atomic(self.folder / CELL_FILE, lambda file: file.write(text.encode()))

    def finish(self, record: CellRecord) -> None:
        """Merge the parts into one file and store the final record; the cell can still be reopened.

        Raises:
            StorageError: the disk is full, read-only or not writable.
        """
        table, problems = read_observations(self.folder)
        # The merged file says which parts it holds: killed before they are deleted, none counts twice.
        write_table(self.folder / OBSERVATIONS_FILE, table, num_parts_merged=self._next_part)
        with storage_errors(self._parts):
            for _, part in numbered_parts(self._parts):
                if part.suffix != ASIDE_SUFFIX and part not in problems:
                    part.unlink(missing_ok=True)
            if self._parts.is_dir() and not any(self._parts.iterdir()):
                self._parts.rmdir()
        self.update(record)

    def _set_damaged_parts_aside(self) -> None:
        _, problems = read_observations(self.folder)
        for path, problem in problems.items():
            _LOG.warning("%s Its trials are measured again.", problem)
            with storage_errors(path):
                path.rename(path.with_name(path.name + ASIDE_SUFFIX))


class CellAtOnceWriter(CellWriter):
    """Keeps what is appended until the cell is finished; a killed run loses it."""

    def __init__(self, folder: Path, record: CellRecord) -> None:
        """See `CellWriter`."""
        super().__init__(folder, record)
        self._kept: list[Observation] = []

    def append(self, observations: Sequence[Observation]) -> None:
        """Keep the observations of a trial."""
        self._kept += observations

    def finish(self, record: CellRecord) -> None:
        """Store everything kept; see `CellWriter.finish`."""
        super().append(self._kept)
        self._kept = []
        super().finish(record)


def file_name(name: str) -> str:
    """A name fit for one folder: letters, digits, dot, dash and underscore; others become a dash.

    Raises:
        ConfigError: nothing is left of it.
    """
    clean = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-")
    if not clean:
        raise ConfigError("name", "needs a letter or a digit, as it names the results folder", name)
    return clean
