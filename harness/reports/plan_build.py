"""A plan on disk: the page and its JSON twin."""

from __future__ import annotations

from pathlib import Path

from harness.capacity.plan import Plan
from harness.capacity.validation_table import ValidationTable
from harness.reports.html import render
from harness.reports.plan_document import plan_json
from harness.reports.plan_page import plan_page
from harness.results.storage import storage_errors, write_atomic

PLAN_FILE = "plan.html"
DOCUMENT_FILE = "plan.json"


def write_plan(plan: Plan, out_dir: Path, validation: ValidationTable | None = None) -> Path:
    """Write `plan.html` and `plan.json`; older ones are replaced.

    Returns:
        The path of the page.

    Raises:
        StorageError: they can't be written.
    """
    page, document = render(plan_page(plan, validation)), plan_json(plan)
    with storage_errors(out_dir):
        out_dir.mkdir(parents=True, exist_ok=True)
    write_atomic(out_dir / DOCUMENT_FILE, lambda file: file.write(document.encode()))
    path = out_dir / PLAN_FILE
    write_atomic(path, lambda file: file.write(page.encode()))
    return path
