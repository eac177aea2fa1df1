"""The stored record of a cell, as it is when measuring begins."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from harness.privacy import cleaned
from harness.records import CellRecord, Status, Variant
from harness.runner.environment import describe_environment
from harness.runner.plan import CellPlan


def new_record(plan: CellPlan) -> CellRecord:
    """A record without measurements; `partial` until it is finished."""
    return CellRecord(
        cell_id=plan.cell_id,
        name=plan.config.name,
        status=Status.PARTIAL.value,
        facts=cleaned(dict(plan.facts)),
        variants=[cleaned(_variant_row(plan, variant)) for variant in plan.variants],
        environment=describe_environment(),
        config=cleaned(asdict(plan.config)),
        started_at=now(),
    )


def now() -> str:
    """The time in UTC, ISO 8601 to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _variant_row(plan: CellPlan, variant: Variant) -> dict[str, Any]:
    drafter = plan.drafters.get(variant.drafter) if variant.drafter else None
    return {
        "variant_id": variant.variant_id,
        "method": variant.series,
        "k": variant.k,
        "drafter": variant.drafter,
        "drafter_revision": None if drafter is None else drafter.revision,
        "options": dict(variant.options),
        "lossless": variant.lossless,
        "is_baseline": variant.is_baseline,
        "status": Status.OK.value,
        "error": None,
        "applied": {},
    }
