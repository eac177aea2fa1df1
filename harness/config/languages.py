"""The languages that a report can be written in."""

from __future__ import annotations

from harness.errors import ConfigError
from harness.registry import suggest

ENGLISH = "en"
LANGUAGE_TAGS = {ENGLISH: "en", "zh": "zh-Hans"}
"""What HTML calls each language, by the name that a user gives."""


def check_language(name: str, *, field: str) -> None:
    """Refuse a language that no report can be written in.

    Raises:
        ConfigError: naming the field, what it got and the languages there are.
    """
    if name not in LANGUAGE_TAGS:
        raise ConfigError(field, "isn't known", name, suggest(name, LANGUAGE_TAGS))
