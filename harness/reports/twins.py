"""The page again as Markdown and as JSON, for readers that open no HTML: the same blocks, no drawing.

A figure stands for the table that says the same in numbers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.reports.blocks import (
    Block,
    Bullets,
    Decision,
    Facts,
    Figures,
    Notice,
    Page,
    Prose,
    Section,
    Table,
    Verbatim,
)

FORMAT_VERSION = 1
"""Of the JSON document; raised when a field changes its meaning or goes."""


def document(page: Page) -> dict[str, Any]:
    """The page as plain mappings and lists; docs/results.md says which fields there are."""
    return {
        "format_version": FORMAT_VERSION,
        "kind": page.kind,
        "title": page.title,
        "subtitle": page.subtitle,
        "headline": page.headline,
        "sections": [_section_fields(section) for section in page.sections],
    }


def as_json(page: Page) -> str:
    """`document` as text."""
    return json.dumps(document(page), indent=1, ensure_ascii=False) + "\n"


def as_markdown(page: Page) -> str:
    """The page as GitHub's Markdown."""
    parts = [f"# {_inline(page.title)}", _inline(page.subtitle), f"**{_inline(page.headline)}**"]
    for section in page.shown:
        parts += [f"## {_inline(section.title)}", _inline(section.lead)]
        for block in section.blocks:
            parts += _markdown_of(block)
    return "\n\n".join(part for part in parts if part) + "\n"


def _section_fields(section: Section) -> dict[str, Any]:
    return {
        "id": section.identifier,
        "title": section.title,
        "lead": section.lead,
        "omitted": section.omitted,
        "measure": section.measure,
        "blocks": [_block_fields(block) for block in section.blocks],
    }


def _block_fields(block: Block) -> dict[str, Any]:
    fields: dict[str, Any] = {"kind": block.kind}
    match block:
        case Table():
            return fields | _table_fields(block)
        case Figures():
            drawn = [{"title": figure.title, "note": figure.note} for figure in block.items]
            return fields | {"drawings": drawn, "table": _table_fields(block.table)}
        case Decision():
            return fields | {"items": {question: list(answers) for question, answers in block.items}}
        case Prose():
            return fields | {"text": block.text}
        case Bullets():
            return fields | {"title": block.title, "tone": block.tone, "items": list(block.items)}
        case Facts():
            return fields | {"title": block.title, "items": dict(block.items)}
        case Verbatim():
            return fields | {"title": block.summary, "text": block.text}
        case Notice():
            told = {"heading": block.heading, "title": block.title, "places": list(block.places)}
            return fields | told | {"facts": dict(block.facts)}


def _table_fields(table: Table) -> dict[str, Any]:
    return {
        "caption": table.caption,
        "columns": [
            {"name": column.name, "numeric": column.numeric, "hint": column.hint} for column in table.columns
        ],
        "rows": [[entry.text for entry in row] for row in table.rows],
        "tones": _tones(table),
    }


def _tones(table: Table) -> list[dict[str, Any]]:
    """Entries with a tone, by row and column counted from 0."""
    return [
        {"row": i, "column": j, "tone": entry.tone}
        for i, row in enumerate(table.rows)
        for j, entry in enumerate(row)
        if entry.tone and entry.tone != "muted"
    ]


def _markdown_of(block: Block) -> Iterator[str]:
    match block:
        case Table():
            yield from _markdown_table(block)
        case Figures():
            yield from _markdown_table(block.table)
        case Decision():
            for question, answers in block.items:
                yield _heading(question)
                yield _list(answers)
        case Prose():
            yield _inline(block.text)
        case Bullets():
            yield _heading(block.title)
            yield _list(block.items)
        case Facts():
            yield _heading(block.title)
            yield _list([f"{name}: {value}" for name, value in block.items])
        case Verbatim():
            yield _heading(block.summary)
            yield _fenced(block.text)
        case Notice():
            yield _heading(block.heading)
            yield f"**{_inline(block.title)}**"
            yield _list([*block.places, *(f"{name}: {value}" for name, value in block.facts)])


def _markdown_table(table: Table) -> Iterator[str]:
    names = [column.name for column in table.columns]
    rules = ["---:" if column.numeric else "---" for column in table.columns]
    rows = [_table_line(names), _table_line(rules, escape=False)]
    rows += [_table_line([entry.text for entry in row]) for row in table.rows]
    yield f"*{_inline(table.caption)}*"
    yield "\n".join(rows)


def _table_line(texts: Sequence[str], *, escape: bool = True) -> str:
    return f"| {' | '.join(_inline(text) if escape else text for text in texts)} |"


def _heading(title: str) -> str:
    return f"### {_inline(title)}" if title else ""


def _list(items: Sequence[str]) -> str:
    return "\n".join(f"- {_inline(item)}" for item in items)


def _inline(text: str) -> str:
    """One line whose characters mean themselves."""
    return "".join(_ESCAPED.get(character, character) for character in " ".join(text.split()))


_ESCAPED: Mapping[str, str] = {character: f"\\{character}" for character in "\\`*_{}[]<>#|~"} | {"&": "&amp;"}


def _fenced(text: str) -> str:
    longest, run = 2, 0
    for character in text:
        run = run + 1 if character == "`" else 0
        longest = max(longest, run)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text.rstrip()}\n{fence}"
