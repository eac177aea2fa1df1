"""Rules about acceptance: is this the right drafter, and where does it guess badly?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from harness.findings.finding import Confidence, Figure, Sighting, Topic, beyond, rule
from harness.findings.tables import Row, Tables, value
from harness.metrics.paired import PairedChange, paired_change
from harness.registry import METHODS

WRONG_PAIR = 0.3
WEAK_PAIR = 0.5
MISMATCH = 0.05
MOSTLY_EMPTY = 0.5
NOTABLE_GAP = 0.1
NOTABLE_CHANGE = 0.05
# every variant is tested, so 95% would find a change by chance in one cell of a few
NO_CHANCE = 0.999


@rule(
    title="Next to nothing is accepted: the two models don't read the same tokens",
    topic=Topic.SPECULATION,
    threshold=f"alpha under {MISMATCH:.0%}",
    next_step="Compare tokenizers, pad and special ids and padded vocabulary sizes of target and drafter, "
    "and look at the drafter's positions: a pad id that shifts them has this effect too.",
)
def mismatched_pair(tables: Tables) -> Iterator[Sighting]:
    """Alpha so low that even a bad drafter of the same tokens would do better."""
    for row, alpha in _alphas(tables):
        if alpha < MISMATCH:
            yield _alpha_sighting(row, alpha, MISMATCH)


@rule(
    title="Low acceptance: probably the wrong drafter for this target",
    topic=Topic.SPECULATION,
    threshold=f"alpha under {WRONG_PAIR:.0%}",
    next_step="Use a drafter of the target's own family and version, or train one on the target's answers. "
    "No k will mend it.",
)
def wrong_pair(tables: Tables) -> Iterator[Sighting]:
    """Alpha under what a fitting drafter reaches."""
    for row, alpha in _alphas(tables):
        if MISMATCH <= alpha < WRONG_PAIR:
            yield _alpha_sighting(row, alpha, WRONG_PAIR)


@rule(
    title="Middling acceptance: look at the drafter before the parameters",
    topic=Topic.SPECULATION,
    threshold=f"alpha under {WEAK_PAIR:.0%}",
    next_step="A better drafter gains more here than another k: try a larger one, or one trained on the "
    "target's answers to prompts like these.",
)
def weak_pair(tables: Tables) -> Iterator[Sighting]:
    """Alpha in the range where the pair limits the gain."""
    for row, alpha in _alphas(tables):
        if WRONG_PAIR <= alpha < WEAK_PAIR:
            yield _alpha_sighting(row, alpha, WEAK_PAIR)


@rule(
    title="The text seldom repeats itself, so look-up has little to offer",
    topic=Topic.SPECULATION,
    threshold=f"nothing drafted in more than {MOSTLY_EMPTY:.0%} of the steps",
    next_step="Use a draft model for such text; keep look-up for summaries, edits and extraction, which "
    "copy from their prompt.",
)
def little_to_look_up(tables: Tables) -> Iterator[Sighting]:
    """Look-up that mostly finds nothing."""
    for rows in tables.methods.values():
        row = max(rows, key=lambda one: value(one, "num_steps") or 0.0)
        steps, empty = value(row, "num_steps"), value(row, "num_empty_steps")
        if steps and empty is not None and empty / steps > MOSTLY_EMPTY:
            text = f"{empty / steps:.0%} of the steps drafted nothing."
            figures = {"num_steps": int(steps), "num_empty_steps": int(empty)}
            yield Sighting(row["cell_id"], row["variant_id"], text, figures, Confidence.COUNTED)


@rule(
    title="Acceptance falls with the temperature",
    topic=Topic.SPECULATION,
    threshold=f"alpha lower by more than {NOTABLE_GAP:.0%} of a token at the higher temperature",
    next_step="Choose k per temperature. Where sampling is hot and gains are small, turn speculation off.",
)
def hot_sampling(tables: Tables) -> Iterator[Sighting]:
    """Cells that differ in temperature alone."""
    for cool, hot in _ends(tables, "temperature"):
        what = "temperature"
        yield from _lower(
            cool, hot, gap=NOTABLE_GAP, names=(f"{what} {cool[what]:g}", f"{what} {hot[what]:g}")
        )


@rule(
    title="The quantised drafter is accepted less",
    topic=Topic.SPECULATION,
    threshold=f"alpha lower by more than {NOTABLE_CHANGE:.0%} of a token than with the unquantised drafter",
    next_step="Compare the speedups: keep the unquantised drafter unless the quantised one is faster all "
    "the same.",
)
def quantised_drafter(tables: Tables) -> Iterator[Sighting]:
    """Cells that differ in the drafter's quantisation alone."""
    fact = "drafter_quantization"
    for group in tables.cells_along(fact):
        plain = [cell for cell in group if cell[fact] == "none"]
        for cell in group:
            for row, reference in _same_variants(tables, cell, plain):
                names = (f"drafter quantisation {reference[fact]}", f"drafter quantisation {row[fact]}")
                if row is not reference and row[fact] != "none":
                    yield from _lower(reference, row, gap=NOTABLE_CHANGE, names=names)


