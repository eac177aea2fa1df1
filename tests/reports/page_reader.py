"""Reads a page back as a person or a browser would: which elements, which texts, what it would load."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "hr", "input", "source", "col", "wbr"}
FOREIGN_VOID = {"path", "use", "circle", "rect", "line", "image", "polygon"}


class PageReader(HTMLParser):
    """Collects what a test asks about; raises on tags that don't nest."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.svgs: list[dict[str, str]] = []
        self.sections: dict[str, str] = {}
        self._section = ""
        self.feed(html)
        self.close()
        if self.open:
            raise AssertionError(f"unclosed: {self.open}")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open[-1] != tag:
            raise AssertionError(f"</{tag}> closes {self.open[-3:]}")
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self._section:
            self.sections[self._section] += data
        if self.open[-2:] == ["svg", "title"]:
            self.svgs[-1]["title"] = data
        if self.open[-2:] == ["svg", "desc"]:
            self.svgs[-1]["desc"] = data

    def _note(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in found.items()]
        if "id" in found:
            self.ids.append(found["id"])
        if tag == "section":
            self._section = found["id"]
            self.sections[self._section] = ""
        if tag == "svg":
            self.svgs.append({"class": found.get("class", ""), "role": found.get("role", "")})
