"""A comparison as a plain-text table."""

from __future__ import annotations

from collections.abc import Sequence

from harness.gate import words
from harness.gate.check import Check, Comparison

_HEADER = ("cell", "variant", "metric", "BASE", "HEAD", "change [interval]", "margin", "verdict")
_NUMERIC = (False, False, False, True, True, True, True, False)
_MOST_ROWS = 40


def terminal_text(comparison: Comparison, *, every_check: bool = False) -> str:
    """The verdict in the last line, the table above; ends without a newline.

    Args:
        comparison: what was found.
        every_check: list all, not only those a reader needs to see.
    """
    shown = comparison.checks if every_check else comparison.notable[:_MOST_ROWS]
    lines = [f"HEAD {words.name(comparison.head)} against BASE {words.name(comparison.base)}"]
    lines += _table(shown)
    lines += [f"caution: {words.sentence(text)}" for text in comparison.cautions]
    hidden = len(comparison.checks) - len(shown)
    more = f"; {hidden} checks aren't listed here, --all lists them" if hidden else ""
    if comparison.error is None:
        lines.append(f"{words.counted(comparison)}{more}")
    lines.append(words.headline(comparison))
    return "\n".join(lines)


def cells(check: Check) -> tuple[str, ...]:
    """The columns of a check, in the order of every table."""
    return (
        words.name(check.cell),
        words.name(check.variant),
        check.metric,
        words.figure(check, check.base),
        words.figure(check, check.head),
        words.change(check),
        words.margin(check),
        words.verdict_text(check),
    )


def _table(checks: Sequence[Check]) -> list[str]:
    if not checks:
        return []
    rows = [_HEADER, *(cells(check) for check in checks)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    lines = [_line(_HEADER, widths), "  ".join("-" * width for width in widths)]
    for check in checks:
        lines.append(_line(cells(check), widths))
        if remark := words.remark(check):
            lines.append(f"    {remark}")
    return lines


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        text.rjust(width) if numeric else text.ljust(width)
        for text, width, numeric in zip(row, widths, _NUMERIC, strict=True)
    ]
    return "  ".join(padded).rstrip()
