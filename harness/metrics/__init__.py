"""What the measurements mean: acceptance, latency, theory and intervals, in plain numpy and scipy."""

from __future__ import annotations

from harness.metrics.acceptance import (
    Acceptance,
    PositionRates,
    position_rates,
    summarise_steps,
    tokens_per_target_forward,
)
from harness.metrics.intervals import (
    Interval,
    group_sums,
    proportion_interval,
    ratio_interval,
    speedup_interval,
)
from harness.metrics.latency import Percentiles, percentiles, time_per_output_token_s, tok_per_s
from harness.metrics.multiplicity import holm
from harness.metrics.paired import PairedChange, paired_change
from harness.metrics.theory import (
    break_even_alpha,
    expected_emitted,
    iid_acceptance,
    optimal_k,
    predicted_speedup,
    speedup_from_emitted,
)
from harness.metrics.variance import Components, variance_components

__all__ = [
    "Acceptance",
    "Components",
    "Interval",
    "PairedChange",
    "Percentiles",
    "PositionRates",
    "break_even_alpha",
    "expected_emitted",
    "group_sums",
    "holm",
    "iid_acceptance",
    "optimal_k",
    "paired_change",
    "percentiles",
    "position_rates",
    "predicted_speedup",
    "proportion_interval",
    "ratio_interval",
    "speedup_from_emitted",
    "speedup_interval",
    "summarise_steps",
    "time_per_output_token_s",
    "tok_per_s",
    "tokens_per_target_forward",
    "variance_components",
]
