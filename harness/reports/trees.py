"""The section on draft trees: each beside the chain of its depth, in tokens per forward and in speed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.reports import plots
from harness.reports.blocks import Bullets, Column, Entry, Figure, Figures, Key, Section, Table, entry
from harness.reports.display import MISSING, count, decimal, k_is, number
from harness.reports.drawing import SPEEDUP_MEASURE, drawn, point_of
from harness.reports.labels import Row, variant_label
from harness.reports.language import say
from harness.reports.naming import variant_columns, variant_entries
from harness.reports.plots import Line
from harness.reports.rivals import judged, ratio_text
from harness.reports.svg import Style
from harness.reports.sweep import Sweep
from harness.reports.words import Verdict, interval_text
from harness.results.rivalry import Rivalry

IDENTIFIER, TITLE = "trees", "Tree shape and speedup"
_LEAD = (
    "A tree drafts several guesses where a chain drafts one, so more of it is accepted, and there is more to "
    "verify. Each tree stands beside the chain of its depth (else of the next smaller k): what it gains "
    "in tokens per forward, and what is left of that in speed. Both ratios are over the same prompts."
)
_NAMES = ("tree", "chain of its depth")
_SHAPES = ("tree", "dynamic")
_SPEED = {
    Verdict.PAYS: "faster",
    Verdict.COSTS: "slower",
    Verdict.UNCLEAR: "not clearly faster or slower",
    Verdict.UNKNOWN: "as fast as far as can be told without an interval",
}


@dataclass(frozen=True, slots=True)
class TreeRow:
    """A tree and its chain.

    Attributes:
        tree: summary row.
        num_nodes: drafted tokens, or the most of them.
        grows: whether its shape is chosen anew at every step.
        chain: summary row; None where none of its kind was measured.
        rivalry: the tree over the chain, likewise.
    """

    tree: Row
    num_nodes: int
    grows: bool
    chain: Row | None
    rivalry: Rivalry | None


def trees_section(sweep: Sweep) -> Section:
    """A row per tree, a drawing per cell, and in words whether the tree beats its chain."""
    found = list(_trees(sweep))
    if not found:
        return Section(IDENTIFIER, TITLE, omitted="No draft tree was measured.", measure="+sweep=tree")
    told = Bullets([_told(sweep, one) for one in found], title="Does the tree beat its chain?")
    keys = [Key(Style(place).swatch(name, line=False), name) for place, name in enumerate(map(say, _NAMES))]
    figures = Figures(_drawings(sweep, found), keys, _table(sweep, found))
    return Section(IDENTIFIER, TITLE, _LEAD, [told, figures])


def _trees(sweep: Sweep) -> Iterator[TreeRow]:
    for row in sweep.variants:
        options = _options(sweep, row)
        nodes = len(options.get("tree_parents") or ()) or options.get("tree_nodes")
        if not nodes or number(row.get("speedup")) is None:
            continue
        chain = _chain_of(sweep, row)
        found = None if chain is None else sweep.against(row, chain)
        yield TreeRow(row, int(nodes), "tree_nodes" in options, chain, found)


def _options(sweep: Sweep, row: Row) -> Mapping[str, Any]:
    variants = sweep.records[row["cell_id"]].variants
    found = next(variant for variant in variants if variant["variant_id"] == row["variant_id"])
    return found.get("options") or {}


def _chain_of(sweep: Sweep, tree: Row) -> Row | None:
    """The chain that differs from a tree in its shape alone, of the same depth or the next smaller k."""
    wanted = [word for word in str(tree["method"]).split() if not word.startswith(_SHAPES)]
    chains = [
        row
        for row in sweep.variants_of(tree["cell_id"])
        if str(row["method"]).split() == wanted
        and number(row.get("speedup")) is not None
        and row["k"] <= tree["k"]
    ]
    return max(chains, key=lambda row: int(row["k"]), default=None)


def _told(sweep: Sweep, one: TreeRow) -> str:
    lead = f"{sweep.labels[one.tree['cell_id']]}: " if sweep.has_many_cells else ""
    name = lead + say("{tree} ({shape})", tree=variant_label(one.tree), shape=_shape(one))
    if one.chain is None or one.rivalry is None:
        return say("{name}: no chain of its depth was measured to compare it with.", name=name)
    tokens, speed = one.rivalry.tokens_per_forward, one.rivalry.speed
    gain = {
        Verdict.PAYS: say("beats its chain in tokens per forward ({ratio})", ratio=ratio_text(tokens)),
        Verdict.COSTS: say(
            "gets fewer tokens per forward than its chain ({ratio})", ratio=ratio_text(tokens)
        ),
    }.get(
        judged(tokens),
        say("gets about the tokens per forward of its chain ({ratio})", ratio=ratio_text(tokens)),
    )
    joint = say("and") if (judged(tokens) is Verdict.PAYS) == (judged(speed) is Verdict.PAYS) else say("but")
    return say(
        "{name} {gain}, {joint} is {speed} ({ratio}).",
        name=name,
        gain=gain,
        joint=joint,
        speed=say(_SPEED[judged(speed)]),
        ratio=ratio_text(speed),
    )


def _shape(one: TreeRow) -> str:
    size = say("up to {number}", number=one.num_nodes) if one.grows else str(one.num_nodes)
    return say(
        "{size} node{s}, {depth} deep",
        size=size,
        s="" if one.num_nodes == 1 else "s",
        depth=count(one.tree["k"]),
    )


def _drawings(sweep: Sweep, found: Sequence[TreeRow]) -> list[Figure]:
    items = []
    for place, cell_id in enumerate(dict.fromkeys(one.tree["cell_id"] for one in found)):
        own = [one for one in found if one.tree["cell_id"] == cell_id]
        trees = [point_of(one.tree, at, SPEEDUP_MEASURE, chosen=True) for at, one in enumerate(own)]
        chains = [
            point_of(one.chain, at, SPEEDUP_MEASURE, chosen=False)
            for at, one in enumerate(own)
            if one.chain is not None
        ]
        lines = [Line(say(_NAMES[0]), Style(0), tuple(trees)), Line(say(_NAMES[1]), Style(1), tuple(chains))]
        drawing = plots.dots([variant_label(one.tree) for one in own], lines, scale=SPEEDUP_MEASURE.scale)
        note = sweep.labels[cell_id] if sweep.has_many_cells else ""
        items.append(drawn(drawing, f"{IDENTIFIER}-{place}", title="Speedup by tree shape", note=note))
    return items


def _table(sweep: Sweep, found: Sequence[TreeRow]) -> Table:
    columns = [
        *variant_columns(sweep),
        Column("nodes", hint="drafted tokens to verify; the most of them where the tree grows at every step"),
        Column("depth"),
        Column("tokens per forward"),
        Column("speedup"),
        Column("its chain", numeric=False),
        Column("its tokens per forward"),
        Column("its speedup"),
        Column("tokens, tree over chain", hint="ratio of tokens per forward, 95% interval over the prompts"),
        Column("speed, tree over chain", hint="ratio of decode tokens per second, likewise"),
    ]
    return Table("Trees and their chains", columns, [_entries(sweep, one) for one in found])


def _entries(sweep: Sweep, one: TreeRow) -> list[Entry]:
    chain = one.chain or {}
    entries = [
        *variant_entries(sweep, one.tree),
        entry(count(one.num_nodes)),
        entry(count(one.tree["k"])),
        entry(decimal(one.tree.get("tokens_per_forward"))),
        entry(interval_text(one.tree)),
        entry(k_is(chain["k"]) if chain else MISSING),
        entry(decimal(chain.get("tokens_per_forward"))),
        entry(interval_text(chain)),
    ]
    if one.rivalry is None:
        return [*entries, entry(MISSING), entry(MISSING)]
    ratios = (one.rivalry.tokens_per_forward, one.rivalry.speed)
    return [*entries, *(entry(ratio_text(found), judged(found).value) for found in ratios)]
