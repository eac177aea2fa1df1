"""What results and reports must not carry: a machine's folders, its name, its user; control characters."""

from __future__ import annotations

import getpass
import re
import socket
from functools import lru_cache
from typing import Any

_QUOTED_PATH = re.compile(r"""(?P<quote>["'`])(?:[A-Za-z]:[\\/]|[/\\]{1,2}(?=[\w.~-]))[^"'`\n]*(?P=quote)""")
_PATH = re.compile(
    r"""(?<![\w./\\~…-])(?!(?<=:)//)(?:[A-Za-z]:[\\/]|\\\\|~/|/(?=[\w.@+~-]+/|(?:tmp|root|home|var|opt|mnt|srv|usr|etc)\b))"""
    r"""[^\s"'`<>|,;:()\[\]{}]*"""
)
_HOME = re.compile(r"[/\\]+(?:home|Users)[/\\]+[^/\\\s\"'`<>|,;:()]+")
_FILE_URL = re.compile(r"file:/{2,3}[^\s\"'<>]*")
_ANCHORS = ("site-packages", "dist-packages", "harness")
_CONTROL = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
_TOO_PLAIN = frozenset(
    {"root", "user", "admin", "ubuntu", "runner", "localhost", "model", "main", "test", "data"}
)
_PRIVATE_KEYS = frozenset(
    {"host", "hostname", "node", "user", "username", "home", "cwd", "fqdn", "email", "login"}
)
_LONGEST_CHARACTERS = 20_000


def clean(value: object) -> str:
    """Text fit to publish: no absolute paths, no machine or user name, no control characters.

    Paths inside a package keep their package-relative part; of any other only the last name stays.
    Very long text is cut, and says so.
    """
    text = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", str(value))
    text = _FILE_URL.sub(lambda found: _shortened(found.group()), text)
    text = _QUOTED_PATH.sub(_shortened_in_quotes, text)
    text = _PATH.sub(lambda found: _shortened(found.group()), text)
    text = _HOME.sub("…", text)
    for name in _machine_names():
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "…", text)
    if len(text) > _LONGEST_CHARACTERS:
        text = f"{text[:_LONGEST_CHARACTERS]}\n… {len(text) - _LONGEST_CHARACTERS:,} characters left out"
    return text


def cleaned(value: Any) -> Any:
    """The value with every text inside it, in mappings and lists too, made fit to publish; see `clean`."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {key: cleaned(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(item) for item in value]
    return value


def clipped(value: object, limit: int) -> str:
    """Clean text on one line, cut in the middle to `limit` characters."""
    text = " ".join(clean(value).split())
    if len(text) <= limit:
        return text
    head = (limit - 1) * 2 // 3
    return f"{text[:head]}…{text[len(text) - (limit - 1 - head) :]}"


def without_private(mapping: dict[str, Any]) -> dict[str, Any]:
    """The mapping without entries that name the machine or its user."""
    return {key: value for key, value in mapping.items() if str(key).lower() not in _PRIVATE_KEYS}


def _shortened_in_quotes(found: re.Match[str]) -> str:
    quote = found.group("quote")
    return f"{quote}{_shortened(found.group()[1:-1])}{quote}"


def _shortened(path: str) -> str:
    parts = [part for part in re.split(r"[\\/]+", path) if part and not part.endswith(":")]
    for place in range(len(parts) - 2, -1, -1):
        if re.fullmatch(r"(?:lib/)?python3(\.\d+)?", parts[place]) or parts[place] in _ANCHORS:
            start = place if parts[place] == "harness" else place + 1
            return "/".join(parts[start:])
    return f"…/{parts[-1]}" if len(parts) > 1 else "…"


@lru_cache(maxsize=1)
def _machine_names() -> tuple[str, ...]:
    names = {socket.gethostname(), socket.gethostname().split(".")[0]}
    try:
        names.add(getpass.getuser())
    except (OSError, KeyError):  # no entry for the user id, as in some containers
        names.discard("")
    kept = {name for name in names if len(name) > 3 and name.lower() not in _TOO_PLAIN}
    return tuple(sorted(kept, key=len, reverse=True))
