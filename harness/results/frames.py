"""Stored cells as tidy data frames."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from harness.records import CellRecord, Phase, Status
from harness.results.cell_folder import StoredCell
from harness.results.prepared import PreparedCell
from harness.verdicts import Divergence, LosslessRow

VARIANT_COLUMNS = ["method", "k", "drafter", "lossless", "is_baseline"]
_RECORD_COLUMNS = [
    "cell_id",
    "name",
    "status",
    "stop_reason",
    "started_at",
    "finished_at",
    "measured_wall_s",
    "decode_wall_s",
]
_STEP_KEYS = ["cell_id", "variant_id", "task", "prompt_id", "repeat", "block"]
_STEP_LISTS = ["proposed", "accepted", "emitted", "draft_s", "verify_s"]


@dataclass
class Frames:
    """What a run or sweep measured, as data frames.

    Attributes:
        path: the folder they were read from.
        stored: the cells as stored.
    """

    path: Path
    stored: Sequence[StoredCell]

    @property
    def records(self) -> dict[str, CellRecord]:
        """Full records by cell id, with configuration and environment."""
        return {cell.record.cell_id: cell.record for cell in self.stored}

    @cached_property
    def cells(self) -> pd.DataFrame:
        """One row per cell: status, wall times, and its facts as columns."""
        return pd.DataFrame([_cell_row(record) for record in self.records.values()])

    @cached_property
    def fact_columns(self) -> list[str]:
        """The columns of `cells` that hold facts: what a cell has in common."""
        names = {name: None for record in self.records.values() for name in _facts(record)}
        return list(names)

    @cached_property
    def variants(self) -> pd.DataFrame:
        """One row per cell and variant, as configured and as applied."""
        rows = [
            _variant_row(record, variant) for record in self.records.values() for variant in record.variants
        ]
        own = ["status", "error", "drafter_revision", "options", "applied"]
        columns = ["cell_id", "variant_id", *VARIANT_COLUMNS, *own]
        return pd.DataFrame(rows, columns=columns)

    @cached_property
    def observations(self) -> pd.DataFrame:
        """One row per decoded sequence, warmup included (see `phase`), with cell and variant facts."""
        table = pa.concat_tables([cell.table for cell in self.stored])
        return self.with_facts(table.to_pandas())

    @cached_property
    def measured(self) -> pd.DataFrame:
        """The observations that count: measured, not warmup, and ok."""
        frame = self.observations
        keep = (frame["phase"] == Phase.MEASURE.value) & (frame["status"] == Status.OK.value)
        return frame[keep].reset_index(drop=True)

    @cached_property
    def prepared(self) -> list[PreparedCell]:
        """The cells with counting observations, ready for ratios."""
        known = self.variants[self.variants["is_baseline"].eq(True)].groupby("cell_id")["variant_id"]
        baselines = {cell_id: set(ids) for cell_id, ids in known}
        return [
            PreparedCell(str(cell_id), rows, baselines.get(cell_id, set()))
            for cell_id, rows in self.measured.groupby("cell_id", sort=False)
        ]

    @cached_property
    def steps(self) -> pd.DataFrame:
        """One row per verification step of the observations that count, where steps are known."""
        return _explode_steps(self.measured)

    @cached_property
    def cold_start(self) -> pd.DataFrame:
        """One row per timed set-up part: cell_id, part, variant_id, seconds."""
        rows = [{"cell_id": cell_id, **part} for cell_id, r in self.records.items() for part in r.cold_start]
        return pd.DataFrame(rows, columns=["cell_id", "part", "variant_id", "seconds"])

    @cached_property
    def failures(self) -> pd.DataFrame:
        """One row per thing that went wrong, damaged files included (stage `storage`)."""
        columns = ["cell_id", "stage", "variant_id", "error", "traceback"]
        rows: list[tuple[str | None, ...]] = []
        for cell in self.stored:
            cell_id = cell.record.cell_id
            rows += [(cell_id, f.stage, f.variant_id, f.error, f.traceback) for f in cell.record.failures]
            rows += [(cell_id, "storage", None, problem, "") for problem in cell.problems]
        return pd.DataFrame(rows, columns=columns)

    @cached_property
    def lossless(self) -> pd.DataFrame:
        """One row per cell and variant that the lossless check looked at, the baseline as the control."""
        names = [field.name for field in fields(LosslessRow) if field.name != "divergences"]
        rows = [
            {"cell_id": cell_id, **{name: row.get(name) for name in names}}
            for cell_id, record in self.records.items()
            for row in record.lossless
        ]
        return self.with_facts(pd.DataFrame(rows, columns=["cell_id", *names]))

    @cached_property
    def divergences(self) -> pd.DataFrame:
        """One row per place where a greedy output left the baseline's, or the target its own."""
        names = [field.name for field in fields(Divergence)]
        rows = [
            {"cell_id": cell_id, "variant_id": row["variant_id"], **divergence}
            for cell_id, record in self.records.items()
            for row in record.lossless
            for divergence in row["divergences"]
        ]
        return pd.DataFrame(rows, columns=["cell_id", "variant_id", *names])

    def in_order(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Sort rows by cell and by the configured order of its variants, as drawn order is random."""
        keys = ["cell_id", "variant_id"]
        return self.variants[keys].merge(frame, on=keys)

    def with_facts(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Add cell facts, and variant facts where `variant_id` is a column; existing columns stay."""
        facts = [name for name in self.fact_columns if name not in frame.columns]
        joined = frame.merge(self.cells[["cell_id", *facts]], on="cell_id", how="left")
        if "variant_id" in frame.columns:
            names = [name for name in VARIANT_COLUMNS if name not in joined.columns]
            keys = ["cell_id", "variant_id"]
            joined = joined.merge(self.variants[keys + names], on=keys, how="left")
        return joined


def rows_of(frame: pd.DataFrame) -> list[Mapping[str, Any]]:
    """A frame's rows as mappings."""
    names = [str(name) for name in frame.columns]
    columns = [frame[name].tolist() for name in frame.columns]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _cell_row(record: CellRecord) -> dict[str, Any]:
    own = {name: getattr(record, name) for name in _RECORD_COLUMNS}
    counts = {"num_variants": len(record.variants), "num_failures": len(record.failures)}
    return own | counts | _facts(record)


def _facts(record: CellRecord) -> dict[str, Any]:
    taken = {*_RECORD_COLUMNS, "num_variants", "num_failures"}
    return {name: value for name, value in _flat(record.facts).items() if name not in taken}


def _variant_row(record: CellRecord, variant: Mapping[str, Any]) -> dict[str, Any]:
    row = {"cell_id": record.cell_id, **variant}
    for name in ("options", "applied"):
        row[name] = json.dumps(variant.get(name), sort_keys=True, default=str)
    return row


def _flat(facts: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as dotted columns; lists as JSON, since a cell of a table holds one value."""
    flat: dict[str, Any] = {}
    for name, value in facts.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = json.dumps(value) if isinstance(value, list | tuple) else value
    return flat


def _explode_steps(observations: pd.DataFrame) -> pd.DataFrame:
    known = observations[observations["step_proposed"].notna()]
    lengths = np.asarray([len(steps) for steps in known["step_proposed"]], dtype=np.int64)
    frame = known[_STEP_KEYS].take(np.repeat(np.arange(len(known)), lengths)).reset_index(drop=True)
    starts = np.repeat(lengths.cumsum() - lengths, lengths)
    frame["step"] = np.arange(len(frame)) - starts
    for name in _STEP_LISTS:
        frame[name] = _concatenate(known[f"step_{name}"], lengths)
    whole = _concatenate(known["step_s"], lengths)
    frame["step_s"] = np.where(np.isnan(whole), frame["draft_s"] + frame["verify_s"], whole)
    return frame


def _concatenate(lists: pd.Series[Any], lengths: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Lists one after the other; a missing one (steps counted but not timed) becomes NaN."""
    if not len(lists):
        return np.zeros(0)
    parts = [
        np.full(length, np.nan) if values is None or len(values) != length else np.asarray(values)
        for values, length in zip(lists, lengths, strict=True)
    ]
    return np.concatenate(parts)
