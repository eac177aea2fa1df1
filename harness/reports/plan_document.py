"""A capacity plan as JSON, for other programs; docs/capacity.md lists the fields."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

from harness.capacity.plan import ConfigurationPlan, Option, Plan, option_facts
from harness.privacy import cleaned
from harness.reports import plan_words as words

DOCUMENT_VERSION = 1


def plan_json(plan: Plan) -> str:
    """The whole plan; null where a figure doesn't exist or is infinite; ends with a newline."""
    labels = words.configuration_labels(plan)
    document = {
        "format_version": DOCUMENT_VERSION,
        "name": plan.name,
        "settings": asdict(plan.settings),
        "configurations": [
            _configuration(plan, label, one) for label, one in zip(labels, plan.configurations, strict=True)
        ],
    }
    return json.dumps(_finite(cleaned(document)), indent=2, allow_nan=False) + "\n"


def _configuration(plan: Plan, label: str, one: ConfigurationPlan) -> dict[str, Any]:
    return {
        "label": label,
        "facts": dict(one.model.facts),
        "cell_ids": list(one.model.cell_ids),
        "measured": asdict(one.model.range),
        "bounds": asdict(one.bounds),
        "largest_batch": one.largest_batch,
        "advice": words.advice(plan, one),
        "recommended": option_facts(one.recommended) if one.recommended else None,
        "options": [_option(option) for option in one.options],
        "methods": [asdict(advice) for advice in one.advice],
        "sensitivities": [asdict(case) for case in one.sensitivities],
        "extrapolated": list(one.extrapolated),
        "notes": list(one.model.notes),
        "fit_errors": {method: asdict(error) for method, error in one.model.errors.items()},
    }


def _option(option: Option) -> dict[str, Any]:
    sizing = option.sizing
    return option_facts(option) | {
        "label": words.option_label(option),
        "max_requests_per_s": sizing.max_requests_per_s,
        "saturated_requests_per_s": sizing.saturated_requests_per_s,
        "binding": asdict(sizing.binding) if sizing.binding else None,
        "fleets": [asdict(fleet) | {"total": fleet.total} for fleet in option.fleets],
        "points": [
            {
                "requests_per_s": point.requests_per_s,
                "figures": {name: asdict(estimate) for name, estimate in point.figures.items()},
            }
            for point in sizing.points
        ],
    }


def _finite(value: Any) -> Any:
    """JSON knows no infinity: null."""
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value.item() if hasattr(value, "item") else value
