"""A plan on disk: the page, the same as Markdown, and its JSON twin."""

from __future__ import annotations

from pathlib import Path

from harness.capacity.plan import Plan
from harness.capacity.validation_table import ValidationTable
from harness.reports.html import render
from harness.reports.plan_document import plan_json
from harness.reports.plan_page import plan_page
from harness.reports.publish import write_texts
from harness.reports.spoken import spoken
from harness.reports.twins import as_markdown

PLAN_FILE = "plan.html"
MARKDOWN_FILE = "plan.md"
DOCUMENT_FILE = "plan.json"


def write_plan(plan: Plan, out_dir: Path, validation: ValidationTable | None = None) -> Path:
    """Write `plan.html`, `plan.md` and `plan.json`; older ones are replaced.

    Returns:
        The path of the page.

    Raises:
        StorageError: they can't be written.
    """
    page = spoken(plan_page(plan, validation))
    texts = {DOCUMENT_FILE: plan_json(plan), MARKDOWN_FILE: as_markdown(page), PLAN_FILE: render(page)}
    write_texts(out_dir, texts)
    return out_dir / PLAN_FILE
