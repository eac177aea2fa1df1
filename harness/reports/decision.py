"""The three questions a reader comes with: what to do, how sure that is, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from harness.findings import Topic
from harness.reports.blocks import Decision
from harness.reports.display import count, decimal, number, percent, ratio
from harness.reports.labels import Row
from harness.reports.language import say
from harness.reports.losslessness import lossless_line
from harness.reports.series import Series
from harness.reports.sweep import Sweep
from harness.reports.words import Verdict, advice, joined, shortened, verdict
from harness.results.drift import LARGEST_DRIFT

_MOST_SETTINGS = 12
_THRESHOLDS = (
    "Verdicts: faster where the whole 95% interval of the speedup lies above 1, slower where it lies below, "
    "no clear difference where it spans 1, not judged without an interval or where the baseline's own speed "
    "changed by more than {limit} meanwhile."
)


def decision(sweep: Sweep) -> Decision:
    """What to do, how sure, why; each in a few sentences over all settings."""
    rows = [one.chosen for one in sweep.series if one.chosen is not None]
    answers = (
        (say("What to do"), _what_to_do(sweep)),
        (say("How sure"), [*_clear(rows), *_sample(sweep, rows), *_output(sweep)]),
        (say("Why"), [*_acceptance(rows), *_costs(rows), *_rules(sweep)]),
    )
    return Decision([(question, told) for question, told in answers if told])


def thresholds() -> str:
    """From where on a verdict is given."""
    return say(_THRESHOLDS, limit=percent(LARGEST_DRIFT))


def _what_to_do(sweep: Sweep) -> list[str]:
    if len(sweep.series) > _MOST_SETTINGS:
        return [
            say(
                "{num_series} settings were measured; the table below has what to do in each.",
                num_series=count(len(sweep.series)),
            )
        ]
    return [_advice(sweep, one) for one in sweep.series]


def _advice(sweep: Sweep, one: Series) -> str:
    text = advice(one)
    if len(sweep.series) == 1:
        return text
    label = f"{one.label[:1].upper()}{one.label[1:]}"
    return say("{label}: {text}", label=label, text=f"{text[:1].lower()}{text[1:]}")


def _clear(rows: list[Row]) -> list[str]:
    """In how many settings the interval decides, and in how many it still does after correction."""
    if not rows:
        return []
    clear = [row for row in rows if verdict(row) in (Verdict.PAYS, Verdict.COSTS)]
    of = (
        say("{num_clear} of {num_rows} settings", num_clear=len(clear), num_rows=len(rows))
        if len(rows) > 1
        else (say("this setting") if clear else say("no setting"))
    )
    told = [say("The whole 95% interval lies on one side of 1 in {of}.", of=of)]
    stands = [row for row in clear if row.get("faster") in ("yes", "no")]
    if clear and any(row.get("faster") for row in clear):
        where = (
            say("{num_stands} of {num_clear}", num_stands=len(stands), num_clear=len(clear))
            if len(clear) > 1
            else (say("it") if stands else say("none"))
        )
        told.append(
            say(
                "Corrected for the number of variants compared, {where} still {stand}.",
                where=where,
                stand=_stand(len(clear), stands),
            )
        )
    return told


def _stand(num_clear: int, stands: list[Row]) -> str:
    return say("stands") if num_clear == 1 or len(stands) == 1 else say("stand")


def _sample(sweep: Sweep, rows: list[Row]) -> list[str]:
    """How wide the intervals are, and what they come from."""
    widths = [width for row in rows if (width := _half_width(row)) is not None]
    prompts = _span((number(row.get("num_prompts")) for row in rows), count)
    if not widths or not prompts:
        return []
    repeats = _span(map(number, sweep.num_repeats.values()), count)
    sample = say("{prompts} prompts", prompts=prompts) + (
        say(", each measured {repeats} times", repeats=repeats) if repeats not in ("", "1") else ""
    )
    return [
        say(
            "Intervals reach {widths} to either side, from {sample}.",
            widths=_span(widths, percent),
            sample=sample,
        )
    ]


def _output(sweep: Sweep) -> list[str]:
    line = lossless_line(sweep.lossless)
    return [say("Output: {line}", line=line)] if line else []


def _acceptance(rows: list[Row]) -> list[str]:
    accepted = _span((number(row.get("acceptance_rate")) for row in rows), percent)
    if not accepted:
        return []
    yielded = _span((number(row.get("tokens_per_forward")) for row in rows), decimal)
    where = say("At that k") if len(rows) == 1 else say("At the best k of each setting")
    tail = (
        say(", so that a forward of the target brings {yielded} tokens", yielded=yielded) if yielded else ""
    )
    return [
        say(
            "{where}, {accepted} of the drafted tokens are accepted{tail}.",
            where=where,
            accepted=accepted,
            tail=tail,
        )
    ]


def _costs(rows: list[Row]) -> list[str]:
    draft = _span((number(row.get("draft_cost_ratio")) for row in rows), decimal)
    verify = _span((number(row.get("verify_cost_ratio")) for row in rows), decimal)
    if not draft or not verify:
        return []
    predicted = _span((number(row.get("predicted_speedup")) for row in rows), ratio)
    tail = (
        say(" Acceptance and costs together predict {predicted}.", predicted=predicted) if predicted else ""
    )
    return [
        say(
            "Drafting a token costs {draft} of a plain step, verifying a draft {verify} of one.{tail}",
            draft=draft,
            verify=verify,
            tail=tail,
        )
    ]


def _rules(sweep: Sweep) -> list[str]:
    titles = dict.fromkeys(say(f.rule.title) for f in sweep.findings if f.rule.topic is Topic.SPECULATION)
    shown = [shortened(title) for title in titles]
    return [say("Findings: {shown}.", shown=joined(shown, separator="; "))] if shown else []


def _half_width(row: Row) -> float | None:
    """Half the interval's width, over the speedup."""
    middle, low, high = (number(row.get(name)) for name in ("speedup", "speedup_low", "speedup_high"))
    return None if not middle or low is None or high is None else (high - low) / 2 / middle


def _span(values: Iterable[float | None], write: Callable[[object], str]) -> str:
    """One text, or `from to to`; empty where nothing is known."""
    known = [value for value in values if value is not None]
    if not known:
        return ""
    low, high = write(min(known)), write(max(known))
    return low if low == high else say("{low} to {high}", low=low, high=high)
