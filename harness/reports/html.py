"""A page as one HTML document that loads nothing and runs nothing but its own script."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from harness.reports import palette
from harness.reports.blocks import Page
from harness.reports.language import language, language_tag, say, style_of


@dataclass(frozen=True, slots=True)
class Inlined:
    """A style sheet or script inside the page; its policy admits them by digest, and nothing else."""

    text: Markup

    @property
    def digest(self) -> str:
        """As a content security policy names it."""
        found = hashlib.sha256(self.text.encode()).digest()
        return f"sha256-{base64.b64encode(found).decode()}"


def render(page: Page) -> str:
    """The page as one HTML document."""
    text = (
        _environment()
        .get_template("report.html.j2")
        .render(
            page=page,
            language_tag=language_tag(),
            style=_inlined(f"{palette.declarations()}\n{_asset('report.css')}\n{style_of(language())}"),
            script=_inlined(_asset("report.js")),
        )
    )
    return _without_blank_lines(text) + "\n"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("harness.reports", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["say"] = say
    return environment


def _asset(name: str) -> str:
    return (files("harness.reports") / "templates" / name).read_text(encoding="utf-8")


def _inlined(text: str) -> Inlined:
    """Without blank lines, as the page has none: its digest is of what the browser reads."""
    return Inlined(Markup(_without_blank_lines(text)))


def _without_blank_lines(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line.strip())
