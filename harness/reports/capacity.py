"""The section that repeats what the capacity plan beside the report advises."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from harness.privacy import clipped
from harness.reports.blocks import Column, Section, Table, entry
from harness.reports.language import say
from harness.reports.plan_build import DOCUMENT_FILE, PLAN_FILE
from harness.reports.plan_document import DOCUMENT_VERSION
from harness.reports.sweep import Sweep

IDENTIFIER, TITLE = "capacity", "Capacity"
_TEXT_CHARACTERS = 600
_LEAD = (
    "What the last capacity plan of these results advises, for the traffic and the limits it was asked for. "
    "It isn't planned again when results are added."
)
Advice = tuple[str, str]


def read_advice(folder: Path) -> list[Advice]:
    """Label and advice of every configuration of the plan in a folder; none without a readable plan."""
    try:
        document = json.loads((folder / DOCUMENT_FILE).read_text(encoding="utf-8"))
        if not (folder / PLAN_FILE).is_file() or document["format_version"] != DOCUMENT_VERSION:
            return []
        return [(str(one["label"]), str(one["advice"])) for one in document["configurations"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def capacity_section(sweep: Sweep, advice: Sequence[Advice]) -> Section:
    """The plan's advice by configuration, and a link to the plan."""
    if not advice:
        command = f"plan results/{clipped(sweep.name, 80)}"
        return Section(IDENTIFIER, TITLE, omitted="No capacity plan lies beside this page.", measure=command)
    columns = [Column(name, numeric=False) for name in ("configuration", "advice", "page")]
    body = [
        [
            entry(clipped(label, 60)),
            entry(clipped(text, _TEXT_CHARACTERS)),
            entry(say("the plan"), link=PLAN_FILE),
        ]
        for label, text in advice
    ]
    return Section(IDENTIFIER, TITLE, _LEAD, [Table("What to run under load", columns, body)])
