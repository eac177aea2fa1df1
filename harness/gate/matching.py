"""Which cell and variant of HEAD stands against which of BASE, and why one stands alone."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.privacy import clipped
from harness.records import CellRecord

VariantRow = Mapping[str, Any]

# A newer engine, measured the same way, is what a gate is for; it is mentioned, not refused. The others are
# measured, not set.
NOT_IDENTITY = frozenset(
    {"backend_version", "kernels", "target_weight_bytes", "peak_memory_scope", "quality"}
)
_KINDS = {
    "different pair": {"pair", "target", "target_revision"},
    "different workload": {"workload", "workload_sha256", "num_prompts"},
    "another drafter": {"drafter", "drafter_revision"},
}
_VARIANT_KEYS = ("method", "k", "drafter", "options", "lossless", "is_baseline")
_REVISION = "drafter_revision"
_VALUE_CHARACTERS = 40


@dataclass(frozen=True, slots=True)
class Matches:
    """Matched records or variants, and what stands alone with the reason.

    Attributes:
        pairs: (BASE, HEAD).
        missing: of BASE, without a counterpart in HEAD.
        new: of HEAD, without a counterpart in BASE.
    """

    pairs: list[tuple[Any, Any]]
    missing: list[tuple[Any, str]]
    new: list[tuple[Any, str]]


def cell_identity(record: CellRecord) -> dict[str, str]:
    """What must be equal for two cells to be the same measurement: every fact, and the thread count.

    The cell's id is not used: it holds the version of the code, which is what changes between the runs.
    """
    facts = {name: value for name, value in record.facts.items() if name not in NOT_IDENTITY}
    backend = record.config.get("backend")
    if isinstance(backend, Mapping) and "num_threads" in backend:
        facts["num_threads"] = backend["num_threads"]
    return {str(name): _text(value) for name, value in facts.items()}


def variant_identity(variant: VariantRow) -> dict[str, str]:
    """What must be equal for two variants to be the same: method, k, drafter and options."""
    return {name: _text(variant.get(name)) for name in _VARIANT_KEYS}


def match_cells(base: Iterable[CellRecord], head: Iterable[CellRecord]) -> Matches:
    """Match cells by their facts."""
    return _match([(cell_identity(r), r) for r in base], [(cell_identity(r), r) for r in head], noun="cell")


def match_variants(base: Sequence[VariantRow], head: Sequence[VariantRow]) -> Matches:
    """Match the variants of one cell by method, k, options, drafter and what the drafter's files hold.

    The latter counts where both runs know it; results of older versions don't.
    """
    known = all(_REVISION in row for row in (*base, *head))
    sides = [[(_identified(row, known), row) for row in rows] for rows in (base, head)]
    return _match(*sides, noun="variant")


def _identified(row: VariantRow, with_revision: bool) -> dict[str, str]:
    revision = {_REVISION: _text(row[_REVISION])} if with_revision else {}
    return variant_identity(row) | revision


def _match(
    base: Sequence[tuple[dict[str, str], Any]], head: Sequence[tuple[dict[str, str], Any]], *, noun: str
) -> Matches:
    found = Matches([], [], [])
    sides = [_by_key(base), _by_key(head)]
    for key, ours in sides[0].items():
        theirs = sides[1].get(key, [])
        if len(ours) == 1 and len(theirs) == 1:
            found.pairs.append((ours[0], theirs[0]))
        elif theirs:
            counts = f"{len(ours)} in BASE and {len(theirs)} in HEAD have the same facts"
            found.missing.append((ours[0], f"ambiguous {noun}: {counts}. Measure into a fresh folder."))
        else:
            found.missing.append((ours[0], _reason(dict(key), head, noun, "HEAD")))
    for key, theirs in sides[1].items():
        if key not in sides[0]:
            found.new.append((theirs[0], _reason(dict(key), base, noun, "BASE")))
    return found


def _by_key(items: Sequence[tuple[dict[str, str], Any]]) -> dict[tuple[tuple[str, str], ...], list[Any]]:
    groups: dict[tuple[tuple[str, str], ...], list[Any]] = defaultdict(list)
    for identity, item in items:
        groups[tuple(sorted(identity.items()))].append(item)
    return groups


def _reason(
    identity: Mapping[str, str], others: Sequence[tuple[dict[str, str], Any]], noun: str, side: str
) -> str:
    if not others:
        return f"missing {noun}: {side} has none at all"
    differences = min((_differences(identity, other) for other, _ in others), key=len)
    kind = next((kind for kind, names in _KINDS.items() if names >= set(differences)), f"missing {noun}")
    shown = ", ".join(
        f"{name} ({clipped(ours, _VALUE_CHARACTERS)} here, {clipped(theirs, _VALUE_CHARACTERS)} there)"
        for name, (ours, theirs) in sorted(differences.items())[:3]
    )
    more = f" and {len(differences) - 3} more" if len(differences) > 3 else ""
    return f"{kind}: {side} has no such {noun}; its closest differs in {shown}{more}"


def _differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    names = {*ours, *theirs}
    pairs = {name: (ours.get(name, "unset"), theirs.get(name, "unset")) for name in names}
    return {name: values for name, values in pairs.items() if values[0] != values[1]}


def _text(value: object) -> str:
    # 1 and 1.0 are the same setting, however a file wrote it.
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True, default=str)
