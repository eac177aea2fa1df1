"""The section on weight formats: speed, memory, quality and acceptance side by side."""

from __future__ import annotations

from harness.reports.blocks import Column, Prose, Section, Table, entry
from harness.reports.display import MISSING, fact, number, percent, rate, ratio, size
from harness.reports.labels import Row
from harness.reports.series import Series
from harness.reports.sweep import Sweep
from harness.reports.words import interval_text

IDENTIFIER, TITLE = "quantization", "Quantisation"
_FACTS = ("target_quantization", "drafter_quantization")
_LEAD = (
    "Speculation leaves a target's output as it is; quantising changes it. So a quantised target is compared "
    "with the unquantised one on a fixed text: how much its perplexity changes, and at what share of the "
    "places both hold the same token for the likeliest. A quantised drafter can only cost acceptance."
)
_RATE_NOTE = (
    "Speedups stand on the baseline of their own cell, decoded in turns. Tokens per second of different "
    "cells were measured one after the other: take small differences between rows as noise."
)


def quantization_section(sweep: Sweep) -> Section:
    """One row per cell and method: what its weight formats give and what they cost."""
    if all(fact(cell.get(name)) == "none" for cell in sweep.cells for name in _FACTS):
        reason = "No weights were quantised."
        return Section(IDENTIFIER, TITLE, omitted=reason, measure="+sweep=quantization")
    columns = [
        Column("target", numeric=False),
        Column("drafter", numeric=False),
        Column("method", numeric=False),
        Column("target weights", hint="memory of embeddings and matrices, every copy counted"),
        Column("peak memory", hint="of all variants of the cell"),
        Column("baseline tok/s"),
        Column("over unquantised", hint="baseline tok/s over that of the cell without quantisation"),
        Column("best k"),
        Column("speedup", hint="over the cell's own baseline, at the best k"),
        Column("tok/s at best k"),
        Column("acceptance", hint="at the best k"),
        Column("perplexity change"),
        Column("same greedy token"),
    ]
    body = [[entry(text) for text in _texts(sweep, one)] for one in sweep.series]
    return Section(IDENTIFIER, TITLE, _LEAD, [Table("By weight format", columns, body), Prose(_RATE_NOTE)])


def _texts(sweep: Sweep, one: Series) -> list[str]:
    cell = next(cell for cell in sweep.cells if cell["cell_id"] == one.cell_id)
    baseline, chosen = sweep.baseline(one.cell_id), one.chosen
    peaks = [number(row.get("peak_memory_bytes")) for row in sweep.variants_of(one.cell_id)]
    change = number(cell.get("quality.perplexity_change"))
    return [
        *(fact(cell.get(name)) for name in _FACTS),
        one.method_name,
        size(cell.get("target_weight_bytes")),
        size(max((peak for peak in peaks if peak is not None), default=None)),
        MISSING if baseline is None else rate(baseline["decode_tok_per_s"]),
        ratio(_over_unquantized(sweep, cell, baseline)),
        MISSING if chosen is None else f"{number(chosen['k']):g}",
        MISSING if chosen is None else interval_text(chosen),
        MISSING if chosen is None else rate(chosen["decode_tok_per_s"]),
        MISSING if chosen is None else interval_text(chosen, "acceptance_rate"),
        MISSING if change is None else f"{100 * change:+.2f}%",
        percent(cell.get("quality.greedy_agreement")),
    ]


def _over_unquantized(sweep: Sweep, cell: Row, baseline: Row | None) -> float | None:
    """Baseline rate over that of the cell that differs in nothing but its weight formats."""
    others = [name for name in sweep.varying if name not in _FACTS]
    for plain in sweep.cells:
        same = all(fact(plain.get(name)) == fact(cell.get(name)) for name in others)
        if same and fact(plain.get(_FACTS[0])) == "none":
            reference = sweep.baseline(str(plain["cell_id"]))
            rates = [number(row.get("decode_tok_per_s")) if row else None for row in (baseline, reference)]
            return rates[0] / rates[1] if rates[0] and rates[1] else None
    return None
