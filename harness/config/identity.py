"""The content hash that says whether two measurements are of the same thing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from harness.config.schema import HarnessConfig

# Packages whose code decides what a number is; changing a report or a message measures nothing again.
_MEASURING = ("backends", "engine", "models", "runner")
_SOURCES = (".py", ".cpp", ".hpp")
_NOT_MEASURED_BY = ("min_repeats", "max_repeats", "target_precision", "max_time_s", "lossless")
_OUTPUT = ("name", "results_dir", "reports_dir", "resume", "report", "report_language", "check_memory")


def cell_id(config: HarnessConfig, revisions: Mapping[str, str]) -> str:
    """Hash a cell's configuration, the code that measures it, and what it was measured on.

    Where results go, when measuring stops and how outputs are checked are left out, so that a longer
    run goes on from a shorter one.

    Args:
        config: the resolved configuration.
        revisions: content hashes of models and workloads, by role, and versions of the engine.

    Returns:
        16 hexadecimal digits.
    """
    content: dict[str, Any] = asdict(config)
    for key in _OUTPUT:
        del content[key]
    for key in _NOT_MEASURED_BY:
        del content["measure"][key]
    payload = {"config": content, "code": code_version(), "revisions": dict(revisions)}
    return hashlib.sha256(json.dumps(payload, sort_keys=True).encode()).hexdigest()[:16]


@cache
def code_version() -> str:
    """Hash of the source files that measure, 12 hexadecimal digits."""
    package = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for folder in _MEASURING:
        for file in sorted(f for f in (package / folder).rglob("*") if f.suffix in _SOURCES):
            digest.update(file.relative_to(package).as_posix().encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]
