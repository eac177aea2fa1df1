"""A comparison as GitHub-flavoured Markdown: a job summary or a comment."""

from __future__ import annotations

import re
from collections.abc import Sequence

from harness.gate import words
from harness.gate.check import Check, Comparison
from harness.gate.terminal import cells
from harness.gate.verdict import Verdict

_HEADER = ("cell", "variant", "metric", "BASE", "HEAD", "change [interval]", "margin", "verdict", "remark")
_ALIGN = ("---", "---", "---", "---:", "---:", "---:", "---:", "---", "---")
_MARKS = {
    Verdict.PASS: "\N{WHITE HEAVY CHECK MARK}",
    Verdict.IMPROVEMENT: "\N{WHITE HEAVY CHECK MARK}",
    Verdict.REGRESSION: "\N{CROSS MARK}",
    Verdict.ERROR: "\N{CROSS MARK}",
    Verdict.INCONCLUSIVE: "\N{WHITE QUESTION MARK ORNAMENT}",
    Verdict.INCOMPARABLE: "\N{WHITE QUESTION MARK ORNAMENT}",
    Verdict.REPORTED: "\N{WHITE QUESTION MARK ORNAMENT}",
}
_MOST_ROWS = 400
# An underscore inside a word marks nothing up, and metrics' names stay readable without rendering.
_SPECIAL = re.compile(r"[\\`*{}\[\]<>#!|$~&:@^\"]|(?<!\w)_|_(?!\w)")
_WWW = re.compile(r"www\.", re.IGNORECASE)


def markdown_text(comparison: Comparison) -> str:
    """The verdict, the checks to look at, and all others folded away; ends with a newline."""
    notable = comparison.notable
    others = [check for check in comparison.checks if not check.is_notable]
    parts = [
        f"## {_MARKS[comparison.verdict]} {inert(words.headline(comparison))}",
        f"HEAD {inert(words.name(comparison.head))} against BASE {inert(words.name(comparison.base))}; "
        f"{words.counted(comparison)}.",
    ]
    if notable:
        parts.append(_table(notable))
    parts += [f"> Caution: {inert(words.sentence(text))}" for text in comparison.cautions]
    if others:
        parts.append(
            f"<details><summary>{len(others)} checks that passed or aren't gated</summary>\n\n"
            f"{_table(others)}\n\n</details>"
        )
    return "\n\n".join(parts) + "\n"


def inert(text: str) -> str:
    """Text that stays text: no HTML, table, emphasis, link, image, mathematics, mention or issue number."""
    escaped = _SPECIAL.sub(lambda found: f"&#{ord(found.group())};", text)
    # GitHub looks for mentions and numbers after it has decoded entities.
    return _WWW.sub("www&#46;", re.sub(r"&#(64|35);", "&#\\1;\N{ZERO WIDTH SPACE}", escaped))


def _table(checks: Sequence[Check]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (_HEADER, _ALIGN)]
    for check in checks[:_MOST_ROWS]:
        row = [*cells(check), words.remark(check)]
        lines.append("| " + " | ".join(inert(text) for text in row) + " |")
    if len(checks) > _MOST_ROWS:
        lines.append(f"\n{len(checks) - _MOST_ROWS} more are in the JSON output.")
    return "\n".join(lines)
