"""Sentences: what the numbers say to do, worded as strongly as the intervals allow and no stronger."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from harness.reports.display import k_is, number, percent, ratio, with_interval
from harness.reports.labels import Row, is_lossless
from harness.reports.language import before, say
from harness.reports.series import Series
from harness.results.drift import LARGEST_DRIFT


class Verdict(StrEnum):
    """Whether speculation pays, by where the speedup's interval lies."""

    PAYS = "pays"
    COSTS = "costs"
    UNCLEAR = "unclear"
    DRIFTED = "drifted"
    UNKNOWN = "unknown"


VERDICT_LABELS = {
    Verdict.PAYS: "faster",
    Verdict.COSTS: "slower",
    Verdict.UNCLEAR: "no clear difference",
    Verdict.DRIFTED: "not judged: baseline drifted",
    Verdict.UNKNOWN: "not judged",
}


def verdict(row: Row | None, measure: str = "speedup") -> Verdict:
    """Judge one variant by whether its interval lies above 1, below or across.

    Unknown without one; drifted where the baseline's own speed changed too much meanwhile.
    """
    low, high = (number(row.get(f"{measure}_{end}")) if row else None for end in ("low", "high"))
    if low is None or high is None:
        return Verdict.UNKNOWN
    if has_drifted(row):
        return Verdict.DRIFTED
    if low > 1:
        return Verdict.PAYS
    return Verdict.COSTS if high < 1 else Verdict.UNCLEAR


def verdict_text(row: Row | None) -> str:
    """The verdict in words, and that the output is another one where it is."""
    told = say(VERDICT_LABELS[verdict(row)])
    return told if row is None or is_lossless(row) else say("{verdict}, not lossless", verdict=told)


def has_drifted(row: Row | None) -> bool:
    """Whether the baseline after the variants was another speed than the one before them."""
    drift = number(row.get("baseline_drift")) if row else None
    return drift is not None and abs(drift - 1) > LARGEST_DRIFT


def interval_text(row: Row, measure: str = "speedup") -> str:
    """A measure with its interval, `1.53x [1.47, 1.60]`."""
    values = (row.get(measure), row.get(f"{measure}_low"), row.get(f"{measure}_high"))
    return with_interval(values, percent if measure == "acceptance_rate" else ratio)


def advice(series: Series) -> str:
    """What to do for one series, in one to three sentences."""
    row = series.chosen
    if row is None:
        return say("No variant has a speedup: nothing to recommend.")
    k, text = k_is(row["k"]), say("{speedup} of the baseline's speed", speedup=interval_text(row))
    only = len(series.rows) == 1
    found = verdict(row)
    if found is Verdict.PAYS and not series.is_lossless:
        lead = say("Not lossless, the output isn't the target's: {k} decodes at {text}", k=k, text=text)
        return say("{lead}. Use it only where the quality of its output was compared too.", lead=lead)
    if found is Verdict.PAYS:
        lead = say("{k} pays", k=k) if only else say("Use {k}", k=k)
        return " ".join(
            [
                say("{lead}: decoding runs at {text}.", lead=lead, text=text),
                *_fastest(series),
                *_end_to_end(row),
            ]
        )
    if found is Verdict.COSTS:
        subject = f"{k}" if only else say("even the fastest, {k},", k=k)
        return say("Leave speculation off: {subject} decodes at {text}.", subject=subject, text=text)
    if found is Verdict.UNCLEAR:
        subject = f"{k}" if only else say("the best, {k},", k=k)
        lead = say(
            "No clear gain: {subject} decodes at {text}, and the interval spans 1.",
            subject=subject,
            text=text,
        )
        return say("{lead} Measure for longer, or leave speculation off.", lead=lead)
    if found is Verdict.DRIFTED:
        lead = say(
            "Not judged: {k} decodes at {text}, but the baseline itself changed while the variants ran",
            k=k,
            text=text,
        )
        return say("{lead}. Measure again on a quiet machine.", lead=lead)
    return say(
        "Not judged: {k} decodes at {text}, but without an interval it can't be told from noise.",
        k=k,
        text=text,
    )


def _fastest(series: Series) -> list[str]:
    fastest, chosen = series.fastest, series.chosen
    if fastest is None or chosen is None or fastest is chosen:
        return []
    measured = say("{k} measured {speedup}", k=k_is(fastest["k"]), speedup=ratio(fastest["speedup"]))
    return [say("{measured}, too close to tell apart: the smaller k wastes less work.", measured=measured)]


def _end_to_end(best: Row) -> list[str]:
    found = verdict(best, "end_to_end_speedup")
    if found in (Verdict.PAYS, Verdict.DRIFTED, Verdict.UNKNOWN):
        return []
    text = interval_text(best, "end_to_end_speedup")
    why = say("is slower") if found is Verdict.COSTS else say("shows no clear gain")
    return [say("End to end, with the time to first token, it {why}: {text}.", why=why, text=text)]


