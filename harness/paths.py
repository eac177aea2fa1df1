"""Where the shipped configuration and workloads live, in a checkout and in an installed wheel."""

from __future__ import annotations

import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def _shipped(name: str) -> Path:
    packaged = _PACKAGE / "_data" / name
    return packaged if packaged.is_dir() else _PACKAGE.parent / name


def conf_dir() -> Path:
    """The folder of shipped Hydra configuration."""
    return _shipped("conf")


def workloads_dir() -> Path:
    """The folder of shipped workloads (JSONL)."""
    return _shipped("workloads")


def assets_dir() -> Path:
    """The folder of drafter weights that ship with the package."""
    return _PACKAGE / "assets"


def cache_dir() -> Path:
    """The folder of converted models: `HARNESS_CACHE_DIR`, else the XDG cache."""
    override = os.environ.get("HARNESS_CACHE_DIR")
    if override:
        return Path(override).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "specdec-harness"
