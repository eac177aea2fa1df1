"""The words of the page, each defined once."""

from __future__ import annotations

from harness.reports.blocks import Facts, Section
from harness.reports.language import say

_TERMS = (
    (
        "Cell",
        "All that must be equal for a speedup to mean anything: backend, target, precision, device, "
        "batch, sampling, prompts.",
    ),
    (
        "Variant",
        "How tokens are drafted inside a cell: a method and a k. The baseline drafts nothing and is in "
        "every cell.",
    ),
    ("k", "Drafted tokens per step."),
    ("Step", "One draft of up to k tokens and one forward of the target that verifies them."),
    (
        "Speedup",
        "The variant's tokens per second over the baseline's, on the same prompts: a ratio of sums, so "
        "long outputs weigh more. Decode speedup counts the time from the first output token to the last; "
        "end to end adds the time to first token; throughput divides by the wall time of whole batches.",
    ),
    (
        "Interval",
        "95% confidence, with the prompts as the sample, variant and baseline paired; prompts decoded in one "
        "batch count as one, and so do repeats of a prompt. It covers which prompts were picked and timing "
        "noise, not other machines or other workloads.",
    ),
    (
        "Corrected verdict",
        "Many variants are compared with one baseline, so some intervals miss 1 by luck. Holm's correction "
        "keeps the chance of any false verdict in a cell at 5%.",
    ),
    (
        "Finding",
        "What a fixed rule sees in the tables of this page, with its evidence, the threshold and what to do.",
    ),
    (
        "Recommended k",
        "The smallest k whose speedup lies within the interval of the fastest one. It is picked and "
        "measured on the same prompts, so its figure is slightly favourable.",
    ),
    (
        "Acceptance rate",
        "Accepted drafted tokens over proposed ones. The target's own token never counts as accepted.",
    ),
    (
        "Acceptance by position",
        "Marginal: steps that accepted position i, over those that drafted it. Conditional: over those "
        "that had accepted every position before it.",
    ),
    (
        "alpha",
        "The acceptance that each token would have if all were alike and independent: accepted over "
        "accepted plus rejected.",
    ),
    (
        "Tokens per forward",
        "Output tokens over forwards of the target, the prefill included. It is not a speedup: it leaves "
        "out what drafting and verifying cost.",
    ),
    ("c", "Cost of drafting one token, over one step of the baseline. Measured, as a ratio of medians."),
    (
        "v",
        "Cost of verifying k + 1 tokens at once, over one step of the baseline. Measured, as a ratio of "
        "medians.",
    ),
    (
        "Predicted speedup",
        "Tokens per step over k * c + v. With a constant acceptance alpha the tokens per step are (1 - "
        "alpha^(k+1)) / (1 - alpha).",
    ),
    ("TTFT", "Time to first token: from the call to the first output token, the drafter's prefill included."),
    ("TPOT", "Time per output token after the first, averaged over a sequence."),
    ("p50, p90, p99", "Half, nine tenths and 99 in 100 of the values are at or below this one."),
    (
        "Warmup",
        "Loading, compiling, the first call and some trials on other prompts, before anything counts. "
        "Timed and shown under Cold start.",
    ),
    ("Lossless", "The output has the target's own distribution; at temperature 0, the same tokens."),
)


def glossary_section() -> Section:
    """What the words of the page mean."""
    return Section(
        "glossary", "Definitions", blocks=[Facts([(say(term), say(meaning)) for term, meaning in _TERMS])]
    )
