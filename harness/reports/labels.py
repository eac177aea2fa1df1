"""Names for cells, methods and series, built from what differs between them and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from harness.privacy import clipped
from harness.records import BASELINE_METHOD
from harness.reports.display import fact, k_is, number
from harness.reports.language import say

Row = Mapping[str, Any]

_PHRASES = {
    "backend": "{value}",
    "target": "{value}",
    "device": "{value}",
    "dtype": "{value}",
    "target_quantization": "target in {value}",
    "drafter_quantization": "drafter in {value}",
    "batch_size": "batch {value}",
    "workload": "{value}",
    "temperature": "temperature {value}",
    "top_k": "top-k {value}",
    "top_p": "top-p {value}",
    "max_output_tokens": "at most {value} tokens",
    "prompt_tokens": "prompts of {value} tokens",
}
_LAST_RESORT = {
    "backend_version": "version {value}",
    "target_revision": "revision {value}",
    "ignore_eos": "ignore EOS {value}",
    "num_prompts": "{value} prompts",
    "workload_sha256": "workload {value}",
}
_METHODS = {
    BASELINE_METHOD: "no speculation",
    "draft_model": "draft model",
    "synthetic": "synthetic acceptance",
    "ngram": "n-gram",
    "medusa": "Medusa",
    "eagle": "EAGLE",
}
_LONGEST_CHARACTERS = 60


def method_label(method: object) -> str:
    """A method's name as prose has it."""
    name, _, special = str(method).partition(" ")
    if name not in _METHODS:
        return clipped(method, _LONGEST_CHARACTERS)
    return f"{say(_METHODS[name])} {clipped(special, _LONGEST_CHARACTERS)}".rstrip()


def is_lossless(row: Row) -> bool:
    """Whether a variant's output is the target's, by its own account."""
    return row.get("lossless") is not False


def marked(name: str, row: Row) -> str:
    """A name that says so where the variant isn't lossless."""
    return name if is_lossless(row) else say("{name} (not lossless)", name=name)


def variant_label(row: Row) -> str:
    """A variant's method and k, and whether it changes the output."""
    name = marked(method_label(row.get("method")), row)
    k = number(row.get("k"))
    return name if not k else say("{method}, {k}", method=name, k=k_is(k))


def varying_facts(cells: Sequence[Row]) -> list[str]:
    """Names of the facts that tell these cells apart, in reading order; the finer ones only where needed."""
    varying = [name for name in _PHRASES if len({_value(cell, name) for cell in cells}) > 1]
    known = {tuple(_value(cell, name) for name in varying) for cell in cells}
    if len(known) < len(cells):
        varying += [name for name in _LAST_RESORT if len({_value(cell, name) for cell in cells}) > 1]
    known = {tuple(_value(cell, name) for name in varying) for cell in cells}
    if len(known) < len(cells):
        varying += _varying_settings(cells)
    return varying


def _varying_settings(cells: Sequence[Row]) -> list[str]:
    """Names of the nested facts that differ, such as `simulator.draft_model.alpha`."""
    names = dict.fromkeys(name for cell in cells for name in cell if "." in name)
    return [name for name in names if len({_value(cell, name) for cell in cells}) > 1]


def phrase(name: str, value: object) -> str:
    """One fact in words, such as `temperature 0.7`."""
    setting = " ".join(name.split(".")[1:]).replace("_", " ").replace("{", "").replace("}", "")
    pattern = _PHRASES.get(name) or _LAST_RESORT.get(name) or f"{setting} {{value}}".strip()
    return say(pattern, value=clipped(fact(value), _LONGEST_CHARACTERS))


def cell_label(cell: Row, varying: Sequence[str]) -> str:
    """A cell by the facts that differ between the cells; empty where nothing does."""
    return " · ".join(phrase(name, cell.get(name)) for name in varying)


def cell_labels(cells: Sequence[Row]) -> dict[str, str]:
    """A distinct label per cell id: a lone cell is `this cell`, equal labels get a part of the hash."""
    varying = varying_facts(cells)
    labels = {str(cell["cell_id"]): cell_label(cell, varying) or say("this cell") for cell in cells}
    counts = Counter(labels.values())
    return {
        cell_id: label if counts[label] == 1 else f"{label} · {cell_id[:8]}"
        for cell_id, label in labels.items()
    }


def in_reading_order(cells: Sequence[Row]) -> list[Row]:
    """Cells sorted by their varying facts, numbers as numbers."""
    varying = varying_facts(cells)
    return sorted(cells, key=lambda cell: [_sort_key(cell.get(name)) for name in varying])


def _value(cell: Row, name: str) -> str:
    return fact(cell.get(name))


def _sort_key(value: object) -> tuple[int, float, str]:
    found = number(value)
    return (1, 0.0, fact(value)) if found is None else (0, found, "")
