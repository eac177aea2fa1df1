"""The costs of one method out of its measured steps, and how well they fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from harness.capacity.fitting import Curve, FloatArray, fit_nonnegative, hat_basis, knots_of
from harness.capacity.step_costs import StepCosts
from harness.capacity.step_table import MeasuredSteps
from harness.records import BASELINE_METHOD

_MOST_SPREAD = 4096
_CONTEXT_PARTS = 4


@dataclass(frozen=True, slots=True)
class FitError:
    """Fitted seconds against measured ones, by batch size.

    Attributes:
        mean_step: relative error of the mean step: over 0 where the fit is too slow.
        mean_ttft: relative error of the mean time to first token of an idle replica.
        steps: how many steps it rests on.
    """

    mean_step: dict[int, float]
    mean_ttft: float | None
    steps: int


def fit_costs(measured: MeasuredSteps, method: str) -> tuple[StepCosts, FitError]:
    """Fit what steps of a method cost; those of the baseline count for every method, as steps without drafts.

    Args:
        measured: steps of one configuration.
        method: to fit.
    """
    table = measured.batches
    own = table[table["method"] == method]
    pooled = own if method == BASELINE_METHOD else table[table["method"].isin([method, BASELINE_METHOD])]
    curve, verify = _verify(_grouped(pooled))
    draft = _draft(_grouped(own)) if method != BASELINE_METHOD else np.zeros(4)
    overhead = _overhead(measured.overheads[measured.overheads["method"] == method])
    prefill, ttft_error = _prefill(measured.trials[measured.trials["method"] == method])
    costs = StepCosts(
        verify=curve,
        verify_per_sequence_s=verify[0],
        verify_per_context_s=verify[1],
        draft_s=draft[0],
        draft_token_s=draft[1],
        draft_sequence_s=draft[2],
        draft_context_s=draft[3],
        overhead_s=overhead[0],
        overhead_sequence_s=overhead[1],
        prefill_s=prefill[0],
        prefill_token_s=prefill[1],
    )
    return _with_spread(costs, own, ttft_error)


def _grouped(table: pd.DataFrame) -> pd.DataFrame:
    """Means of steps that do the same work, context in a few parts; `weight` is how many they are."""
    rank = (
        table["context"].rank(pct=True, method="first").mul(_CONTEXT_PARTS).clip(upper=_CONTEXT_PARTS - 1e-9)
    )
    keys = [table["num_sequences"], table["proposed"], table["depth"], rank.astype(int).rename("part")]
    means = table.groupby(keys, sort=False)[["context", "draft_s", "verify_s"]].mean()
    return means.assign(weight=table.groupby(keys, sort=False).size()).reset_index()


def _verify(table: pd.DataFrame) -> tuple[Curve, tuple[float, float]]:
    n, weight = table["num_sequences"].to_numpy(float), table["weight"].to_numpy(float)
    width = n + table["proposed"].to_numpy(float)
    knots = knots_of(width, weight)
    # without drafts the width is the number of sequences: one of the two says it all
    per_sequence = n if (width != n).any() else np.zeros_like(n)
    # a drafted token may cost more than a sequence's own: then sequences count against the width
    context = table["context"].to_numpy(float)
    features = np.column_stack([hat_basis(width, knots), per_sequence, -per_sequence, context])
    found = fit_nonnegative(features, table["verify_s"].to_numpy(float), weight)
    curve = Curve(knots, tuple(float(v) for v in found[:-3]))
    return curve, (float(found[-3] - found[-2]), float(found[-1]))


def _draft(table: pd.DataFrame) -> FloatArray:
    n, depth = table["num_sequences"].to_numpy(float), table["depth"].to_numpy(float)
    context = table["context"].to_numpy(float)
    features = np.column_stack([np.ones_like(n), depth, depth * (n - 1), depth * context])
    return fit_nonnegative(features, table["draft_s"].to_numpy(float), table["weight"].to_numpy(float))


def _overhead(rows: pd.DataFrame) -> FloatArray:
    n = rows["num_sequences"].to_numpy(float)
    seconds = np.maximum(rows["overhead_s"].to_numpy(float), 0.0)
    return fit_nonnegative(np.column_stack([np.ones_like(n), n]), seconds, rows["num_steps"].to_numpy(float))


def _prefill(trials: pd.DataFrame) -> tuple[FloatArray, float | None]:
    if trials.empty:
        return np.zeros(2), None
    tokens, seconds = trials["prompt_tokens"].to_numpy(float), trials["ttft_s"].to_numpy(float)
    found = fit_nonnegative(np.column_stack([np.ones_like(tokens), tokens]), seconds, np.ones_like(tokens))
    predicted = found[0] + found[1] * tokens
    return found, float(predicted.mean() / seconds.mean() - 1)


def _with_spread(costs: StepCosts, own: pd.DataFrame, ttft_error: float | None) -> tuple[StepCosts, FitError]:
    """Add how single steps scatter about the fit, and tell how far its means are off."""
    predicted = costs.step_s(
        num_sequences=own["num_sequences"],
        proposed=own["proposed"],
        depth=own["depth"],
        context=own["context"],
    )
    predicted = (
        predicted - costs.overhead_s - costs.overhead_sequence_s * own["num_sequences"].to_numpy(float)
    )
    actual = (own["draft_s"] + own["verify_s"]).to_numpy(float)
    errors = {
        int(batch): float(predicted[mine].mean() / actual[mine].mean() - 1)
        for batch in np.unique(own["batch_size"])
        if (mine := (own["batch_size"] == batch).to_numpy()).any()
    }
    ratios = actual / np.maximum(predicted, 1e-12)
    if len(ratios) > _MOST_SPREAD:
        # evenly spaced order statistics keep the tail that a random part might miss
        ratios = np.sort(ratios)[np.linspace(0, len(ratios) - 1, _MOST_SPREAD).round().astype(int)]
    spread = ratios / ratios.mean()
    fitted = StepCosts(
        **{name: getattr(costs, name) for name in costs.__slots__ if name != "spread"}, spread=spread
    )
    return fitted, FitError(errors, ttft_error, len(own))
