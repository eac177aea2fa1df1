"""The section on choosing k: what it could gain at most, what adapting gains, and which k it chose."""

from __future__ import annotations

from collections.abc import Sequence

from harness.reports.blocks import Block, Column, Entry, Section, Table, entry
from harness.reports.display import MISSING, count, decimal, percent
from harness.reports.labels import Row, method_label
from harness.reports.naming import variant_columns, variant_entries
from harness.reports.sweep import Sweep
from harness.reports.words import interval_text

_ADAPTIVE = "adaptive"


def ceiling_section(sweep: Sweep) -> Section:
    """The best fixed k, the best k of each prompt, and adaptive k, side by side."""
    title = "Choosing k"
    adaptive = [row for row in sweep.variants if _ADAPTIVE in str(row["method"]).split()]
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
    blocks: list[Block] = [Table("Speedup by how k is chosen", columns, body)]
    if adaptive:
        blocks.append(_chosen_table(sweep, adaptive))
    return Section("choosing-k", title, lead, blocks)


def _compared(sweep: Sweep, ceiling: Row) -> list[Entry]:
    cell = [entry(sweep.labels[ceiling["cell_id"]])] if sweep.has_many_cells else []
    rows = [row for row in sweep.variants_of(ceiling["cell_id"]) if not row["is_baseline"]]
    fixed = [row for row in rows if row["method"] == ceiling["method"] and row["speedup"] == row["speedup"]]
    best = max(fixed, key=lambda row: float(row["speedup"]), default=None)
    adapted = [row for row in rows if row["method"] == f"{ceiling['method']} {_ADAPTIVE}"]
    return [
        *cell,
        entry(method_label(ceiling["method"])),
        entry(MISSING if best is None else count(best["k"])),
        entry(MISSING if best is None else interval_text(best)),
        entry(interval_text(adapted[0]) if adapted else MISSING),
        entry(interval_text(ceiling, "ceiling_speedup")),
        entry(percent(ceiling["share_without_drafts"])),
    ]


def _chosen_table(sweep: Sweep, adaptive: Sequence[Row]) -> Table:
    """How many tokens adaptive variants drafted, by how far the sequence had come."""
    spans = sweep.chosen_k.columns
    columns = [*variant_columns(sweep), *(Column(f"steps {span}") for span in spans)]
    body = []
    for row in adaptive:
        known = sweep.chosen_k.reindex([(row["cell_id"], row["variant_id"])])
        means = known.to_numpy(dtype=float)[0].tolist()
        body.append([*variant_entries(sweep, row), *(entry(decimal(mean)) for mean in means)])
    return Table("Mean number of tokens drafted per step, over time", columns, body)
