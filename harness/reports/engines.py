"""The section that puts engines side by side: same pair, same prompts, same k."""

from __future__ import annotations

from collections.abc import Sequence

from harness.reports.blocks import Block, Bullets, Column, Entry, Section, Table, entry
from harness.reports.display import MISSING, number, rate, seconds, size, with_interval
from harness.reports.labels import Row, phrase, variant_label
from harness.reports.language import say
from harness.reports.sweep import Sweep
from harness.reports.words import interval_text

_TITLE = "Engines side by side"
_WORK = ("temperature", "workload", "batch_size", "dtype", "target_quantization", "max_output_tokens")
_COLUMNS = (
    Column("engine", numeric=False),
    Column("variant", numeric=False),
    Column("end-to-end tok/s"),
    Column("over own baseline", hint="end to end, same engine without speculation, 95% interval"),
    Column("over best baseline", hint="end to end, over the fastest engine without speculation"),
    Column("acceptance"),
    Column("draft sampling", numeric=False, hint="how drafts are chosen above temperature 0"),
    Column("cold start", hint="loading, starting the engine, first call and warmup"),
    Column("peak memory"),
)
_REMARKS = (
    "Engines ran one after another: what changed on the machine between them is part of the comparison over "
    "the best baseline, not of that over their own.",
    "Acceptance at temperature 0 is a property of the pair: engines agree within their intervals, but where "
    "rounding moves an output, a step was cut or drafted no more than could be used, or a drafter proposes "
    "from a part of its vocabulary (native only). Above 0 it also hangs on how drafts are chosen: the "
    "drafter's likeliest token counts as certain, which is accepted less often than a drawn one.",
    "Prompt lookup differs: each engine has its own rule for which earlier occurrence is copied.",
    "Peak memory is the whole process's on a CPU. vLLM reserves its key-value cache when it starts.",
)


def engines_section(sweep: Sweep) -> Section:
    """Speed, acceptance, cold start and memory of work that several engines did."""
    if not sweep.engines:
        reason = "No two engines did the same work."
        return Section("engines", _TITLE, omitted=reason, measure="+sweep=engines")
    groups = list(dict.fromkeys(row["group"] for row in sweep.engines))
    blocks: list[Block] = [
        _table(sweep, [r for r in sweep.engines if r["group"] == group]) for group in groups
    ]
    blocks.append(Bullets(_REMARKS, title="How to read it"))
    return Section(
        "engines", _TITLE, "Same pair, prompts, sampling and k; one table per kind of work.", blocks
    )


def _table(sweep: Sweep, rows: Sequence[Row]) -> Table:
    caption = say(", ").join(
        phrase(name, rows[0].get(name)) for name in _WORK if rows[0].get(name) is not None
    )
    best = rows[0]["best_backend"]
    body = [_line(sweep, row) for row in sorted(rows, key=_order)]
    return Table(
        say("{caption}; fastest without speculation: {engine}", caption=caption, engine=best), _COLUMNS, body
    )


def _order(row: Row) -> tuple[bool, str, float, str]:
    return not row["is_baseline"], str(row["method"]), float(row["k"] or 0), str(row["backend"])


def _line(sweep: Sweep, row: Row) -> list[Entry]:
    own = next(
        found for found in sweep.variants_of(str(row["cell_id"])) if found["variant_id"] == row["variant_id"]
    )
    end_to_end = [own.get(f"end_to_end_tok_per_s{end}") for end in ("", "_low", "_high")]
    is_baseline = bool(row["is_baseline"])
    return [
        entry(str(row["backend"])),
        entry(variant_label(row)),
        entry(with_interval(end_to_end, rate)),
        entry(say("baseline") if is_baseline else interval_text(own, "end_to_end_speedup")),
        entry(interval_text(row, "over_best")),
        entry(MISSING if is_baseline else interval_text(own, "acceptance_rate")),
        entry(_draft_sampling(sweep, row)),
        entry(seconds(_cold_start_s(sweep, row))),
        entry(size(own["peak_memory_bytes"])),
    ]


def _draft_sampling(sweep: Sweep, row: Row) -> str:
    """As applied; at temperature 0 every way is greedy."""
    if number(row.get("temperature")) == 0:
        return MISSING
    variants = sweep.records[str(row["cell_id"])].variants
    applied = next(v["applied"] for v in variants if v["variant_id"] == row["variant_id"]) or {}
    found = str(applied.get("draft_sampling") or applied.get("draft_sample_method") or MISSING)
    return "sampled" if found == "probabilistic" else found  # vLLM's word for it


def _cold_start_s(sweep: Sweep, row: Row) -> float | None:
    """What the variant needs before its first figure: its own parts, and those all variants share."""
    parts = [
        number(part["seconds"]) or 0.0
        for part in sweep.cold_start
        if part["cell_id"] == row["cell_id"] and part["variant_id"] in (row["variant_id"], None)
    ]
    return sum(parts) if parts else None
