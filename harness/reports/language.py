"""The language a page is written in: sentences are said through a function that knows their translations."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.resources import files

from harness.config.languages import ENGLISH, LANGUAGE_TAGS, check_language

_current: ContextVar[str] = ContextVar("report_language", default=ENGLISH)
_BLANK = re.compile(r"{(\w+)}")
_WIDE = 0xFEE0
"""From a character of ASCII to its form of full width."""
_GAP = re.compile(
    "(?<=[\N{IDEOGRAPHIC FULL STOP}" + "".join(chr(ord(mark) + _WIDE) for mark in ";:,!?)") + "]) +(?=\\S)"
)


@contextmanager
def speaking(name: str) -> Iterator[None]:
    """Have everything that is said meanwhile said in a language.

    Args:
        name: one of `LANGUAGE_TAGS`.

    Raises:
        ConfigError: the language has no catalogue.
    """
    check_language(name, field="language")
    token = _current.set(name)
    try:
        yield
    finally:
        _current.reset(token)


def language() -> str:
    """The language in use, one of `LANGUAGE_TAGS`."""
    return _current.get()


def language_tag() -> str:
    """The language in use as HTML names it."""
    return LANGUAGE_TAGS[language()]


def say(english: str, **values: object) -> str:
    """A text in the language in use; what has no translation stays as it is.

    Args:
        english: the text, or a template whose blanks are named in braces.
        values: what fills the blanks, written already or to be formatted by the blank.
    """
    template = english if language() == ENGLISH else catalogue(language()).get(english, english)
    return template.format(**values) if values else template


def retold(english: str) -> str:
    """A finished English sentence in the language in use: its template is found by what it looks like.

    For sentences that are stored with results, where the values can't be told from the words any more.
    """
    if language() == ENGLISH:
        return english
    for pattern, translation in _patterns(language()):
        if found := pattern.fullmatch(english):
            return translation.format(**{name: retold(text) for name, text in found.groupdict("").items()})
    return english


def before(mark: str, text: str) -> str:
    """A text up to the first comma, colon or the like, narrow or of full width."""
    return re.split(f"[{mark}{chr(ord(mark) + _WIDE)}]", text, maxsplit=1)[0]


def closed_up(text: str) -> str:
    """Prose whose sentences were joined by blanks, without them where the language writes none."""
    return text if language() == ENGLISH else _GAP.sub("", text)


@cache
def catalogue(name: str) -> Mapping[str, str]:
    """Translations by English text."""
    read: dict[str, str] = json.loads(_file(f"{name}.json"))
    return read


@cache
def style_of(name: str) -> str:
    """Style rules that only pages of a language need; empty for English."""
    return "" if name == ENGLISH else _file(f"{name}.css")


@cache
def _patterns(name: str) -> list[tuple[re.Pattern[str], str]]:
    """What stored sentences look like, with their translations, those with most letters first."""
    stored: dict[str, str] = json.loads(_file(f"{name}_stored.json"))
    longest_first = sorted(stored, key=lambda template: -len(_BLANK.sub("", template)))
    return [(_pattern(template), stored[template]) for template in longest_first]


def _pattern(template: str) -> re.Pattern[str]:
    pieces = _BLANK.split(template)
    parts = (f"(?P<{piece}>.*?)" if place % 2 else re.escape(piece) for place, piece in enumerate(pieces))
    return re.compile("".join(parts), re.DOTALL)


def _file(name: str) -> str:
    return (files("harness.reports") / "languages" / name).read_text(encoding="utf-8")
