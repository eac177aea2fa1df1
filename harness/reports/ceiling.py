"""The section on choosing k: what it could gain at most, and what adapting gains."""

from __future__ import annotations

from harness.reports.blocks import Column, Entry, Section, Table, entry
from harness.reports.display import MISSING, count, percent
from harness.reports.labels import Row, marked, method_label
from harness.reports.pacing import ADAPTIVE
from harness.reports.sweep import Sweep
from harness.reports.words import interval_text


def ceiling_section(sweep: Sweep) -> Section:
    """The best fixed k, the best k of each prompt, and adaptive k, side by side."""
    title = "Choosing k"
    if not sweep.ceilings:
        reason = "It compares several k of one method, decoded one sequence at a time."
        return Section("choosing-k", title, omitted=reason, measure="method.k=[1,2,4]")
    body = [_compared(sweep, row) for row in sweep.ceilings]
    cell = [Column("cell", numeric=False)] if sweep.has_many_cells else []
    columns = [
        *cell,
        Column("method", numeric=False),
        Column("best fixed k", hint="the k with the largest speedup over all prompts"),
        Column("its speedup"),
        Column("adaptive k", hint="chosen at every step from running acceptance and measured costs"),
        Column("ceiling", hint="each prompt at its own fastest k, none included, chosen afterwards"),
        Column("prompts best without drafts"),
    ]
    lead = (
        "The ceiling takes having measured every k first, so no rule that chooses k once per prompt beats it "
        "but by luck; it is a little too high, as the fastest of several noisy times is."
    )
    return Section("choosing-k", title, lead, [Table("Speedup by how k is chosen", columns, body)])


def _compared(sweep: Sweep, ceiling: Row) -> list[Entry]:
    cell = [entry(sweep.labels[ceiling["cell_id"]])] if sweep.has_many_cells else []
    rows = [row for row in sweep.variants_of(ceiling["cell_id"]) if not row["is_baseline"]]
    fixed = [row for row in rows if row["method"] == ceiling["method"] and row["speedup"] == row["speedup"]]
    best = max(fixed, key=lambda row: float(row["speedup"]), default=None)
    adapted = [row for row in rows if row["method"] == f"{ceiling['method']} {ADAPTIVE}"]
    return [
        *cell,
        entry(marked(method_label(ceiling["method"]), best or {})),
        entry(MISSING if best is None else count(best["k"])),
        entry(MISSING if best is None else interval_text(best)),
        entry(interval_text(adapted[0]) if adapted else MISSING),
        entry(interval_text(ceiling, "ceiling_speedup")),
        entry(percent(ceiling["share_without_drafts"])),
    ]
