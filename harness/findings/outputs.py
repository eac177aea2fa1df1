"""Rules about what came out, and about what didn't: garbled text, memory that ran out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from harness.findings.finding import Confidence, Sighting, Topic, rule
from harness.findings.tables import Tables, value

MOSTLY_DIFFERENT = 0.5
EARLY_TOKENS = 8
STUCK = 0.5
FEWEST_TOKENS = 10


@rule(
    title="Greedy output is another text altogether",
    topic=Topic.SPECULATION,
    threshold=f"more than {MOSTLY_DIFFERENT:.0%} of the prompts differ from the baseline's output, half of "
    f"those within {EARLY_TOKENS} tokens",
    next_step="That is no rounding: check pad ids, positions after a rejection and the padded vocabulary "
    "of both models, and look at where the output parts from the baseline's.",
)
def different_text(tables: Tables) -> Iterator[Sighting]:
    """Early and frequent differences of variants that should be lossless."""
    for row in tables.agreement:
        share, median = value(row, "share_equal"), value(row, "median_divergence_tokens")
        if row.get("lossless") is False or share is None or median is None:
            continue
        if 1 - share > MOSTLY_DIFFERENT and median < EARLY_TOKENS:
            text = f"{1 - share:.0%} of the prompts differ, half of those by token {median:.0f}."
            figures = {"share_equal": share, "median_divergence_tokens": median}
            yield Sighting(row["cell_id"], row["variant_id"], text, figures, Confidence.COUNTED)


@rule(
    title="The fastest way to draft changes the output",
    topic=Topic.SPECULATION,
    threshold="a variant that isn't lossless is faster than every lossless one of its cell",
    next_step="Compare the quality of its answers before you use it, or take the fastest lossless variant.",
)
def changed_output(tables: Tables) -> Iterator[Sighting]:
    """Speed that was bought with another output; forced acceptance is no way to draft."""
    known = [row for row in tables.drafting if value(row, "speedup") is not None]
    for cell_id in dict.fromkeys(row["cell_id"] for row in known):
        own = [row for row in known if row["cell_id"] == cell_id and row["method"] != "synthetic"]
        top = max(own, key=lambda row: float(row["speedup"]), default=None)
        if top is None or top.get("lossless") is not False:
            continue
        kept = [float(row["speedup"]) for row in own if row.get("lossless") is not False]
        best = max([1.0, *kept])
        text = f"it decodes at {float(top['speedup']):.2f}x, the fastest lossless choice at {best:.2f}x."
        figures = {"speedup": float(top["speedup"]), "best_lossless_speedup": best}
        yield Sighting(cell_id, top["variant_id"], text, figures, Confidence.COUNTED)


@rule(
    title="The output is stuck on one token",
    topic=Topic.SPECULATION,
    threshold=f"in half of the outputs a single token makes up more than {STUCK:.0%}",
    next_step="Look at the text. If the baseline writes it too, check the chat template, the end token and "
    "the dtype; if only the variant does, check pad ids and positions.",
    reads_rows=True,
)
def stuck_output(tables: Tables) -> Iterator[Sighting]:
    """The share of the commonest token of each output."""
    rows = tables.results.measured
    known = rows[rows["output_tokens"].notna()]
    shares = known.assign(share=[_commonest_share(tokens) for tokens in known["output_tokens"]])
    for (cell_id, variant_id), own in shares.groupby(["cell_id", "variant_id"], sort=False):
        median = float(own["share"].median())
        if median > STUCK:
            text = f"half of the outputs are at least {median:.0%} one token."
            figures = {"median_share": median, "num_sequences": len(own)}
            yield Sighting(str(cell_id), str(variant_id), text, figures, Confidence.COUNTED)


@rule(
    title="Memory ran out",
    topic=Topic.SPECULATION,
    threshold="any out-of-memory error",
    next_step="In this order: leave the engine less of the memory for its cache (gpu_memory_utilization), "
    "shorten the context or the outputs, take a smaller drafter, quantise the drafter, lower the batch "
    "size.",
)
def out_of_memory(tables: Tables) -> Iterator[Sighting]:
    """Failures that are about memory, once per variant."""
    for cell_id, record in tables.records.items():
        seen = set()
        for failure in record.failures:
            text = f"{failure.error} {failure.traceback[-2000:]}".lower()
            if failure.variant_id in seen or not any(sign in text for sign in _MEMORY_SIGNS):
                continue
            seen.add(failure.variant_id)
            told = f"in {failure.stage}: {failure.error[:200]}"
            yield Sighting(cell_id, failure.variant_id, told, {"stage": failure.stage}, Confidence.COUNTED)


_MEMORY_SIGNS = ("out of memory", "outofmemory", "can't allocate memory", "doesn't fit the free memory")


def _commonest_share(tokens: np.ndarray[tuple[int], np.dtype[np.int32]]) -> float:
    if len(tokens) < FEWEST_TOKENS:
        return 0.0
    return float(np.unique(tokens, return_counts=True)[1].max() / len(tokens))
