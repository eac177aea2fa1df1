"""A capacity plan as the few lines a terminal shows."""

from __future__ import annotations

from harness.capacity.plan import Option, Plan
from harness.privacy import clipped
from harness.reports import plan_words as words
from harness.reports.display import MISSING, count, percent

_HEADER = ("option", "most/s", "replicas", "utilisation", "per 1M tokens", "bound by")
_NUMERIC = (False, True, True, True, True, False)


def plan_table(plan: Plan) -> str:
    """One table per configuration and what to run below it; ends without a newline."""
    lines: list[str] = []
    for label, one in zip(words.configuration_labels(plan), plan.configurations, strict=True):
        rows = [_HEADER, *(_cells(plan, option, chosen=option is one.recommended) for option in one.options)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADER))]
        lines += [
            f"{clipped(label, 100)}, {words.per_second(plan.settings.traffic.requests_per_s)} requests/s"
        ]
        lines += [_line(row, widths) for row in rows]
        lines.insert(len(lines) - len(rows) + 1, "  ".join("-" * width for width in widths))
        lines.append(words.advice(plan, one))
        lines += [f"extrapolated or unknown: {text}" for text in one.extrapolated]
        lines.append("")
    return "\n".join(lines).rstrip()


def _cells(plan: Plan, option: Option, *, chosen: bool) -> tuple[str, ...]:
    now = option.now
    name = f"{'* ' if chosen else '  '}{words.option_label(option)}"
    return (
        name,
        words.per_second(option.sizing.max_requests_per_s),
        count(now.total) if now else MISSING,
        percent(now.utilisation) if now else MISSING,
        words.money(now.cost_per_million_tokens, plan.settings.prices.currency) if now else MISSING,
        words.binding_text(option.sizing.binding),
    )


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    padded = [
        text.rjust(width) if numeric else text.ljust(width)
        for text, width, numeric in zip(row, widths, _NUMERIC, strict=True)
    ]
    return "  ".join(padded).rstrip()
