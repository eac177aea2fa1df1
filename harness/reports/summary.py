"""The top of the page: what was run, what to do, and what to be wary of."""

from __future__ import annotations

from harness.privacy import clipped
from harness.reports.blocks import Block, Bullets, Column, Entry, Prose, Section, Table, entry
from harness.reports.cautions import cautions
from harness.reports.decision import decision, thresholds
from harness.reports.display import MISSING, count, k_is, percent, rate
from harness.reports.findings import measurement_sentences
from harness.reports.labels import Row, phrase
from harness.reports.language import say
from harness.reports.series import Series
from harness.reports.sweep import Sweep
from harness.reports.words import interval_text, joined, verdict, verdict_text

_IN_SUBTITLE = ("target", "backend", "device", "dtype", "workload")


def summary_section(sweep: Sweep) -> Section:
    """What to do, how sure and why; the same in numbers with the thresholds; then the cautions."""
    blocks: list[Block] = []
    if sweep.series:
        blocks += [decision(sweep), _recommendations(sweep), Prose(thresholds())]
    else:
        blocks.append(Prose("No speculating variant was stored, so there is nothing to compare."))
    warnings = [*cautions(sweep), *measurement_sentences(sweep)]
    if warnings:
        blocks.append(Bullets(warnings, tone="warning", title="Before relying on this"))
    return Section("summary", "Decision", blocks=blocks)


def subtitle(sweep: Sweep) -> str:
    """What was run, in one line."""
    cell = sweep.cells[0]
    same = [
        phrase(name, cell.get(name)) for name in _IN_SUBTITLE if name in cell and name not in sweep.varying
    ]
    methods = list(dict.fromkeys(one.method_name for one in sweep.series))
    ks = sorted({int(row["k"]) for one in sweep.series for row in one.rows})
    parts = [*same, *([joined(methods)] if methods else []), *([_k_range(ks)] if ks else [])]
    num_cells, num_variants = len(sweep.cells), len(sweep.variants)
    sizes = say(
        "{num_cells} cell{s}, {num_variants} variants",
        num_cells=num_cells,
        s="" if num_cells == 1 else "s",
        num_variants=num_variants,
    )
    day = str(cell.get("started_at") or "")[:10]
    return " · ".join([*parts, sizes, *([clipped(day, 10)] if day else [])])


def _k_range(ks: list[int]) -> str:
    consecutive = len(ks) > 2 and ks == list(range(ks[0], ks[-1] + 1))
    return (
        say("{low} to {high}", low=k_is(ks[0]), high=ks[-1])
        if consecutive
        else f"{k_is(ks[0])}{joined(['', *map(str, ks[1:])])}"
    )


def _recommendations(sweep: Sweep) -> Table:
    names = ("verdict", "k", "decode speedup", "end to end", "acceptance", "tok/s", "baseline tok/s")
    lead = Column("setting" if len(sweep.series) > 1 else "method", numeric=False)
    columns = [lead, *(Column(name, numeric=name != "verdict") for name in names)]
    shown = sweep.excerpt.series
    cut = (
        say(", {num_shown} of {num_series}", num_shown=len(shown), num_series=len(sweep.series))
        if sweep.is_cut
        else ""
    )
    return Table(
        say("Best k of each setting{cut}", cut=cut), columns, [_recommendation(sweep, one) for one in shown]
    )


def _recommendation(sweep: Sweep, one: Series) -> list[Entry]:
    row = one.chosen
    baseline = sweep.baseline(one.cell_id) or {}
    if row is None:
        return [entry(one.label), entry(say("not measured"), "muted"), *(entry(MISSING) for _ in range(6))]
    found = verdict(row)
    return [
        entry(one.label),
        entry(verdict_text(row), found.value if one.is_lossless else "unclear"),
        entry(_recommended_k(row)),
        entry(interval_text(row), found.value),
        entry(interval_text(row, "end_to_end_speedup")),
        entry(percent(row.get("acceptance_rate"))),
        entry(rate(row.get("decode_tok_per_s"))),
        entry(rate(baseline.get("decode_tok_per_s"))),
    ]


def _recommended_k(row: Row) -> str:
    return count(row["k"])
