"""Predicted and measured figures of an engine under load, as they are stored and shown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.errors import ResultFormatError
from harness.results.storage import write_atomic

VALIDATION_FILE = "validation.json"
FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class ValidationRow:
    """One figure at one load.

    Attributes:
        variant_id: what decoded.
        requests_per_s: the load.
        figure: such as `ttft_p95_s`.
        predicted: mean over seeds.
        predicted_low: lower end of its 95 % interval; None without one.
        predicted_high: upper end.
        measured: on the engine.
    """

    variant_id: str
    requests_per_s: float
    figure: str
    predicted: float
    predicted_low: float | None
    predicted_high: float | None
    measured: float

    @property
    def error(self) -> float:
        """Signed and relative: above 0 where the prediction is too slow."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True, slots=True)
class ValidationTable:
    """Every load that was driven.

    Attributes:
        backend: what was driven.
        num_requests: per load.
        prompts: ids of those it was driven with.
        held_out: whether none of them calibrated the model; its loads never did.
        rows: in the order they were measured.
    """

    backend: str
    num_requests: int
    prompts: Sequence[str]
    held_out: bool
    rows: Sequence[ValidationRow]

    def summary(self) -> list[tuple[str, float, float]]:
        """Per figure: mean signed error (bias) and mean absolute error over variants and loads."""
        figures = list(dict.fromkeys(row.figure for row in self.rows))
        errors = {name: np.array([r.error for r in self.rows if r.figure == name]) for name in figures}
        return [(name, float(errors[name].mean()), float(np.abs(errors[name]).mean())) for name in figures]


def write_validation(table: ValidationTable, folder: Path) -> Path:
    """Store a table beside the results it validates.

    Raises:
        StorageError: the folder can't be written.
    """
    document = {"format_version": FORMAT_VERSION, **asdict(table)}
    path = folder / VALIDATION_FILE
    write_atomic(path, lambda file: file.write((json.dumps(document, indent=2) + "\n").encode()))
    return path


def read_validation(folder: Path) -> ValidationTable | None:
    """The table stored beside results; None where they weren't validated.

    Raises:
        ResultFormatError: the file is damaged or of another version.
    """
    path = folder / VALIDATION_FILE
    if not path.is_file():
        return None
    remedy = "Delete it and run python -m harness plan validate again."
    try:
        document: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if document["format_version"] != FORMAT_VERSION:
            raise ResultFormatError(f"{path}: format version {document['format_version']}. {remedy}")
        rows = [ValidationRow(**row) for row in document["rows"]]
        return ValidationTable(
            document["backend"], document["num_requests"], document["prompts"], document["held_out"], rows
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ResultFormatError(f"{path}: can't be read ({error}). {remedy}") from error