def headline(series: Sequence[Series]) -> str:
    """The whole sweep in one sentence or two: does speculation pay here, where, and how much.

    What isn't lossless is judged apart: it is never the answer to where speculation pays most.
    """
    judged = [one for one in series if one.chosen is not None]
    if not judged:
        return say("No speedup could be measured.")
    missing = len(series) - len(judged)
    lossless = [one for one in judged if one.is_lossless]
    parts = [
        _judgement(lossless) if lossless else say("Nothing lossless was measured."),
        *_changed_output([one for one in judged if not one.is_lossless]),
        *([say("No speedup could be measured in {missing} more.", missing=missing)] if missing else []),
    ]
    return " ".join(parts)


def _changed_output(judged: Sequence[Series]) -> list[str]:
    """A sentence on the fastest of those whose output isn't the target's."""
    if not judged:
        return []
    top = max(judged, key=lambda one: float(one.chosen["speedup"]) if one.chosen else 0.0)
    return [say("Not lossless, so not compared with the others: {top}.", top=_place(top))]


def _judgement(judged: Sequence[Series]) -> str:
    """The headline over series that have a speedup."""
    groups: dict[Verdict, list[Series]] = {kind: [] for kind in Verdict}
    for one in judged:
        groups[verdict(one.chosen)].append(one)
    top = max(judged, key=lambda one: float(one.chosen["speedup"]) if one.chosen else 0.0)
    if len(judged) == 1:
        return _single(judged[0])
    paying = len(groups[Verdict.PAYS])
    if paying == len(judged):
        return say(
            "Speculation pays in all {num_judged} settings measured, most for {top}.",
            num_judged=len(judged),
            top=_place(top),
        )
    if paying:
        lead = say(
            "Speculation pays in {paying} of {num_judged} settings measured",
            paying=paying,
            num_judged=len(judged),
        )
        return say("{lead}, most for {top}. {rest}", lead=lead, top=_place(top), rest=_rest(groups))
    if len(groups[Verdict.COSTS]) == len(judged):
        return say(
            "Speculation is slower than plain decoding in all {num_judged} settings measured: leave it off.",
            num_judged=len(judged),
        )
    return say(
        "Speculation shows no clear gain in any of {num_judged} settings measured. {rest}",
        num_judged=len(judged),
        rest=_rest(groups),
    )


def _single(series: Series) -> str:
    best = series.chosen
    if best is None:
        return ""
    text, k, method = interval_text(best), k_is(best["k"]), series.method_name
    lead, tail = {
        Verdict.PAYS: ("Speculation pays", ""),
        Verdict.COSTS: ("Speculation costs time here", ""),
        Verdict.UNCLEAR: ("No clear gain from speculation", ", and the interval spans 1"),
        Verdict.DRIFTED: ("Not judged", ", while the baseline itself drifted"),
        Verdict.UNKNOWN: ("Not judged", ", without an interval"),
    }[verdict(best)]
    return say(
        "{lead}: {method} with {k} decodes at {text} of the baseline's speed{tail}.",
        lead=say(lead),
        method=method,
        k=k,
        text=text,
        tail=say(tail),
    )


def _place(series: Series) -> str:
    best = series.chosen
    if best is None:
        return ""
    return say(
        "{label} with {k}: {speedup}", label=series.label, k=k_is(best["k"]), speedup=interval_text(best)
    )


def _rest(groups: dict[Verdict, list[Series]]) -> str:
    wording = {
        Verdict.COSTS: "slower than plain decoding",
        Verdict.UNCLEAR: "no clear difference",
        Verdict.DRIFTED: "not judged because the baseline drifted",
        Verdict.UNKNOWN: "not judged for want of an interval",
    }
    told = [
        say(
            "{verdict} for {names}",
            verdict=say(wording[kind]),
            names=joined([one.label for one in groups[kind]], limit=4),
        )
        for kind in wording
        if groups[kind]
    ]
    text = "; ".join(told)
    return say("{text}.", text=f"{text[:1].upper()}{text[1:]}") if text else ""


def shortened(title: str) -> str:
    """A heading as a part of a sentence: up to its colon, with a small first letter."""
    return f"{title[:1].lower()}{before(':', title)[1:]}"


def joined(names: Sequence[str], *, limit: int = 12, separator: str = ", ") -> str:
    """Names as prose has them, `a, b and c`; past `limit` the rest as a number."""
    shown = list(names[:limit])
    if len(names) > limit:
        shown.append(say("{number} more", number=len(names) - limit))
    if len(shown) < 2:
        return "".join(shown)
    return say("{names} and {last}", names=say(separator).join(shown[:-1]), last=shown[-1])