@rule(
    title="One task is drafted much worse than the rest",
    topic=Topic.SPECULATION,
    threshold=f"acceptance rate more than {NOTABLE_GAP:.0%} under that of all tasks together",
    next_step="Decide by task: a smaller k or none there, or training text of that kind for the drafter.",
)
def hard_task(tables: Tables) -> Iterator[Sighting]:
    """Tasks at the recommended k of each method."""
    for (cell_id, _), row in tables.recommended.items():
        overall = value(row, "acceptance_rate")
        own = tables.tasks.get((cell_id, row["variant_id"]), ())
        for task in own:
            found = value(task, "acceptance_rate")
            if overall is None or found is None or len(own) < 2 or overall - found <= NOTABLE_GAP:
                continue
            high = value(task, "acceptance_rate_high")
            # one prompt has no interval and says nothing about its task
            if high is not None and high < overall:
                text = (
                    f"{str(task['task'])[:60]}: {found:.0%} accepted, against {overall:.0%} over all tasks."
                )
                figures: dict[str, Figure] = {
                    "task": str(task["task"])[:60],
                    "acceptance_rate": found,
                    "acceptance_rate_high": high,
                    "acceptance_rate_of_all": overall,
                    "num_prompts": int(task["num_prompts"]),
                }
                confidence = beyond(overall - NOTABLE_GAP, low=None, high=high, below=True)
                yield Sighting(cell_id, row["variant_id"], text, figures, confidence)


@rule(
    title="Acceptance fell while the cell was measured",
    topic=Topic.MEASUREMENT,
    threshold=f"alpha lower by more than {NOTABLE_CHANGE:.0%} of a token in the last repeat than in the "
    "first",
    next_step="The same prompts should be accepted alike: look for state that carries over between "
    "sequences, such as a cache that isn't cleared. In production, a sudden fall means that the inputs "
    "changed.",
    reads_rows=True,
)
def falling_acceptance(tables: Tables) -> Iterator[Sighting]:
    """The same prompts, first repeat against last."""
    for cell_id, variant_id, change in _between_repeats(tables):
        if change.estimate < -NOTABLE_CHANGE and change.high < 0:
            confidence = beyond(-NOTABLE_CHANGE, low=None, high=change.high, below=True)
            yield _change_sighting(cell_id, variant_id, change, confidence)


@rule(
    title="Acceptance rose from repeat to repeat: the drafter remembers earlier prompts",
    topic=Topic.MEASUREMENT,
    threshold=f"alpha higher by more than {NOTABLE_CHANGE:.0%} of a token in the last repeat than in the "
    "first",
    next_step="Turn off n-gram pools and suffix trees that are shared between requests, or measure each "
    "prompt once and in a fresh engine: users don't send the same prompt twice.",
    reads_rows=True,
)
def shared_memory(tables: Tables) -> Iterator[Sighting]:
    """The same prompts, first repeat against last."""
    for cell_id, variant_id, change in _between_repeats(tables):
        if change.estimate > NOTABLE_CHANGE and change.low > 0:
            confidence = beyond(NOTABLE_CHANGE, low=change.low, high=None, below=False)
            yield _change_sighting(cell_id, variant_id, change, confidence)


