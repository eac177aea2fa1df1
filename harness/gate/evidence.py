"""From stored observations of one variant in both runs to the change of each metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from harness.gate.metric import Metric, Scale
from harness.gate.resampling import Effect, FloatArray, Statistic, effect, median, sum_ratio
from harness.gate.settings import GateSettings
from harness.metrics.intervals import group_sums
from harness.results.pairing import DECODE, END_TO_END, THROUGHPUT, Rate, pair, prepare

_RATES = {"decode_tok_per_s": DECODE, "end_to_end_tok_per_s": END_TO_END, "throughput_tok_per_s": THROUGHPUT}
_SPEEDUPS = {"speedup": DECODE, "end_to_end_speedup": END_TO_END, "throughput_speedup": THROUGHPUT}


class NotComparableError(Exception):
    """A check has no numbers to stand on; the text says why. It never leaves this package."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The counting rows of one variant and of its baseline, in one run.

    Attributes:
        side: `BASE` or `HEAD`.
        variant: rows as `prepare` leaves them.
        baseline: the same of the cell's baseline.
    """

    side: str
    variant: pd.DataFrame
    baseline: pd.DataFrame

    @property
    def prompts(self) -> set[str]:
        """Ids of the prompts that have an ok measurement."""
        return set(self.variant["prompt_id"])

    @property
    def num_repeats(self) -> int:
        """The fewest measurements of a prompt."""
        return int(self.variant.groupby("prompt_id").size().min())


def joint_rows(base: pd.DataFrame, head: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Prepare the counting rows of one cell in both runs, with resampling units common to both.

    Prompts that met in a block of either run are one unit, so that each draw means the same in both.
    """
    shift = int(base["block"].max()) + 1 if len(base) else 0
    both = pd.concat(
        [base.assign(is_head=False), head.assign(is_head=True, block=head["block"] + shift)],
        ignore_index=True,
    )
    prepared = prepare(both)
    return prepared[~prepared["is_head"]], prepared[prepared["is_head"]]


def change_of(metric: Metric, samples: tuple[Sample, Sample], settings: GateSettings) -> Effect:
    """The change of one metric.

    Raises:
        NotComparableError: a column it needs has gaps, or a figure doesn't exist.
    """
    base, head = (_figure(metric.name, sample) for sample in samples)
    if base.units != head.units:
        raise NotComparableError("BASE and HEAD didn't measure the same prompts")
    try:
        return effect(
            base.statistic,
            head.statistic,
            scale=metric.scale,
            num_units=len(base.units),
            num_resamples=settings.num_resamples,
            seed=settings.seed,
        )
    except ValueError as error:
        raise NotComparableError(str(error)) from error


def agreement_change(rows: Sequence[Mapping[str, Any]], samples: tuple[Sample, Sample]) -> Effect:
    """The change of the share of prompts whose greedy output is the baseline's.

    It has no standard error: a prompt that newly parts from the target's output is a fact about the code.

    Args:
        rows: of `Results.greedy_agreement()`, BASE and HEAD.
        samples: of the variant.

    Raises:
        NotComparableError: output tokens aren't stored for every sequence.
    """
    for row, sample in zip(rows, samples, strict=True):
        for of_variant in (sample.variant, sample.baseline):
            if (gaps := int(of_variant["output_tokens"].isna().sum())) or not len(of_variant):
                raise NotComparableError(
                    f"{sample.side}: output tokens are missing in {gaps} of {len(of_variant)} sequences"
                )
        if row.get("num_prompts") != len(sample.prompts):
            raise NotComparableError(f"{sample.side}: some prompts have no ok measurement of the baseline")
    base, head = (float(row["share_equal"]) for row in rows)
    return Effect(base, head, head - base, None, len(samples[0].prompts), Scale.DIFFERENCE)


@dataclass(frozen=True, slots=True)
class _Figure:
    units: tuple[int, ...]
    statistic: Statistic


def _figure(name: str, sample: Sample) -> _Figure:
    if name in _SPEEDUPS:
        return _speedup(sample, _SPEEDUPS[name])
    rows = sample.variant
    if name in _RATES:
        rate = _RATES[name]
        _require(rows, [rate.tokens, rate.seconds], sample.side)
        return _ratio(rows, [rate.tokens], [rate.seconds])
    if name == "tokens_per_forward":
        columns = ["num_output_tokens", "num_target_forwards"]
        _require(rows, columns, sample.side)
        return _ratio(rows, columns[:1], columns[1:])
    if name == "acceptance_rate":
        return _acceptance(sample)
    _require(rows, ["ttft_s"], sample.side)
    units, index = np.unique(rows["unit"].to_numpy(), return_inverse=True)
    return _Figure(_labels(units), median(rows["ttft_s"].to_numpy(dtype=np.float64), index))


def _speedup(sample: Sample, rate: Rate) -> _Figure:
    """Variant over its own baseline, paired; both stood on one machine, in one run."""
    columns = [rate.tokens, rate.seconds]
    _require(sample.variant, columns, sample.side)
    _require(sample.baseline, columns, f"the baseline of {sample.side}")
    paired = pair(sample.variant, sample.baseline)
    if set(paired["prompt_id"]) != sample.prompts:
        raise NotComparableError(f"{sample.side}: some prompts have no ok measurement of the baseline")
    return _ratio(
        paired,
        [rate.tokens, f"{rate.seconds}_baseline"],
        [rate.seconds, f"{rate.tokens}_baseline"],
    )


def _acceptance(sample: Sample) -> _Figure:
    rows = sample.variant
    unknown = rows["step_proposed"].isna() | rows["step_accepted"].isna()
    if unknown.any():
        reasons = rows.loc[unknown, "steps_missing_reason"].dropna().unique()
        why = f": {reasons[0]}" if len(reasons) else ""
        raise NotComparableError(
            f"{sample.side}: the steps of {int(unknown.sum())} of {len(rows)} sequences are unknown{why}"
        )
    counted = rows.assign(
        num_proposed=[int(np.sum(steps)) for steps in rows["step_proposed"]],
        num_accepted=[int(np.sum(steps)) for steps in rows["step_accepted"]],
    )
    if not counted["num_proposed"].sum():
        raise NotComparableError(f"{sample.side}: no token was drafted")
    return _ratio(counted, ["num_accepted"], ["num_proposed"])


def _ratio(rows: pd.DataFrame, above: list[str], below: list[str]) -> _Figure:
    """Sums per unit; each prompt counts once, however often a run repeated it."""
    share = 1 / rows.groupby("prompt_id")["prompt_id"].transform("size")
    units = np.unique(rows["unit"].to_numpy())
    tops, bottoms = (_sums(rows, names, share) for names in (above, below))
    return _Figure(_labels(units), sum_ratio(tops, bottoms))


def _sums(rows: pd.DataFrame, names: list[str], share: pd.Series[Any]) -> FloatArray:
    return np.stack(group_sums(rows["unit"], *(rows[name] * share for name in names)), axis=1)


def _labels(units: Any) -> tuple[int, ...]:
    return tuple(int(unit) for unit in units)


def _require(rows: pd.DataFrame, columns: list[str], where: str) -> None:
    """Refuse gaps: a figure over the rest would be one of other prompts."""
    for name in columns:
        values = rows[name].to_numpy(dtype=np.float64, na_value=np.nan)
        bad = ~np.isfinite(values) | (values < 0)
        if bad.any():
            # a sequence's share of its batch's seconds is missing where the seconds are
            stored = name.replace("_share_s", "_s")
            raise NotComparableError(
                f"{where}: {stored} is missing or no valid number in {int(bad.sum())} of {len(rows)} "
                "sequences"
            )
