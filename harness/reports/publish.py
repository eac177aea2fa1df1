"""A page on disk: the HTML document, and the same as Markdown and JSON beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from harness.reports.blocks import Page
from harness.reports.html import render
from harness.reports.spoken import spoken
from harness.reports.twins import as_json, as_markdown
from harness.results.storage import storage_errors, write_atomic

REPORT_FILE = "index.html"
MARKDOWN_FILE = "report.md"
JSON_FILE = "report.json"


def publish(page: Page, out_dir: Path) -> Path:
    """Write a page in its three forms; older ones in the folder are replaced.

    Args:
        page: what to write.
        out_dir: created where missing.

    Returns:
        The path of the HTML document.

    Raises:
        StorageError: it can't be written.
    """
    page = spoken(page)
    texts = {MARKDOWN_FILE: as_markdown(page), JSON_FILE: as_json(page), REPORT_FILE: render(page)}
    write_texts(out_dir, texts)
    return out_dir / REPORT_FILE


def write_texts(out_dir: Path, texts: Mapping[str, str]) -> None:
    """Write files, each whole or not at all.

    Args:
        out_dir: created where missing.
        texts: content by file name.

    Raises:
        StorageError: they can't be written.
    """
    with storage_errors(out_dir):
        out_dir.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        _write(out_dir / name, text)


def _write(path: Path, text: str) -> None:
    write_atomic(path, lambda file: file.write(text.encode()))
