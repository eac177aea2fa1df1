"""Rules about speed: what eats the gain, and where the best setting lies."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from harness.findings.finding import Confidence, Figure, Sighting, Topic, beyond, rule
from harness.findings.tables import Row, Tables, value

SLOW_DRAFTER = 0.3
SLOW_VERIFICATION = 0.3
MUCH_OVERHEAD = 0.2
LARGE_BATCH = 16
SHORT_OUTPUT_TOKENS = 50
LONG_PROMPT_TOKENS = 4000
LOST_GAIN = 0.5


@rule(
    title="The largest k is past the optimum",
    topic=Topic.SPECULATION,
    threshold="the largest k is slower than the fastest one, beyond their intervals",
    next_step="Use the recommended k, and leave the larger ones out of the next sweep.",
)
def k_past_optimum(tables: Tables) -> Iterator[Sighting]:
    """The largest k of a method against its fastest."""
    for (cell_id, _), rows in tables.methods.items():
        best, last = max(rows, key=lambda row: float(row["speedup"])), rows[-1]
        low, high = value(best, "speedup_low"), value(last, "speedup_high")
        if last is best or low is None or high is None or high >= low:
            continue
        text = f"k = {last['k']:g} runs at {_speedup(last)}, k = {best['k']:g} at {_speedup(best)}."
        figures = {
            "k": int(last["k"]),
            "speedup": float(last["speedup"]),
            "speedup_high": high,
            "best_k": int(best["k"]),
            "best_speedup": float(best["speedup"]),
            "best_speedup_low": low,
        }
        yield Sighting(cell_id, last["variant_id"], text, figures, Confidence.CLEAR)


@rule(
    title="The fastest k is the largest one measured",
    topic=Topic.SPECULATION,
    threshold="of three or more values of k the largest is the fastest, beyond the interval of the one "
    "before",
    next_step="Add larger values of k to the sweep: the best one isn't in it.",
)
def k_range_too_short(tables: Tables) -> Iterator[Sighting]:
    """Whether speed still grows where the sweep ends."""
    for (cell_id, _), rows in tables.methods.items():
        if len(rows) < 3:
            continue
        before, last = rows[-2:]
        low, high = value(last, "speedup_low"), value(before, "speedup_high")
        if low is not None and high is not None and low > high:
            text = f"k = {last['k']:g} runs at {_speedup(last)}, k = {before['k']:g} at {_speedup(before)}."
            figures = {"k": int(last["k"]), "speedup_low": low, "speedup_high_before": high}
            yield Sighting(cell_id, last["variant_id"], text, figures, Confidence.CLEAR)


@rule(
    title="The batch is too large for speculation to pay",
    topic=Topic.SPECULATION,
    threshold="slower than the baseline in the larger batch, faster in a smaller one; alone, slower in a "
    f"batch above {LARGE_BATCH}",
    next_step="Speculate up to the last batch size that pays and decode plainly above it.",
)
def large_batch(tables: Tables) -> Iterator[Sighting]:
    """Cells that differ in batch size alone; or one cell with a large batch."""
    compared = set()
    for group in tables.cells_along("batch_size"):
        for method in {method for _, method in tables.recommended}:
            rows = [
                tables.recommended[cell["cell_id"], method]
                for cell in group
                if (cell["cell_id"], method) in tables.recommended
            ]
            compared |= {row["cell_id"] for row in rows}
            yield from _first_slow_batch(rows)
    for row in tables.recommended.values():
        batch, high = value(row, "batch_size"), value(row, "speedup_high")
        if row["cell_id"] not in compared and (batch or 0) > LARGE_BATCH and high is not None and high < 1:
            text = f"in batches of {batch:g} decoding runs at {_speedup(row)}."
            figures = {"batch_size": batch, "speedup": float(row["speedup"]), "speedup_high": high}
            yield Sighting(row["cell_id"], row["variant_id"], text, figures, Confidence.LIKELY)


def _first_slow_batch(rows: list[Row]) -> Iterator[Sighting]:
    """The smallest batch in which even the best k is slower, where a smaller batch paid."""
    paying: Row | None = None
    for row in rows:
        low, high = value(row, "speedup_low"), value(row, "speedup_high")
        if low is not None and low > 1:
            paying = row
        elif paying is not None and float(row["speedup"]) < 1:
            text = (
                f"in batches of {row['batch_size']:g} decoding runs at {_speedup(row)}, in batches of "
                f"{paying['batch_size']:g} at {_speedup(paying)}."
            )
            figures = {
                "batch_size": int(row["batch_size"]),
                "speedup": float(row["speedup"]),
                "speedup_high": high,
                "paying_batch_size": int(paying["batch_size"]),
                "paying_speedup": float(paying["speedup"]),
            }
            confidence = beyond(1.0, low=low, high=high, below=True)
            yield Sighting(row["cell_id"], row["variant_id"], text, figures, confidence)
            return


@rule(
    title="The outputs are too short for speculation to pay off",
    topic=Topic.SPECULATION,
    threshold=f"median output under {SHORT_OUTPUT_TOKENS} tokens, and less than {LOST_GAIN:.0%} of the "
    "gain in decoding left end to end",
    next_step="Turn speculation off for requests with a low output limit.",
    reads_rows=True,
)
def short_outputs(tables: Tables) -> Iterator[Sighting]:
    """Gains that the time to the first token eats, as there are few tokens after it."""
    for row, lengths in _lost_gains(tables):
        median = float(lengths["num_output_tokens"].median())
        if median < SHORT_OUTPUT_TOKENS:
            yield _lost(
                row, f"half of the outputs have under {median:.0f} tokens", median_output_tokens=median
            )


@rule(
    title="The prompts are long: reading them leaves little of the gain",
    topic=Topic.SPECULATION,
    threshold=f"median prompt over {LONG_PROMPT_TOKENS} tokens or ten times the output, and less than "
    f"{LOST_GAIN:.0%} of the gain in decoding left end to end",
    next_step="Prefer prefix caching and memory for the cache to a drafter, or turn speculation off for "
    "such prompts.",
    reads_rows=True,
)
def long_prompts(tables: Tables) -> Iterator[Sighting]:
    """Gains that the time to the first token eats, as there is much to read before it."""
    for row, lengths in _lost_gains(tables):
        prompt, output = (
            float(lengths[name].median()) for name in ("num_prompt_tokens", "num_output_tokens")
        )
        if output >= SHORT_OUTPUT_TOKENS and (prompt > LONG_PROMPT_TOKENS or prompt > 10 * output):
            yield _lost(
                row, f"half of the prompts have over {prompt:.0f} tokens", median_prompt_tokens=prompt
            )


def _lost_gains(tables: Tables) -> Iterator[tuple[Row, pd.DataFrame]]:
    """Recommended rows that gain in decoding and lose most of it end to end, with their sequences."""
    measured = tables.results.measured
    for (cell_id, _), row in tables.recommended.items():
        decode, whole = value(row, "speedup"), value(row, "end_to_end_speedup")
        if decode is not None and whole is not None and decode > 1 and whole - 1 < LOST_GAIN * (decode - 1):
            own = (measured["cell_id"] == cell_id) & (measured["variant_id"] == row["variant_id"])
            yield row, measured.loc[own, ["num_prompt_tokens", "num_output_tokens"]]


def _lost(row: Row, why: str, **figures: float) -> Sighting:
    high = value(row, "end_to_end_speedup_high")
    kept = 1 + LOST_GAIN * (float(row["speedup"]) - 1)
    text = f"{why}; decoding runs at {_speedup(row)}, end to end at {_speedup(row, 'end_to_end_speedup')}."
    found: dict[str, Figure] = {name: value(row, name) for name in ("speedup", "end_to_end_speedup")}
    confidence = beyond(kept, low=None, high=high, below=True)
    return Sighting(row["cell_id"], row["variant_id"], text, found | figures, confidence)


@rule(
    title="The drafter is too slow",
    topic=Topic.SPECULATION,
    threshold=f"c, one drafted token over one step of the target, above {SLOW_DRAFTER:g}",
    next_step="Use a smaller or a quantised drafter, or one with a reduced vocabulary; until then a small "
    "k loses least.",
)
def slow_drafter(tables: Tables) -> Iterator[Sighting]:
    """Drafting costs against a step of the target."""
    for row in tables.recommended.values():
        cost, share = value(row, "draft_cost_ratio"), value(row, "draft_share")
        if cost is not None and cost > SLOW_DRAFTER:
            spent = "" if share is None else f"; {share:.0%} of the time goes into drafting"
            text = f"a drafted token costs {cost:.2f} of a step of the target{spent}."
            figures = {"draft_cost_ratio": cost, "draft_share": share}
            yield Sighting(row["cell_id"], row["variant_id"], text, figures, Confidence.LIKELY)


@rule(
    title="Verifying costs almost as much as decoding one by one",
    topic=Topic.SPECULATION,
    threshold=f"every drafted token makes the target's step longer by more than {SLOW_VERIFICATION:.0%}",
    next_step="The target is bound by arithmetic here, not by memory: smaller batches, a smaller k, or no "
    "speculation.",
)
def slow_verification(tables: Tables) -> Iterator[Sighting]:
    """The slope of v over the drafted tokens."""
    for row in tables.recommended.values():
        cost, k = value(row, "verify_cost_ratio"), value(row, "k")
        if cost is None or not k:
            continue
        slope = (cost - 1) / k
        if slope > SLOW_VERIFICATION:
            text = f"verifying {k + 1:g} tokens costs {cost:.2f} steps."
            figures = {"verify_cost_ratio": cost, "k": int(k), "slope": slope}
            yield Sighting(row["cell_id"], row["variant_id"], text, figures, Confidence.LIKELY)


@rule(
    title="Much time goes into neither drafting nor verifying",
    topic=Topic.SPECULATION,
    threshold=f"more than {MUCH_OVERHEAD:.0%} of the decode time",
    next_step="Profile the engine's own loop: copies between host and device, sampling on the host, Python.",
)
def engine_overhead(tables: Tables) -> Iterator[Sighting]:
    """The share of the loop itself."""
    for row in tables.recommended.values():
        share = value(row, "other_share")
        if share is not None and share > MUCH_OVERHEAD:
            text = f"{share:.0%} of the decode time is neither."
            yield Sighting(
                row["cell_id"], row["variant_id"], text, {"other_share": share}, Confidence.COUNTED
            )


def _speedup(row: Row, name: str = "speedup") -> str:
    low, high = value(row, f"{name}_low"), value(row, f"{name}_high")
    interval = "" if low is None or high is None else f" [{low:.2f}, {high:.2f}]"
    return f"{float(row[name]):.2f}x{interval}"
