"""The page that lists all reports of a folder, made from what each says about itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

from harness.privacy import clipped
from harness.reports.blocks import Column, Page, Section, Table, entry
from harness.reports.html import render
from harness.reports.language import say
from harness.reports.plan_build import PLAN_FILE
from harness.reports.publish import REPORT_FILE
from harness.reports.spoken import spoken
from harness.results.storage import storage_errors, write_atomic

INDEX_FILE = "index.html"
_GENERATOR = "specdec-harness"
_HEAD_BYTES = 2**15
_TITLE_CHARACTERS, _HEADLINE_CHARACTERS, _SUBTITLE_CHARACTERS = 100, 300, 200


def write_index(reports_dir: Path) -> Path | None:
    """Write `index.html` with a row per report below the folder; measures and renders nothing else.

    Returns:
        Its path; None where another program's `index.html` is in its place, which is left alone.

    Raises:
        StorageError: it can't be written.
    """
    path = reports_dir / INDEX_FILE
    if path.exists() and _head(path) is None:
        return None
    page = render(spoken(_page(list(_listed(reports_dir)))))
    with storage_errors(reports_dir):
        reports_dir.mkdir(parents=True, exist_ok=True)
    write_atomic(path, lambda file: file.write(page.encode()))
    return path


@dataclass(frozen=True, slots=True)
class _Head:
    """What a page says about itself."""

    kind: str
    title: str
    headline: str
    subtitle: str


def _listed(reports_dir: Path) -> Iterator[tuple[Path, _Head]]:
    """Paths relative to the folder, in order of name."""
    for name in (REPORT_FILE, PLAN_FILE):
        for path in sorted(reports_dir.glob(f"*/{name}")):
            if (head := _head(path)) is not None:
                yield path.relative_to(reports_dir), head


def _page(found: list[tuple[Path, _Head]]) -> Page:
    columns = [
        Column(name, numeric=False) for name in ("report", "kind", "what it says", "what was measured")
    ]
    body = [
        [
            entry(clipped(head.title, _TITLE_CHARACTERS), link=quote(path.as_posix())),
            entry(clipped(head.kind, 20)),
            entry(clipped(head.headline, _HEADLINE_CHARACTERS)),
            entry(clipped(head.subtitle, _SUBTITLE_CHARACTERS)),
        ]
        for path, head in sorted(found, key=lambda pair: pair[0])
    ]
    told = say("{number} report{s}.", number=len(body), s="" if len(body) == 1 else "s")
    table = Table("All reports", columns, body)
    sections = [Section("reports", "Reports", blocks=[table])]
    return Page("Reports", "Written anew with every report.", told, sections, kind="list")


def _head(path: Path) -> _Head | None:
    """None where the page is another program's, or can't be read."""
    try:
        with path.open("rb") as file:
            text = file.read(_HEAD_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return None
    reader = _HeadReader()
    reader.feed(text)
    if reader.metas.get("generator") != _GENERATOR:
        return None
    metas = (reader.metas.get(key, "") for key in ("description", "harness-subtitle"))
    return _Head(reader.metas.get("harness-kind", ""), reader.title, *metas)


class _HeadReader(HTMLParser):
    """Collects the title and the named metas."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.metas: dict[str, str] = {}
        self.title = ""
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a meta, or that the title begins."""
        found = dict(attrs)
        if tag == "meta" and found.get("name"):
            self.metas.setdefault(str(found["name"]), found.get("content") or "")
        self._in_title = tag == "title" and not self.title

    def handle_endtag(self, tag: str) -> None:
        """The title ends with any end tag."""
        self._in_title = False

    def handle_data(self, data: str) -> None:
        """Keep the title's text."""
        if self._in_title:
            self.title += data
