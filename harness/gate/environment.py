"""Whether two runs stood on the same kind of machine, with the same software."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.privacy import clipped
from harness.records import CellRecord

# These change from minute to minute, or are what is being compared.
_VOLATILE = frozenset(
    {
        "harness",
        "code_version",
        "available_memory_gib",
        "swap_used_bytes",
        "load_average_1min",
        "while_measuring",
    }
)
_VALUE_CHARACTERS = 40


def environment_difference(base: CellRecord, head: CellRecord) -> str | None:
    """Why absolute times of two cells can't be compared; None where they can.

    Every stored fact of the machine and its software must be equal, except the free memory, the load and the
    version of this harness; the version of the backend must be too.
    """
    known = [_facts(base), _facts(head)]
    unknown = [side for side, facts in zip(("BASE", "HEAD"), known, strict=True) if not facts]
    if unknown:
        return f"the environment of {' and '.join(unknown)} is unknown"
    sides = [
        facts | {"backend_version": record.facts.get("backend_version"), "device": record.facts.get("device")}
        for facts, record in zip(known, (base, head), strict=True)
    ]
    names = sorted(name for name in {*sides[0], *sides[1]} if sides[0].get(name) != sides[1].get(name))
    if not names:
        return None
    shown = ", ".join(f"{name} ({_value(sides[0], name)} -> {_value(sides[1], name)})" for name in names[:3])
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"the environments differ in {shown}{more}"


def _facts(record: CellRecord) -> dict[str, Any]:
    return _flat({name: value for name, value in record.environment.items() if name not in _VOLATILE})


def _flat(facts: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in facts.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _value(facts: Mapping[str, Any], name: str) -> str:
    return clipped(facts.get(name, "unset"), _VALUE_CHARACTERS)
