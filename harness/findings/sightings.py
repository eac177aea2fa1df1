"""What rules see in the observations of one cell, kept with its derived tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa

from harness.findings.finding import Confidence, Rule, Sighting
from harness.findings.tables import Tables
from harness.results import Results, load
from harness.results.cell_folder import cell_stamp
from harness.results.digest import DIGEST_FILE, Digest, write_digest

TABLE = "sightings"
_COLUMNS = ("cell_id", "variant_id", "rule", "text", "figures", "confidence", "next_step")
_SCHEMA = pa.schema([(name, pa.string()) for name in _COLUMNS])


def keep_derived(folder: Path, rules: Sequence[Rule]) -> None:
    """Derive a finished cell's tables and sightings, and keep them in its folder.

    Args:
        folder: of the cell.
        rules: whose sightings to keep, those that read rows.

    Raises:
        ResultFormatError: the cell can't be read.
        StorageError: the disk is full, read-only or not writable.
    """
    stamp = cell_stamp(folder)
    if stamp is None:
        return
    results = load(folder)
    tables = results.tables[0]
    if not isinstance(tables, Digest):
        write_digest(folder / DIGEST_FILE, {**tables, TABLE: _table(seen(results, rules))}, stamp=stamp)


def seen(results: Results, rules: Sequence[Rule]) -> list[tuple[str, Sighting]]:
    """What rules that read rows see in each cell, with their names; in the order of cells, then of rules."""
    found: list[tuple[str, Sighting]] = []
    for one in results.cell_by_cell():
        digest = one.stored[0].digest
        if digest is not None and TABLE in digest:
            found += _sightings(digest[TABLE])
        else:
            tables = Tables(one)
            found += [(rule.name, sighting) for rule in rules for sighting in rule.search(tables)]
    return found


def _table(found: Iterable[tuple[str, Sighting]]) -> pa.Table:
    rows = [
        {
            "cell_id": sighting.cell_id,
            "variant_id": sighting.variant_id,
            "rule": name,
            "text": sighting.text,
            "figures": json.dumps(dict(sighting.figures), default=float),
            "confidence": sighting.confidence.value,
            "next_step": sighting.next_step,
        }
        for name, sighting in found
    ]
    return pa.Table.from_pylist(rows, schema=_SCHEMA)


def _sightings(table: pa.Table) -> Iterable[tuple[str, Sighting]]:
    for row in table.to_pylist():
        confidence, figures = Confidence(row.pop("confidence")), json.loads(row.pop("figures"))
        yield row.pop("rule"), Sighting(**row, figures=figures, confidence=confidence)
