"""Deriving a finished cell's tables once, so that reports needn't."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from harness.findings import keep
from harness.privacy import clean


def keep_derived(folder: Path, tell: Callable[[str], None]) -> None:
    """Keep a cell's derived tables in its folder; what was measured stands without them.

    Args:
        folder: of the cell.
        tell: shows a line to the user, where they couldn't be kept.
    """
    try:
        keep(folder)
    except Exception as error:
        tell(f"derived tables of {folder.name} weren't kept: {clean(str(error))}")
