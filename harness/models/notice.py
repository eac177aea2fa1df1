"""Short lines on stderr about work that takes a while before anything is measured."""

from __future__ import annotations

import sys


def announce(text: str) -> None:
    """Print one line on stderr, at once."""
    print(f"models: {text}", file=sys.stderr, flush=True)
