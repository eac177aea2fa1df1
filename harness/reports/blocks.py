"""What a page is made of: sections of prose, tables, figures, facts and folded texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from markupsafe import Markup

from harness.reports.display import MISSING, quantity


@dataclass(frozen=True, slots=True)
class Column:
    """A table column; numbers align right, `hint` explains the name."""

    name: str
    numeric: bool = True
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One table cell: its text, its tone (`pays`, `costs`, `unclear`, `muted` or none), a relative link."""

    text: str
    tone: str = ""
    link: str = ""

    @property
    def quantity(self) -> float | None:
        """The number that the text starts with, in base units: what the column is sorted by."""
        return quantity(self.text)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a caption; `collapsed` folds it behind its caption."""

    kind: ClassVar[str] = "table"
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Entry]]
    collapsed: bool = False

    @property
    def group_starts(self) -> set[int]:
        """Rows that begin a run with another first column, where runs are longer than a row."""
        firsts = [row[0].text for row in self.rows]
        starts = {i for i in range(1, len(firsts)) if firsts[i] != firsts[i - 1]}
        return starts if len(starts) + 1 < len(firsts) else set()


@dataclass(frozen=True, slots=True)
class Key:
    """One entry of a legend."""

    swatch: Markup
    name: str


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing, what it shows and the facet it belongs to."""

    svg: Markup
    title: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Figures:
    """Drawings that share a legend, and the table that says the same in numbers."""

    kind: ClassVar[str] = "figures"
    items: Sequence[Figure]
    legend: Sequence[Key]
    table: Table


@dataclass(frozen=True, slots=True)
class Decision:
    """Questions that a reader comes with, and the sentences that answer each."""

    kind: ClassVar[str] = "decision"
    items: Sequence[tuple[str, Sequence[str]]]


@dataclass(frozen=True, slots=True)
class Prose:
    """One paragraph."""

    kind: ClassVar[str] = "prose"
    text: str


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list of sentences; `tone` is `warning` or plain."""

    kind: ClassVar[str] = "bullets"
    items: Sequence[str]
    tone: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and their values or meanings."""

    kind: ClassVar[str] = "facts"
    items: Sequence[tuple[str, str]]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Verbatim:
    """A long text, such as a traceback or a configuration, folded behind a line."""

    kind: ClassVar[str] = "verbatim"
    summary: str
    text: str


@dataclass(frozen=True, slots=True)
class Notice:
    """A remark with the places it concerns and facts about it; `heading` opens a group of them."""

    kind: ClassVar[str] = "notice"
    title: str
    places: Sequence[str]
    facts: Sequence[tuple[str, str]]
    heading: str = ""


Block = Table | Figures | Decision | Prose | Bullets | Facts | Verbatim | Notice


@dataclass(frozen=True, slots=True)
class Section:
    """A titled part of the page.

    Attributes:
        identifier: unique in the page; links end with it.
        title: also its name in the contents.
        lead: what the section shows, in a sentence or two.
        blocks: its content.
        omitted: why it has none; such a section isn't shown.
        measure: the arguments of `python -m harness` that would give it content.
    """

    identifier: str
    title: str
    lead: str = ""
    blocks: Sequence[Block] = ()
    omitted: str = ""
    measure: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """The whole report; `kind` is what a list of reports calls it."""

    title: str
    subtitle: str
    headline: str
    sections: Sequence[Section] = field(default_factory=tuple)
    kind: str = "sweep"

    @property
    def shown(self) -> list[Section]:
        """The sections that have content."""
        return [section for section in self.sections if not section.omitted]

    @property
    def unmeasured(self) -> list[Section]:
        """The sections without content that a command would give some."""
        return [section for section in self.sections if section.omitted and section.measure]


def entry(text: str, tone: str = "", *, link: str = "") -> Entry:
    """A table cell; a missing value is toned down."""
    return Entry(text, tone or ("muted" if text == MISSING else ""), link)