def _alphas(tables: Tables) -> Iterator[tuple[Row, float]]:
    """One row per cell and method that drafts with a model: the one that knows alpha best."""
    for (_, method), rows in tables.methods.items():
        drafts_with_a_model = method not in METHODS or METHODS[method].needs_drafter
        known = [row for row in rows if value(row, "iid_acceptance") is not None]
        if known and drafts_with_a_model:
            best = min(known, key=_alpha_width)
            yield best, float(best["iid_acceptance"])


def _alpha_width(row: Row) -> float:
    low, high = value(row, "iid_acceptance_low"), value(row, "iid_acceptance_high")
    return np.inf if low is None or high is None else high - low


def _alpha_sighting(row: Row, alpha: float, threshold: float) -> Sighting:
    low, high = value(row, "iid_acceptance_low"), value(row, "iid_acceptance_high")
    confidence = beyond(threshold, low=low, high=high, below=True)
    figures = {"alpha": alpha, "alpha_low": low, "alpha_high": high}
    return Sighting(row["cell_id"], row["variant_id"], f"alpha is {_alpha(row)}.", figures, confidence)


def _alpha(row: Row) -> str:
    low, high = value(row, "iid_acceptance_low"), value(row, "iid_acceptance_high")
    interval = "" if low is None or high is None else f" [{low:.0%}, {high:.0%}]"
    return f"{float(row['iid_acceptance']):.0%}{interval}"


def _ends(tables: Tables, fact: str) -> Iterator[tuple[Row, Row]]:
    """Rows of one variant in the first and the last cell along a fact."""
    for group in tables.cells_along(fact):
        for row, reference in _same_variants(tables, group[-1], group[:1]):
            yield reference, row


def _same_variants(tables: Tables, cell: Row, references: list[Row]) -> Iterator[tuple[Row, Row]]:
    """Per method, the row of a cell that knows alpha best, and its namesake in the first reference cell."""
    for row, _ in _alphas(tables):
        if row["cell_id"] != cell["cell_id"] or not references:
            continue
        wanted = (references[0]["cell_id"], row["variant_id"])
        twins = [one for one in tables.drafting if (one["cell_id"], one["variant_id"]) == wanted]
        if twins and value(twins[0], "iid_acceptance") is not None:
            yield row, twins[0]


def _lower(reference: Row, row: Row, *, gap: float, names: tuple[str, str]) -> Iterator[Sighting]:
    before, after = float(reference["iid_acceptance"]), float(row["iid_acceptance"])
    if before - after <= gap:
        return
    low, high = value(reference, "iid_acceptance_low"), value(row, "iid_acceptance_high")
    apart = low is not None and high is not None and low > high
    text = f"alpha is {_alpha(row)} at {names[1]}, {_alpha(reference)} at {names[0]}."
    figures = {"alpha": after, "alpha_high": high, "alpha_before": before, "alpha_before_low": low}
    confidence = Confidence.CLEAR if apart else Confidence.LIKELY
    yield Sighting(row["cell_id"], row["variant_id"], text, figures, confidence)


def _between_repeats(tables: Tables) -> Iterator[tuple[str, str, PairedChange]]:
    """Alpha of the last repeat less that of the first, over the blocks both have."""
    columns = ["cell_id", "variant_id", "repeat", "prompt_id", "accepted", "tested"]
    known = tables.trials[columns].dropna(subset=["accepted", "tested"])
    for (cell_id, variant_id), rows in known.groupby(["cell_id", "variant_id"], sort=False):
        if rows["repeat"].nunique() < 2:
            continue
        first, last = (rows[rows["repeat"] == rows["repeat"].agg(end)] for end in ("min", "max"))
        both = first.merge(last, on="prompt_id", suffixes=("", "_last"))
        if not both["tested"].sum() or not both["tested_last"].sum():
            continue
        paired = (both[name] for name in ("accepted", "tested", "accepted_last", "tested_last"))
        change = paired_change(*paired, confidence=NO_CHANCE)
        if change is not None:
            yield str(cell_id), str(variant_id), change


def _change_sighting(cell_id: str, variant_id: str, change: PairedChange, confidence: Confidence) -> Sighting:
    text = f"alpha went from {change.before:.0%} to {change.after:.0%} on the same prompts."
    figures = {
        "alpha_first": change.before,
        "alpha_last": change.after,
        "change": change.estimate,
        "change_low": change.low,
        "change_high": change.high,
    }
    return Sighting(cell_id, variant_id, text, figures, confidence)
