"""What the lossless check found, variant by variant."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class LosslessVerdict(StrEnum):
    """What the lossless check found."""

    EQUAL = "equal"
    """Temperature 0: every output is the baseline's, token for token."""
    TIE = "tie"
    """Temperature 0: outputs differ, and only where the target's logits are too close to call."""
    CONSISTENT = "consistent"
    """Temperature above 0: the tokens follow the target's distribution, as far as the test can see."""
    LOSSY = "lossy"
    """The output isn't the target's, and the variant says so."""
    DEFECT = "defect"
    """The output isn't the target's, and it should be."""
    UNKNOWN = "unknown"
    """Couldn't be judged; the reason is given."""


@dataclass(slots=True)
class Divergence:
    """Where a greedy output leaves the baseline's, or where the target would leave its own.

    Attributes:
        prompt_id: which prompt.
        after_tokens: output tokens before it.
        token: what the baseline wrote there; None where it had ended.
        other_token: what the variant wrote, or the target preferred in one forward; None where it had ended.
        roundings: how far the token that came out lies below the target's likeliest, in roundings of its
            number format; None where it wasn't scored.
        verdict: `tie`, `defect` or `unknown`; `lossy` where the variant says that it isn't lossless.
    """

    prompt_id: str
    after_tokens: int
    token: int | None
    other_token: int | None
    roundings: float | None
    verdict: str


@dataclass(slots=True)
class LosslessRow:
    """The lossless check of one variant; that of the baseline is the control.

    Attributes:
        variant_id: which variant.
        test: `greedy` or `distribution`.
        verdict: a `LosslessVerdict`.
        reason: why `unknown`.
        num_prompts: prompts compared (`greedy`; for the control, scored ones), or with tokens in the test.
        num_tokens: output tokens compared or tested.
        num_equal: prompts whose every output is the baseline's; None for `distribution`.
        num_ties: prompts that differ by ties alone; likewise.
        num_defects: prompts with a defect; likewise.
        largest_roundings: the widest of the divergences that were scored.
        p_value: of the test, corrected for the number of variants; None for `greedy`.
        distance: of the tokens' places from a uniform spread; likewise.
        detectable_distance: the distance that the test would catch with probability 0.9; likewise.
        seconds: that scoring took.
        divergences: the first per prompt and token.
    """

    variant_id: str
    test: str
    verdict: str
    reason: str | None = None
    num_prompts: int = 0
    num_tokens: int = 0
    num_equal: int | None = None
    num_ties: int | None = None
    num_defects: int | None = None
    largest_roundings: float | None = None
    p_value: float | None = None
    distance: float | None = None
    detectable_distance: float | None = None
    seconds: float = 0.0
    divergences: list[Divergence] = field(default_factory=list)
