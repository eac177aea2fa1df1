"""The section on adaptive k: which k it chose over time, and whether choosing beats the best fixed k."""

from __future__ import annotations

from collections.abc import Sequence

from harness.reports.bands import bands
from harness.reports.blocks import Block, Bullets, Column, Figure, Figures, Key, Section, Table, entry
from harness.reports.display import decimal, k_is, number, percent
from harness.reports.drawing import drawn
from harness.reports.labels import Row, variant_label
from harness.reports.language import say
from harness.reports.naming import variant_columns, variant_entries
from harness.reports.plots import Line, Point
from harness.reports.rivals import judged, ratio_text
from harness.reports.svg import Style
from harness.reports.sweep import Sweep
from harness.reports.words import Verdict

IDENTIFIER, TITLE = "pacing", "k chosen over time"
ADAPTIVE = "adaptive"
_LEAD = (
    "Adaptive k drafts as many tokens as running acceptance and measured costs make pay, step by step. "
    "The line is the mean over the sequences that got so far, the band holds their middle half."
)


def pacing_section(sweep: Sweep) -> Section:
    """Mean k over the steps, the share of steps at each k, and adaptive k against the best fixed one."""
    adaptive = [row for row in sweep.variants if is_adaptive(row) and number(row.get("speedup")) is not None]
    if not adaptive:
        return Section(IDENTIFIER, TITLE, omitted="No variant adapts its k.", measure="+sweep=adaptive")
    told = [text for row in adaptive for text in _told(sweep, row)]
    blocks: list[Block] = [Bullets(told, title="Is adaptive k as fast as the best fixed k?")] if told else []
    tables = [_shares_table(sweep, adaptive)]
    styles = _styles(adaptive)
    if items := _drawings(sweep, adaptive, styles):
        keys = [Key(style.swatch(name, line=True), name) for name, style in styles.items()]
        return Section(
            IDENTIFIER, TITLE, _LEAD, [*blocks, Figures(items, keys, _spans_table(sweep, adaptive)), *tables]
        )
    return Section(IDENTIFIER, TITLE, _LEAD, [*blocks, *tables])


def is_adaptive(row: Row) -> bool:
    """Whether a variant chooses its k step by step."""
    return ADAPTIVE in str(row["method"]).split()


def _told(sweep: Sweep, row: Row) -> list[str]:
    """Adaptive k over the fastest fixed k of what else is the same; nothing where there is none."""
    wanted = [word for word in str(row["method"]).split() if word != ADAPTIVE]
    fixed = [
        other
        for other in sweep.variants_of(row["cell_id"])
        if str(other["method"]).split() == wanted and number(other.get("speedup")) is not None
    ]
    if not fixed:
        return []
    best = max(fixed, key=lambda other: float(other["speedup"]))
    found = sweep.against(row, best).speed
    lead = f"{sweep.labels[row['cell_id']]}: " if sweep.has_many_cells else ""
    answer = {
        Verdict.PAYS: "Yes, it is faster",
        Verdict.COSTS: "No, it is slower",
        Verdict.UNCLEAR: "Yes, within the interval",
    }.get(judged(found), "Without an interval it can't be told")
    answer = say(answer)
    ratio = say(
        "{ratio} of the speed of {k}, the fastest fixed one", ratio=ratio_text(found), k=k_is(best["k"])
    )
    return [
        say(
            "{lead}{variant}: {first}{rest}: {ratio}.",
            lead=lead,
            variant=variant_label(row),
            first=answer[:1].lower(),
            rest=answer[1:],
            ratio=ratio,
        )
    ]


def _styles(adaptive: Sequence[Row]) -> dict[str, Style]:
    names = dict.fromkeys(variant_label(row) for row in adaptive)
    return {name: Style(place) for place, name in enumerate(names)}


def _drawings(sweep: Sweep, adaptive: Sequence[Row], styles: dict[str, Style]) -> list[Figure]:
    items = []
    for place, cell in enumerate(sweep.cells):
        own = [row for row in adaptive if row["cell_id"] == cell["cell_id"]]
        lines = [Line(variant_label(row), styles[variant_label(row)], _points(sweep, row)) for row in own]
        lines = [line for line in lines if line.points]
        if not lines:
            continue
        drawing = bands(lines, x_label="verification step of a sequence", y_label="drafted tokens")
        note = sweep.labels[cell["cell_id"]] if sweep.has_many_cells else ""
        items.append(drawn(drawing, f"{IDENTIFIER}-{place}", title="Drafted tokens by step", note=note))
    return items


def _points(sweep: Sweep, row: Row) -> tuple[Point, ...]:
    steps = [step for step in sweep.pace_by_step if _same(step, row)]
    return tuple(Point(step["step"] + 1, step["mean"], step["low"], step["high"]) for step in steps)


def _same(found: Row, row: Row) -> bool:
    return bool((found["cell_id"], found["variant_id"]) == (row["cell_id"], row["variant_id"]))


def _spans_table(sweep: Sweep, adaptive: Sequence[Row]) -> Table:
    """How many tokens were drafted, by how far the sequence had come."""
    spans = sweep.chosen_k.columns
    columns = [*variant_columns(sweep), *(Column(say("steps {span}", span=span)) for span in spans)]
    body = []
    for row in adaptive:
        known = sweep.chosen_k.reindex([(row["cell_id"], row["variant_id"])])
        means = known.to_numpy(dtype=float)[0].tolist()
        body.append([*variant_entries(sweep, row), *(entry(decimal(mean)) for mean in means)])
    return Table("Mean number of tokens drafted per step, over time", columns, body)


def _shares_table(sweep: Sweep, adaptive: Sequence[Row]) -> Table:
    own = [found for found in sweep.pace_shares if any(_same(found, row) for row in adaptive)]
    ks = sorted({int(found["drafted"]) for found in own})
    columns = [*variant_columns(sweep), *(Column(k_is(k) if k else "none") for k in ks)]
    body = []
    for row in adaptive:
        shares = {int(found["drafted"]): found["share"] for found in own if _same(found, row)}
        body.append([*variant_entries(sweep, row), *(entry(percent(shares.get(k, 0.0))) for k in ks)])
    return Table("Share of the steps that drafted so many tokens", columns, body)
