"""The page that puts several runs side by side: the figures of each, and how far they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.privacy import clipped
from harness.reports.blocks import Block, Bullets, Column, Entry, Facts, Page, Section, Table, entry
from harness.reports.display import MISSING, percent, rate, ratio, with_interval
from harness.reports.labels import Row, variant_label
from harness.reports.language import retold, say

METRICS = {
    "speedup": ("Decode speedup", ratio),
    "acceptance_rate": ("Acceptance rate", percent),
    "decode_tok_per_s": ("Decode tokens per second", rate),
    "throughput_tok_per_s": ("Throughput in tokens per second", rate),
}
"""By column of `Results.summary()`: title, and how a value is written."""

_MOST_ROWS = 200
_REASON_CHARACTERS = 400
_LEAD = (
    "Each figure with its 95% interval over the prompts of its own run. A change is of the same prompts in "
    "both runs, with the interval of the change, which is narrower than the two figures' intervals suggest."
)


@dataclass(frozen=True, slots=True)
class Change:
    """How far a figure of a run lies from that of the first run.

    Attributes:
        change: difference of shares, or relative change of all else; None where it can't be told.
        low: lower end of its interval.
        high: upper end.
        is_difference: whether it is a difference of shares.
        reason: why there is none.
    """

    change: float | None
    low: float | None
    high: float | None
    is_difference: bool = False
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Compared:
    """One variant of one cell in several runs.

    Attributes:
        cell: label of the cell; empty where all runs have one.
        figures: summary row by run; a run without it is left out.
        changes: by run and metric, against the first run.
    """

    cell: str
    figures: Mapping[int, Row]
    changes: Mapping[tuple[int, str], Change]


def runs_page(names: Sequence[str], rows: Sequence[Compared], cautions: Sequence[str]) -> Page:
    """Lay out a comparison.

    Args:
        names: of the runs, the one that the others are compared with first.
        rows: in reading order.
        cautions: what to know before believing a change.
    """
    told = [clipped(name, 60) for name in names]
    sections = [_summary(told, rows, cautions)]
    sections += [_section(metric, told, rows) for metric in METRICS]
    return Page(
        title=say("Runs side by side: {runs}", runs=say(" and ").join(told)),
        subtitle=say(
            "{num_rows} variants in {num_cells} cells",
            num_rows=len(rows),
            num_cells=len({row.cell for row in rows}),
        ),
        headline=_headline(told, rows),
        sections=[*sections, _not_compared(told, rows)],
    )


def _headline(names: Sequence[str], rows: Sequence[Compared]) -> str:
    sentences = []
    for run in range(1, len(names)):
        changes = [change for row in rows if (change := row.changes.get((run, "speedup")))]
        known = [change for change in changes if change.low is not None and change.high is not None]
        up = sum(change.low > 0 for change in known if change.low is not None)
        down = sum(change.high < 0 for change in known if change.high is not None)
        if not known:
            sentences.append(
                say("No speedup of {run} can be compared with {first}'s.", run=names[run], first=names[0])
            )
        else:
            sentences.append(
                say(
                    "{run} against {first}: of {total} speedups {up} rose, {down} fell, and {rest} show no "
                    "clear change.",
                    run=names[run],
                    first=names[0],
                    total=len(known),
                    up=up,
                    down=down,
                    rest=len(known) - up - down,
                )
            )
    return " ".join(sentences)


def _summary(names: Sequence[str], rows: Sequence[Compared], cautions: Sequence[str]) -> Section:
    items = [
        (
            name,
            say(
                "{number} of {total} variants",
                number=sum(run in row.figures for row in rows),
                total=len(rows),
            ),
        )
        for run, name in enumerate(names)
    ]
    blocks: list[Block] = [Facts(items, "Runs")]
    if cautions:
        texts = [clipped(retold(text), _REASON_CHARACTERS) for text in cautions]
        blocks.append(Bullets(texts, tone="warning", title="Before relying on this"))
    return Section("runs", "Runs", _LEAD, blocks)


def _section(metric: str, names: Sequence[str], rows: Sequence[Compared]) -> Section:
    title = METRICS[metric][0]
    known = [row for row in rows if any(_is_known(figures, metric) for figures in row.figures.values())]
    if not known:
        return Section(metric, title, omitted=say("No run has a {title}.", title=say(title.lower())))
    has_cells = len({row.cell for row in rows}) > 1
    columns = [
        *([Column("cell", numeric=False)] if has_cells else []),
        Column("variant", numeric=False),
        *(Column(name) for name in names),
        *(
            Column(say("{run}, change", run=name), hint=say("against {run}, same prompts", run=names[0]))
            for name in names[1:]
        ),
    ]
    body = [_line(row, metric, len(names), has_cells=has_cells) for row in known[:_MOST_ROWS]]
    cut = (
        say(", the first {number} of {total} variants", number=_MOST_ROWS, total=len(known))
        if len(known) > _MOST_ROWS
        else ""
    )
    return Section(metric, title, blocks=[Table(f"{say(title)}{cut}", columns, body)])


def _line(row: Compared, metric: str, num_runs: int, *, has_cells: bool) -> list[Entry]:
    write = METRICS[metric][1]
    texts = []
    for run in range(num_runs):
        figures = row.figures.get(run, {})
        values = [figures.get(f"{metric}{end}") for end in ("", "_low", "_high")]
        texts.append(entry(with_interval(values, write) if figures else MISSING))
    cell = [entry(row.cell)] if has_cells else []
    named = variant_label(next(iter(row.figures.values())))
    changes = [_change(row.changes.get((run, metric))) for run in range(1, num_runs)]
    return [*cell, entry(named), *texts, *changes]


def _change(found: Change | None) -> Entry:
    if found is None or found.change is None:
        return entry(MISSING)
    unit = say(" pt") if found.is_difference else "%"
    text = f"{100 * found.change:+.1f}{unit}"
    if found.low is None or found.high is None:
        return entry(text, "muted")
    tone = "pays" if found.low > 0 else "costs" if found.high < 0 else "unclear"
    return entry(f"{text} [{100 * found.low:+.1f}, {100 * found.high:+.1f}]", tone)


def _not_compared(names: Sequence[str], rows: Sequence[Compared]) -> Section:
    """Every reason why a change is missing, with what it concerns."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        named = variant_label(next(iter(row.figures.values())))
        where = f"{row.cell} · {named}" if row.cell else named
        for (run, metric), change in row.changes.items():
            if change.reason:
                key = (names[run], change.reason)
                title = say(METRICS[metric][0].lower()) if metric in METRICS else say("all figures")
                found.setdefault(key, []).append(f"{where} ({title})")
    if not found:
        return Section("not-compared", "Not compared", omitted="Every figure that two runs have is compared.")
    body = []
    for (name, reason), places in found.items():
        more = say(" and {number} more", number=len(places) - 3) if len(places) > 3 else ""
        told = clipped(retold(reason), _REASON_CHARACTERS)
        body.append([entry(name), entry(told), entry("; ".join(places[:3]) + more)])
    columns = [Column(name, numeric=False) for name in ("run", "why", "what")]
    return Section("not-compared", "Not compared", blocks=[Table("Missing changes", columns, body)])


def _is_known(figures: Row, metric: str) -> bool:
    return METRICS[metric][1](figures.get(metric)) != MISSING
