"""The section that sets drafting methods side by side: what each gains, and what each pays for it."""

from __future__ import annotations

from collections.abc import Sequence

from harness.reports import plots
from harness.reports.blocks import Block, Bullets, Column, Entry, Figure, Figures, Section, Table, entry
from harness.reports.display import count, decimal, fact, number, percent, ratio, size
from harness.reports.drawing import drawn, legend
from harness.reports.language import say
from harness.reports.plots import Line, Point
from harness.reports.rivals import judged, ratio_text
from harness.reports.series import Series, panels
from harness.reports.sweep import Sweep
from harness.reports.words import Verdict, interval_text, verdict

IDENTIFIER, TITLE = "methods", "Methods side by side"
_LEAD = (
    "Each method at its recommended k. Tokens per forward are what drafting gains; c, a drafted token over a "
    "step of the target, and its share of the time are what it costs: the speedup is what is left."
)
_COLUMNS = (
    Column("method", numeric=False),
    Column("k"),
    Column("speedup", hint="decode tokens per second over the baseline's, 95% interval"),
    Column("tokens per forward", hint="output tokens over forwards of the target; not a speedup"),
    Column(
        "accepted per draft", hint="drafted tokens accepted per step that drafted, the target's not counted"
    ),
    Column("c", hint="seconds per drafted token over the baseline's median step"),
    Column("time drafting", hint="share of the decode time"),
    Column("time verifying", hint="share of the decode time"),
    Column("peak memory"),
    Column("lossless", numeric=False),
)


def methods_section(sweep: Sweep) -> Section:
    """A row per method and cell, tokens per forward against speedup, and what tells the methods apart."""
    compared = [own for own in _by_cell(sweep).values() if len({_method(one) for one in own}) > 1]
    if not compared:
        return Section(
            IDENTIFIER, TITLE, omitted="No cell has two drafting methods.", measure="+sweep=method"
        )
    shown = [one for own in compared for one in own]
    told = Bullets([text for own in compared for text in _told(sweep, own)], title="What tells them apart")
    table = _table(sweep, shown)
    blocks: list[Block] = [told, table]
    if items := _drawings(shown):
        blocks = [told, Figures(items, legend(shown), table)]
    return Section(IDENTIFIER, TITLE, _LEAD, blocks)


def _method(one: Series) -> str:
    """The drafter alone: a tree or an adaptive k of it is the same method."""
    return one.method.split()[0]


def _by_cell(sweep: Sweep) -> dict[str, list[Series]]:
    found: dict[str, list[Series]] = {}
    for one in sweep.series:
        if one.chosen is not None:
            found.setdefault(one.cell_id, []).append(one)
    return found


def _told(sweep: Sweep, own: Sequence[Series]) -> list[str]:
    """The fastest lossless method, by how much, and why the one with more tokens per forward isn't it."""
    able = sorted((one for one in own if one.is_lossless), key=lambda one: -_figure(one, "speedup"))
    if not able:
        return []
    lead = f"{sweep.labels[able[0].cell_id]}: " if sweep.has_many_cells else ""
    first, others = able[0], [one for one in able if _method(one) != _method(able[0])]
    if verdict(first.chosen) is Verdict.COSTS:
        return [
            say(
                "{lead}no method is faster than plain decoding; {method} comes closest.",
                lead=lead,
                method=_named(first),
            )
        ]
    texts = [
        say(
            "{lead}{method} is fastest{margin}.",
            lead=lead,
            method=_named(first),
            margin=_margin(sweep, first, others),
        )
    ]
    top = max(able, key=lambda one: _figure(one, "tokens_per_forward"))
    if _method(top) != _method(first):
        texts.append(f"{lead}{_more_tokens(top, first)}")
    return texts


def _margin(sweep: Sweep, first: Series, others: Sequence[Series]) -> str:
    if not others or first.chosen is None or others[0].chosen is None:
        return ""
    found = sweep.against(first.chosen, others[0].chosen).speed
    clear = "" if judged(found) is Verdict.PAYS else say(", too close to tell apart")
    return say(
        ", {ratio} of the speed of {method}{clear}",
        ratio=ratio_text(found),
        method=_named(others[0]),
        clear=clear,
    )


def _more_tokens(top: Series, first: Series) -> str:
    tokens = [decimal(_figure(one, "tokens_per_forward")) for one in (top, first)]
    text = say(
        "{method} gets more tokens per forward, {tokens} against {others}",
        method=_named(top),
        tokens=tokens[0],
        others=tokens[1],
    )
    costs = [number(one.chosen.get("draft_cost_ratio")) if one.chosen else None for one in (top, first)]
    if costs[0] is None or costs[1] is None:
        return say("{text}.", text=text)
    shares = [percent(_figure(one, "draft_share")) for one in (top, first)]
    return say(
        "{text}, but a drafted token costs {cost:.2f} of a step of the target against "
        "{other_cost:.2f}, and drafting takes {share} of the time against {other_share}.",
        text=text,
        cost=costs[0],
        other_cost=costs[1],
        share=shares[0],
        other_share=shares[1],
    )


def _named(one: Series) -> str:
    k = "" if one.chosen is None else say(" at k = {k}", k=count(one.chosen["k"]))
    return f"{one.method_name}{k}"


def _figure(one: Series, name: str) -> float:
    return (number(one.chosen.get(name)) if one.chosen else None) or 0.0


def _drawings(shown: Sequence[Series]) -> list[Figure]:
    items = []
    for place, (panel, own) in enumerate(panels(shown).items()):
        lines = [Line(one.name, one.style, _points(one)) for one in own]
        lines = [line for line in lines if line.points]
        if not lines:
            continue
        drawing = plots.tradeoff(lines, x_label="tokens per forward", y_label="decode speedup")
        title = "Speedup by tokens per forward"
        items.append(drawn(drawing, f"{IDENTIFIER}-{place}", title=title, note=panel))
    return items


def _points(one: Series) -> tuple[Point, ...]:
    """One point per k; the recommended one is marked."""
    known = [row for row in one.rows if number(row.get("tokens_per_forward")) is not None]
    return tuple(
        Point(float(row["tokens_per_forward"]), float(row["speedup"]), chosen=row is one.chosen)
        for row in known
    )


def _table(sweep: Sweep, shown: Sequence[Series]) -> Table:
    cell = [Column("cell", numeric=False)] if sweep.has_many_cells else []
    body = [_entries(sweep, one) for one in shown]
    return Table("Each method at its recommended k", [*cell, *_COLUMNS], body)


def _entries(sweep: Sweep, one: Series) -> list[Entry]:
    row = one.chosen or {}
    found = verdict(row)
    cell = [entry(sweep.labels[one.cell_id])] if sweep.has_many_cells else []
    return [
        *cell,
        entry(one.method_name),
        entry(count(row.get("k"))),
        entry(interval_text(row), found.value if one.is_lossless else "unclear"),
        entry(decimal(row.get("tokens_per_forward"))),
        entry(decimal(row.get("mean_accepted_per_drafting_step"))),
        entry(ratio(row.get("draft_cost_ratio")).removesuffix("x")),
        entry(percent(row.get("draft_share"))),
        entry(percent(row.get("verify_share"))),
        entry(size(row.get("peak_memory_bytes"))),
        entry(say(fact(one.is_lossless))),
    ]
