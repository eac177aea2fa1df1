"""A page in the language in use: what its author wrote without blanks is translated as it is laid out.

Texts with blanks are said where they are made, since only there the values are known. Those without, such as
titles, captions and names of columns, are often constants, made before any language is chosen: here they are
looked up. What comes from results, such as entries of tables and values of facts, is left alone.
"""

from __future__ import annotations

from dataclasses import replace

from harness.config.languages import ENGLISH
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
from harness.reports.language import closed_up, language, say


def spoken(page: Page) -> Page:
    """The page as its readers get it; in English it is the one given."""
    if language() == ENGLISH:
        return page
    return replace(
        page,
        title=_prose(page.title),
        subtitle=_prose(page.subtitle),
        headline=_prose(page.headline),
        sections=[_section(section) for section in page.sections],
    )


def _prose(text: str) -> str:
    return closed_up(say(text))


def _section(section: Section) -> Section:
    return replace(
        section,
        title=say(section.title),
        lead=_prose(section.lead),
        omitted=_prose(section.omitted),
        blocks=[_block(block) for block in section.blocks],
    )


def _block(block: Block) -> Block:
    match block:
        case Table():
            return _table(block)
        case Figures():
            return replace(block, table=_table(block.table))
        case Decision():
            return Decision([(question, list(map(_prose, told))) for question, told in block.items])
        case Prose():
            return Prose(_prose(block.text))
        case Bullets():
            return replace(block, items=list(map(_prose, block.items)), title=say(block.title))
        case Facts():
            return replace(block, title=say(block.title))
        case Verbatim():
            return replace(block, summary=say(block.summary))
        case Notice():
            facts = [(name, closed_up(value)) for name, value in block.facts]
            return replace(block, places=list(map(closed_up, block.places)), facts=facts)


def _table(table: Table) -> Table:
    columns = [replace(one, name=say(one.name), hint=_prose(one.hint)) for one in table.columns]
    return replace(table, caption=_prose(table.caption), columns=columns)
