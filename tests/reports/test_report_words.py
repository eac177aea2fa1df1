from __future__ import annotations

import math
from typing import Any

import pytest

from harness.reports.series import Series
from harness.reports.svg import Style
from harness.reports.words import Verdict, advice, headline, joined, verdict


def row(k: int, speedup: float, low: float | None, high: float | None, **more: Any) -> dict[str, Any]:
    variant = {"variant_id": f"ngram-k{k}", "method": "ngram", "k": k, "cell_id": "c"}
    return variant | {"speedup": speedup, "speedup_low": low, "speedup_high": high} | more


def series(*rows: dict[str, Any], label: str = "temperature 0", recommended: int | None = None) -> Series:
    best = {"recommended_variant_id": None if recommended is None else f"ngram-k{recommended}"}
    return Series("c", "ngram", label, label, "", Style(0), rows, best)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1.01, 1.2, Verdict.PAYS),
        (0.8, 0.99, Verdict.COSTS),
        (0.99, 1.01, Verdict.UNCLEAR),
        (1.0, 1.2, Verdict.UNCLEAR),
        (None, None, Verdict.UNKNOWN),
        (math.nan, math.nan, Verdict.UNKNOWN),
    ],
)
def test_the_verdict_is_where_the_interval_lies(
    low: float | None, high: float | None, expected: Verdict
) -> None:
    assert verdict(row(1, 1.0, low, high)) is expected


def plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


def test_advice_for_the_three_verdicts_and_none() -> None:
    pays = series(row(2, 1.53, 1.47, 1.60), row(5, 1.55, 1.46, 1.66), recommended=2)
    assert plain(advice(pays)) == (
        "Use k = 2: decoding runs at 1.53x [1.47, 1.60] of the baseline's speed. "
        "k = 5 measured 1.55x, too close to tell apart: the smaller k wastes less work."
    )
    costs = series(row(1, 0.91, 0.88, 0.95), row(3, 0.7, 0.65, 0.75))
    assert plain(advice(costs)).startswith(
        "Leave speculation off: even the fastest, k = 1, decodes at 0.91x [0.88, 0.95]"
    )
    unclear = series(row(1, 1.02, 0.97, 1.07))
    assert "No clear gain" in advice(unclear)
    assert "interval spans 1" in advice(unclear)
    assert "Not judged" in advice(series(row(1, 1.4, None, None)))
    assert "nothing to recommend" in advice(series())


def test_advice_says_when_the_first_token_eats_the_gain() -> None:
    eaten = row(
        2, 1.2, 1.1, 1.3, end_to_end_speedup=0.9, end_to_end_speedup_low=0.85, end_to_end_speedup_high=0.95
    )
    assert "End to end, with the time to first token, it is slower: 0.90x [0.85, 0.95]." in advice(
        series(eaten)
    )


def test_the_headline_is_no_stronger_than_the_intervals() -> None:
    pays = series(row(2, 1.5, 1.4, 1.6), label="temperature 0")
    costs = series(row(2, 0.8, 0.7, 0.9), label="temperature 1")
    unclear = series(row(2, 1.05, 0.9, 1.2), label="temperature 2")
    unknown = series(row(2, 1.05, None, None), label="temperature 3")
    assert "pays in all 2 settings" in headline([pays, pays])
    mixed = headline([pays, costs, unclear, unknown])
    assert "pays in 1 of 4 settings" in mixed
    assert "Slower than plain decoding for temperature 1; no clear difference for temperature 2" in mixed
    assert "slower than plain decoding in all 2" in headline([costs, costs])
    assert "no clear gain in any of 2" in headline([costs, unclear])
    assert "costs time" in headline([costs])
    assert "spans 1" in headline([unclear])
    assert "Not judged" in headline([unknown])
    assert headline([series()]) == "No speedup could be measured."


def test_names_are_joined_as_prose_and_capped() -> None:
    assert joined([]) == ""
    assert joined(["a"]) == "a"
    assert joined(["a", "b", "c"]) == "a, b and c"
    assert joined(["a", "b", "c", "d"], limit=2) == "a, b and 2 more"
