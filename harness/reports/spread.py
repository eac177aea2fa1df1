"""The table that says where the spread of times and speedups comes from."""

from __future__ import annotations

from collections.abc import Sequence

from harness.reports.blocks import Column, Table, entry
from harness.reports.display import MISSING, percent
from harness.reports.labels import Row
from harness.reports.language import say
from harness.reports.naming import variant_columns, variant_entries
from harness.reports.sweep import Sweep

_SOURCES = ("prompts", "repeats", "drift")
_ADVICE = {"prompts": "more prompts", "repeats": "more repeats"}


def spread_table(sweep: Sweep) -> Table:
    """Relative standard deviations by source, and what would narrow each speedup's interval."""
    columns = [
        *variant_columns(sweep),
        *(Column(say("time, {source}", source=say(source)), hint=_HINTS[source]) for source in _SOURCES),
        *(Column(say("speedup, {source}", source=say(source)), hint=_HINTS[source]) for source in _SOURCES),
        Column("narrowed by", numeric=False, hint="what a narrower interval of the speedup needs"),
    ]
    body = [
        [
            *variant_entries(sweep, row),
            *(
                entry(percent(row[f"{figure}_{source}_sd"]))
                for figure in ("time", "speedup")
                for source in _SOURCES
            ),
            entry(say(_ADVICE.get(str(row["narrowed_by"]), MISSING))),
        ]
        for row in sweep.spread
    ]
    return Table("Spread by source, as relative standard deviations", columns, body, collapsed=True)


_HINTS = {
    "prompts": "between prompts",
    "repeats": "between repeats of one prompt",
    "drift": "along a straight line over time",
}


def narrowing(rows: Sequence[Row], keys: set[tuple[object, object]]) -> str:
    """What would narrow the speedups of these cells and variants, in words."""
    needed = {row["narrowed_by"] for row in rows if (row["cell_id"], row["variant_id"]) in keys}
    if needed == {"prompts"}:
        return say("More prompts would narrow it; more repeats hardly.")
    if needed == {"repeats"}:
        return say("More repeats would narrow it.")
    return say("More prompts or repeats would narrow it.")
