"""The section that says in words what the rules found, and the line about it on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from harness.findings import Finding, Topic
from harness.privacy import clipped
from harness.reports.blocks import Block, Notice, Section
from harness.reports.labels import variant_label
from harness.reports.language import retold, say
from harness.reports.sweep import Sweep
from harness.reports.words import joined, shortened

_MOST_PLACES = 8
_MOST_IN_LINE = 4
_TEXT_CHARACTERS = 300
_HEADINGS = {
    Topic.SPECULATION: "About speculation",
    Topic.MEASUREMENT: "About the measurement",
}
_LEAD = (
    "What fixed rules see in the tables of this page. Counted: a fact. Clear: the whole 95% interval lies "
    "beyond the threshold. Likely: the estimate does. A rule without the figures it needs says nothing."
)


def findings_section(sweep: Sweep) -> Section:
    """Every rule that found something, with evidence, threshold, confidence and next step."""
    if not sweep.findings:
        return Section("findings", "Findings", omitted="None: no rule found anything out of the ordinary.")
    blocks: list[Block] = []
    for topic, heading in _HEADINGS.items():
        groups = [group for group in _by_rule(sweep.findings) if group[0].rule.topic is topic]
        notices = [
            _notice(sweep, group, say(heading) if place == 0 else "") for place, group in enumerate(groups)
        ]
        blocks += notices
    return Section("findings", "Findings", _LEAD, blocks)


def findings_line(sweep: Sweep) -> str | None:
    """One line for a terminal; None where nothing was found."""
    titles = [say(group[0].rule.title) for group in _by_rule(sweep.findings)]
    if not titles:
        return None
    shown = [shortened(title) for title in titles]
    number = say("{number} finding{s}", number=len(titles), s="" if len(titles) == 1 else "s")
    return f"{number}: {joined(shown, limit=_MOST_IN_LINE, separator='; ')}."


def measurement_sentences(sweep: Sweep) -> list[str]:
    """A sentence per rule that doubts the measurement, for the cautions at the top of the page."""
    groups = [group for group in _by_rule(sweep.findings) if group[0].rule.topic is Topic.MEASUREMENT]
    return [_sentence(sweep, group) for group in groups]


def _sentence(sweep: Sweep, group: Sequence[Finding]) -> str:
    title = say(group[0].rule.title)
    if not sweep.has_many_cells:
        return say("{title}.", title=title)
    labels = list(dict.fromkeys(sweep.labels[found.sighting.cell_id] for found in group))
    return say("{title} ({cells}).", title=title, cells=joined(labels, limit=_MOST_IN_LINE, separator="; "))


def _by_rule(findings: Sequence[Finding]) -> list[list[Finding]]:
    groups: dict[str, list[Finding]] = {}
    for found in findings:
        groups.setdefault(found.rule.name, []).append(found)
    return list(groups.values())


def _notice(sweep: Sweep, group: Sequence[Finding], heading: str) -> Notice:
    places = [_place(sweep, found) for found in group[:_MOST_PLACES]]
    if len(group) > _MOST_PLACES:
        places.append(say("and in {number} more places.", number=len(group) - _MOST_PLACES))
    steps = list(dict.fromkeys(say(found.next_step) for found in group))
    return Notice(
        title=say(group[0].rule.title),
        places=places,
        facts=[
            (say("Threshold"), say("{threshold}.", threshold=say(group[0].rule.threshold))),
            (say("Next step"), " ".join(steps)),
        ],
        heading=heading,
    )


def _place(sweep: Sweep, found: Finding) -> str:
    sighting = found.sighting
    cell = sweep.labels[sighting.cell_id] if sweep.has_many_cells else ""
    row = next(
        (
            row
            for row in sweep.variants
            if (row["cell_id"], row["variant_id"]) == (sighting.cell_id, sighting.variant_id)
        ),
        None,
    )
    variant = variant_label(row) if row else ""
    where = " · ".join(part for part in (cell, variant) if part)
    text = clipped(retold(sighting.text), _TEXT_CHARACTERS)
    told = say("{label}: {text}", label=where, text=text) if where else f"{text[:1].upper()}{text[1:]}"
    return say("{told} ({confidence})", told=told, confidence=say(sighting.confidence.value))
