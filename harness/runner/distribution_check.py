"""Temperature above 0: do the tokens that were measured follow the target's own distribution?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from harness.metrics.uniformity import (
    MIN_TOKENS,
    binned_distance,
    detectable_distance,
    places,
    uniformity_p,
)
from harness.records import Variant
from harness.runner.outputs import Outputs
from harness.runner.scoring import BudgetedScorer
from harness.verdicts import LosslessRow, LosslessVerdict

TEST = "distribution"
SIGNIFICANCE = 0.001
"""Of all tests of a cell together: how often a cell without a fault may fail."""


@dataclass
class _Sample:
    """What was scored of one variant."""

    variant: Variant
    mass_above: list[float] = field(default_factory=list)
    mass: list[float] = field(default_factory=list)
    prompts: set[str] = field(default_factory=set)
    seconds: float = 0.0


def check_distribution(
    variants: Sequence[Variant], outputs: Outputs, scorer: BudgetedScorer, *, seed: int
) -> list[LosslessRow]:
    """Score measured outputs, one of each variant in turn, and test each variant's tokens.

    The same block is taken of every variant, so that all are tested on the same prompts and equally long.
    The baseline's row is the control: it can only fail where the target disagrees with itself.

    Returns:
        One row per variant.
    """
    samples = [_Sample(variant) for variant in variants]
    waiting = {variant.variant_id: outputs.of(variant.variant_id) for variant in variants}
    shared = [place for place in waiting[variants[0].variant_id] if all(place in w for w in waiting.values())]
    for place in shared:
        # a round is finished once it is begun; the first always is
        if scorer.is_spent:
            break
        for sample in samples:
            _add(sample, place[0], waiting[sample.variant.variant_id][place], scorer)
    num_tests = sum(len(sample.mass) >= MIN_TOKENS for sample in samples)
    rng = np.random.default_rng(seed)
    return [_row(sample, scorer.reason, num_tests=num_tests, rng=rng) for sample in samples]


def _add(sample: _Sample, prompt_id: str, tokens: Sequence[int], scorer: BudgetedScorer) -> None:
    before = scorer.seconds
    scored = scorer.score(prompt_id, tokens)
    sample.seconds += scorer.seconds - before
    if scored is not None:
        sample.mass_above += scored.mass_above
        sample.mass += scored.mass
        sample.prompts.add(prompt_id)


def _row(sample: _Sample, reason: str | None, *, num_tests: int, rng: np.random.Generator) -> LosslessRow:
    variant, num_tokens = sample.variant, len(sample.mass)
    row = LosslessRow(
        variant.variant_id,
        TEST,
        LosslessVerdict.UNKNOWN.value,
        num_prompts=len(sample.prompts),
        num_tokens=num_tokens,
        seconds=sample.seconds,
    )
    if num_tokens < MIN_TOKENS:
        row.reason = reason or (
            f"{num_tokens} tokens were scored, the test needs {MIN_TOKENS}: raise workload.num_prompts, "
            "workload.max_output_tokens or measure.lossless.max_time_s"
        )
        return row
    points = places(sample.mass_above, sample.mass, rng)
    row.p_value = min(1.0, uniformity_p(points) * num_tests)
    row.distance = binned_distance(points)
    row.detectable_distance = detectable_distance(num_tokens, significance=SIGNIFICANCE / num_tests)
    verdict = LosslessVerdict.CONSISTENT
    if row.p_value < SIGNIFICANCE:
        verdict = LosslessVerdict.DEFECT if variant.lossless else LosslessVerdict.LOSSY
    row.verdict = verdict.value
    return row
