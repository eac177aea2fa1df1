"""The section that lists every variant with all its figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.privacy import clipped
from harness.reports.blocks import Block, Column, Entry, Section, Table, entry
from harness.reports.display import (
    MISSING,
    count,
    decimal,
    fact,
    percent,
    rate,
    size,
    with_interval,
)
from harness.reports.labels import Row, is_lossless
from harness.reports.language import say
from harness.reports.naming import variant_columns, variant_entries
from harness.reports.sweep import Sweep
from harness.reports.words import VERDICT_LABELS, Verdict, interval_text, verdict

_NOTE_CHARACTERS = 500


_RESULTS: Sequence[tuple[Column, Callable[[Row], Entry]]] = (
    (
        Column("speedup", hint="decode tokens per second over the baseline's, 95% interval"),
        lambda row: _speedup(row),
    ),
    (
        Column(
            "corrected",
            numeric=False,
            hint="against the baseline, with all variants of the cell taken into account (Holm)",
        ),
        lambda row: _corrected(row),
    ),
    (
        Column("end to end", hint="the same with the time to first token"),
        lambda row: entry(_unless_baseline(row, interval_text(row, "end_to_end_speedup"))),
    ),
    (
        Column("throughput", hint="the same over the wall time of whole batches"),
        lambda row: entry(_unless_baseline(row, interval_text(row, "throughput_speedup"))),
    ),
    (Column("decode tok/s"), lambda row: entry(_rate(row, "decode_tok_per_s"))),
    (Column("end-to-end tok/s"), lambda row: entry(_rate(row, "end_to_end_tok_per_s"))),
    (Column("acceptance"), lambda row: entry(interval_text(row, "acceptance_rate"))),
    (
        Column("alpha", hint="constant acceptance that explains the steps"),
        lambda row: entry(percent(row["iid_acceptance"])),
    ),
    (
        Column(
            "accepted per draft",
            hint="drafted tokens accepted per step that drafted; the target's own token not counted",
        ),
        lambda row: entry(decimal(row["mean_accepted_per_drafting_step"])),
    ),
    (
        Column("tokens per forward", hint="output tokens over forwards of the target"),
        lambda row: entry(decimal(row["tokens_per_forward"])),
    ),
    (
        Column("lossless", numeric=False, hint="whether the output is the target's, by design"),
        lambda row: entry(say(fact(is_lossless(row))), "" if is_lossless(row) else "unclear"),
    ),
    (Column("peak memory"), lambda row: entry(size(row["peak_memory_bytes"]))),
    (Column("prompts"), lambda row: entry(count(row["num_prompts"]))),
    (Column("trials"), lambda row: entry(count(row["num_trials"]))),
    (Column("tokens"), lambda row: entry(count(row["num_output_tokens"]))),
    (
        Column("status", numeric=False),
        lambda row: entry(say(str(row["status"])), "" if row["status"] == "ok" else "costs"),
    ),
)


def results_section(sweep: Sweep) -> Section:
    """Every variant of every cell with all headline figures."""
    columns = [*variant_columns(sweep), *(column for column, _ in _RESULTS)]
    body = [[*variant_entries(sweep, row), *(write(row) for _, write in _RESULTS)] for row in sweep.variants]
    noted = [row for row in sweep.variants if isinstance(row.get("notes"), str)]
    notes = [[*variant_entries(sweep, row), entry(clipped(row["notes"], _NOTE_CHARACTERS))] for row in noted]
    blocks: list[Block] = [Table("All variants", columns, body)]
    if notes:
        columns = [
            *variant_columns(sweep),
            Column("why figures are missing, and other remarks", numeric=False),
        ]
        blocks.append(Table("Notes", columns, notes))
    lead = "A dash stands for a figure that can't be computed."
    return Section("results", "All results", lead, blocks)


def _speedup(row: Row) -> Entry:
    if row["is_baseline"]:
        return entry(say("baseline"), "muted")
    found = verdict(row)
    tone = {Verdict.PAYS: "pays", Verdict.COSTS: "costs"}.get(found, "")
    return entry(interval_text(row), tone)


_CORRECTED = {"yes": Verdict.PAYS, "no": Verdict.COSTS, "unclear": Verdict.UNCLEAR}
_CORRECTED_TONES = {Verdict.PAYS: "pays", Verdict.COSTS: "costs", Verdict.UNCLEAR: "muted"}


def _corrected(row: Row) -> Entry:
    found = _CORRECTED.get(str(row.get("faster")))
    return entry(MISSING) if found is None else entry(say(VERDICT_LABELS[found]), _CORRECTED_TONES[found])


def _unless_baseline(row: Row, text: str) -> str:
    return MISSING if row["is_baseline"] else text


def _rate(row: Row, column: str) -> str:
    return with_interval([row.get(f"{column}{end}") for end in ("", "_low", "_high")], rate)
