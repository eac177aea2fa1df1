"""A comparison as JSON, for other programs."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from harness.gate.check import Check, Comparison
from harness.gate.verdict import Verdict
from harness.privacy import cleaned

DOCUMENT_VERSION = 1
"""Version of the layout; docs/gate.md lists the fields."""


def json_text(comparison: Comparison) -> str:
    """The whole comparison; ends with a newline, and holds null where a figure doesn't exist."""
    verdict = comparison.verdict
    document: dict[str, Any] = {
        "format_version": DOCUMENT_VERSION,
        "verdict": str(verdict),
        "exit_code": verdict.exit_code,
        "error": comparison.error,
        "base": comparison.base,
        "head": comparison.head,
        "gate": asdict(comparison.settings) if comparison.settings else None,
        "counts": {str(kind): number for kind, number in comparison.counts.items()},
        "cautions": list(comparison.cautions),
        "checks": [_row(check) for check in comparison.checks],
    }
    return json.dumps(cleaned(document), indent=2, allow_nan=False) + "\n"


def _row(check: Check) -> dict[str, Any]:
    row = asdict(check) | {"verdict": str(check.verdict)}
    del row["times_more"]
    decides = check.verdict is Verdict.INCONCLUSIVE
    return row | {
        "needed_prompts": check.needed_prompts if decides else None,
        "needed_repeats": check.needed_repeats if decides else None,
    }
