"""The option of every command that writes a page: its language."""

from __future__ import annotations

import argparse

from harness.config.languages import ENGLISH, LANGUAGE_TAGS


def add_language(parser: argparse.ArgumentParser) -> None:
    """Let a command take `--language`."""
    told = " or ".join(LANGUAGE_TAGS)
    parser.add_argument("--language", default=ENGLISH, help=f"of the page: {told}; {ENGLISH} by default")
