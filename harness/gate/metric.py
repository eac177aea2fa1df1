"""The metrics a gate knows: how tight each is, on which scale it's compared, and which way is better."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Tier(StrEnum):
    """How far a metric can be trusted to stay the same when nothing changed."""

    TIGHT = "tight"
    TIME_RATIO = "time ratio"
    ABSOLUTE_TIME = "absolute time"
    TAIL = "tail"


class Scale(StrEnum):
    """What is compared with the margin: HEAD - BASE, or HEAD / BASE - 1."""

    DIFFERENCE = "difference"
    RATIO = "ratio"


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a variant.

    Attributes:
        name: as in `Results.summary()` (`share_equal` of `Results.greedy_agreement()` for the agreement).
        tier: how it is treated.
        scale: of its change and its margin.
        higher_is_better: which direction is a regression.
        of_baseline: whether the baseline variant has it too.
    """

    name: str
    tier: Tier
    scale: Scale = Scale.RATIO
    higher_is_better: bool = True
    of_baseline: bool = False

    @property
    def can_be_gated(self) -> bool:
        """Tails of a few dozen sequences are single observations: they are shown, never judged."""
        return self.tier is not Tier.TAIL

    @property
    def gated_by_default(self) -> bool:
        """Whether a gate file that doesn't say so lets it decide."""
        return self.tier in (Tier.TIGHT, Tier.TIME_RATIO)


GREEDY_AGREEMENT = "greedy_agreement"
_ABSOLUTE = ("decode_tok_per_s", "end_to_end_tok_per_s", "throughput_tok_per_s")
_SPEEDUPS = ("speedup", "end_to_end_speedup", "throughput_speedup")
_TAILS = tuple(f"{name}_{p}_s" for name in ("ttft", "tpot", "step", "total") for p in ("p90", "p99"))

METRICS = {
    metric.name: metric
    for metric in (
        Metric("acceptance_rate", Tier.TIGHT, Scale.DIFFERENCE),
        Metric("tokens_per_forward", Tier.TIGHT),
        Metric(GREEDY_AGREEMENT, Tier.TIGHT, Scale.DIFFERENCE),
        *(Metric(name, Tier.TIME_RATIO) for name in _SPEEDUPS),
        *(Metric(name, Tier.ABSOLUTE_TIME, of_baseline=True) for name in _ABSOLUTE),
        Metric("ttft_p50_s", Tier.ABSOLUTE_TIME, higher_is_better=False, of_baseline=True),
        *(Metric(name, Tier.TAIL, higher_is_better=False, of_baseline=True) for name in _TAILS),
    )
}
