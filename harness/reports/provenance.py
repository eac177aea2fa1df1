"""What went wrong, on what machine, and with which settings: failures, environment and configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from harness.privacy import clean, clipped, without_private
from harness.reports.blocks import Block, Column, Facts, Section, Table, Verbatim, entry
from harness.reports.display import fact
from harness.reports.language import say
from harness.reports.sweep import Sweep

_ERROR_CHARACTERS = 600
_SHOWN_FACTS = 120
_SHOWN_FAILURES = 100


def failures_section(sweep: Sweep) -> Section:
    """Everything that went wrong, with its traceback folded away."""
    if not sweep.failures:
        return Section("failures", "Failures", omitted="None: every cell and variant ran.")
    shown = sweep.failures[:_SHOWN_FAILURES]
    columns = [Column(name, numeric=False) for name in ("cell", "stage", "variant", "error")]
    body, traces = [], []
    for row in shown:
        where = [sweep.labels.get(str(row["cell_id"]), say("unknown cell")), clipped(row["stage"], 40)]
        variant = clipped(row["variant_id"], 60) if isinstance(row["variant_id"], str) else say("all")
        error = clipped(row["error"], _ERROR_CHARACTERS)
        body.append([entry(text) for text in (*where, variant, error)])
        if isinstance(row["traceback"], str) and row["traceback"].strip():
            traces.append(
                Verbatim(
                    say("Traceback: {where}, {variant}", where=", ".join(where), variant=variant),
                    clean(row["traceback"]),
                )
            )
    cut = (
        say(
            ", the first {num_shown} of {num_failures}",
            num_shown=len(shown),
            num_failures=len(sweep.failures),
        )
        if len(shown) < len(sweep.failures)
        else ""
    )
    return Section(
        "failures", "Failures", blocks=[Table(say("What went wrong{cut}", cut=cut), columns, body), *traces]
    )


def environment_section(sweep: Sweep) -> Section:
    """The machine, the software, the facts of the cells and the resolved configuration."""
    blocks: list[Block] = []
    cell = sweep.cells[0]
    shared = [(name, clipped(fact(cell.get(name)), 200)) for name in sweep.facts if _same(sweep.cells, name)]
    if shared:
        blocks.append(Facts(shared, "The same in every cell"))
    listed = sweep.excerpt
    environments = {
        cell_id: without_private(record.environment) for cell_id, record in listed.records.items()
    }
    for title, environment in _distinct(environments, "Machine and software", listed.labels).items():
        items = [
            (clipped(name, 60), clipped(value, 200)) for name, value in _flat(environment)[:_SHOWN_FACTS]
        ]
        blocks.append(Facts(items, title))
    for cell_id, label in listed.labels.items():
        record = listed.records[cell_id]
        variants = {str(variant.get("variant_id")): variant for variant in record.variants}
        blocks.append(_as_json(say("Resolved configuration: {label}", label=label), record.config))
        blocks.append(_as_json(say("Variants as applied: {label}", label=label), variants))
    return Section("environment", "Environment and configuration", blocks=blocks)


def _as_json(summary: str, settings: Mapping[str, Any]) -> Verbatim:
    text = json.dumps(_cleaned(settings), indent=2, sort_keys=True, ensure_ascii=False)
    return Verbatim(summary, text)


def _distinct(found: Mapping[str, Any], title: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """Equal mappings once, under a title that names their cells where they differ."""
    grouped: dict[str, list[str]] = {}
    for cell_id, value in found.items():
        if value:
            grouped.setdefault(json.dumps(value, sort_keys=True, default=str), []).append(cell_id)
    if len(grouped) == 1:
        return {title: found[next(iter(grouped.values()))[0]]}
    return {
        f"{say(title)}: {clipped('; '.join(labels[cell_id] for cell_id in ids), 160)}": found[ids[0]]
        for ids in grouped.values()
    }


def _same(cells: Sequence[Mapping[str, Any]], name: str) -> bool:
    return len({fact(cell.get(name)) for cell in cells}) == 1


def _flat(mapping: Mapping[str, Any], prefix: str = "") -> list[tuple[str, object]]:
    items: list[tuple[str, object]] = []
    for name, value in mapping.items():
        if isinstance(value, Mapping):
            items += _flat(value, f"{prefix}{name}.")
        elif isinstance(value, (list, tuple)):
            items.append((f"{prefix}{name}", ", ".join(fact(part) for part in value)))
        else:
            items.append((f"{prefix}{name}", fact(value)))
    return items


def _cleaned(value: Any) -> Any:
    """Nested settings with every text cleaned, before JSON escapes what the cleaning looks for."""
    if isinstance(value, Mapping):
        return {clean(key): _cleaned(inner) for key, inner in without_private(dict(value)).items()}
    if isinstance(value, (list, tuple)):
        return [_cleaned(inner) for inner in value]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return clean(value)
