"""How a check is written: figures, changes and what to do next, the same in every output."""

from __future__ import annotations

from harness.gate.check import Check, Comparison
from harness.gate.metric import METRICS, Tier
from harness.gate.verdict import Verdict
from harness.privacy import clipped

MISSING = "\N{EN DASH}"
_NAME_CHARACTERS = 80
_REASON_CHARACTERS = 400
_SECONDS_SUFFIX = "_s"
_MEANINGS = {
    Verdict.PASS: "every gated metric stayed within its margin",
    Verdict.IMPROVEMENT: "nothing got worse, and something got better by more than its margin",
    Verdict.REGRESSION: "something got worse by more than its margin",
    Verdict.ERROR: "the runs couldn't be compared",
    Verdict.INCONCLUSIVE: "the data don't decide whether something changed by more than its margin",
    Verdict.INCOMPARABLE: "something that has to be compared can't be",
    Verdict.REPORTED: "nothing was judged",
}


def headline(comparison: Comparison) -> str:
    """The verdict, what it means, and the exit code that goes with it, in one line."""
    verdict = comparison.verdict
    meaning = comparison.error or _MEANINGS[verdict]
    if verdict is Verdict.INCOMPARABLE and not comparison.counts:
        meaning = "no gated metric could be compared"
    text = sentence(meaning).rstrip(".")
    return f"{verdict}: {text} (exit code {verdict.exit_code})"


def counted(comparison: Comparison) -> str:
    """Gated checks by verdict, such as `12 pass, 1 inconclusive`."""
    counts = comparison.counts
    listed = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
    return f"{sum(counts.values())} gated checks: {listed}" if counts else "no gated checks"


def name(text: str) -> str:
    """A label out of stored text: one line, no control characters, not too long."""
    return clipped(text, _NAME_CHARACTERS)


def sentence(text: str) -> str:
    """A longer text on one line."""
    return clipped(text, _REASON_CHARACTERS)


def figure(check: Check, value: float | None) -> str:
    """A metric's value in its unit."""
    if value is None:
        return MISSING
    if check.is_difference:
        return f"{100 * value:.1f}%"
    metric = METRICS.get(check.metric)
    if metric is not None and metric.tier is Tier.TIME_RATIO:
        return f"{value:.3f}x"
    if check.metric.endswith("tok_per_s"):
        return f"{value:.1f} tok/s"
    if check.metric.endswith(_SECONDS_SUFFIX):
        return f"{1000 * value:.1f} ms"
    return f"{value:.3f}"


def change(check: Check) -> str:
    """The change with its interval: points for shares, percent for all else."""
    if check.change is None:
        return MISSING
    unit = " pt" if check.is_difference else "%"
    text = f"{100 * check.change:+.1f}{unit}"
    if check.low is None or check.high is None or check.low == check.high:
        return text
    return f"{text} [{100 * check.low:+.1f}, {100 * check.high:+.1f}]"


def margin(check: Check) -> str:
    """The margin on the scale of the change."""
    if check.margin is None:
        return MISSING
    return f"±{100 * check.margin:g}{' pt' if check.is_difference else '%'}"


def remark(check: Check) -> str:
    """Why, and what would decide; empty for a plain verdict."""
    parts = [sentence(check.reason)] if check.reason else []
    if check.verdict is Verdict.INCONCLUSIVE:
        parts.append(_next_step(check))
    return "; ".join(part for part in parts if part)


def verdict_text(check: Check) -> str:
    """The verdict, and whether it only stands for information."""
    return str(check.verdict) if check.gated or check.verdict is Verdict.REPORTED else f"({check.verdict})"


def _next_step(check: Check) -> str:
    if check.low is None:
        return ""
    if check.needed_prompts is None or check.needed_repeats is None:
        return "too close to the margin for more data to decide"
    return (
        f"would be decided by about {check.needed_prompts} prompts instead of {check.num_prompts}, "
        f"or, where repeats differ, {check.needed_repeats} repeats instead of {check.num_repeats}"
    )
