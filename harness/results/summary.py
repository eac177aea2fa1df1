"""One row per cell and variant: every headline figure, null with a note where it can't be computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from harness.metrics.acceptance import Acceptance, summarise_steps, tokens_per_target_forward
from harness.metrics.intervals import CONFIDENCE, Interval
from harness.metrics.latency import percentiles, time_per_output_token_s
from harness.metrics.multiplicity import holm
from harness.metrics.theory import iid_acceptance, predicted_speedup, speedup_from_emitted
from harness.results.drift import baseline_drift
from harness.results.frames import Frames
from harness.results.pairing import (
    DECODE,
    END_TO_END,
    NO_PAIRS,
    THROUGHPUT,
    acceptance_interval,
    alpha_interval,
    rate_interval,
    speedup,
)

SPEEDUPS = {"speedup": DECODE, "end_to_end_speedup": END_TO_END, "throughput_speedup": THROUGHPUT}
RATES = {
    "decode_tok_per_s": DECODE,
    "end_to_end_tok_per_s": END_TO_END,
    "throughput_tok_per_s": THROUGHPUT,
}
_WITH_INTERVAL = (*RATES, *SPEEDUPS, "acceptance_rate", "iid_acceptance")
OWN_COLUMNS = [
    "status",
    "num_prompts",
    "num_trials",
    "num_paired",
    "num_output_tokens",
    "speedup_p",
    "speedup_p_adjusted",
    "faster",
    *(f"{name}{end}" for name in _WITH_INTERVAL for end in ("", "_low", "_high")),
    "mean_emitted_per_step",
    "mean_accepted_per_drafting_step",
    "num_steps",
    "num_empty_steps",
    "tokens_per_forward",
    *(f"{name}_{p}_s" for name in ("ttft", "tpot", "step", "total") for p in ("p50", "p90", "p99")),
    "draft_cost_ratio",
    "verify_cost_ratio",
    "predicted_speedup",
    "predicted_speedup_iid",
    "draft_share",
    "verify_share",
    "other_share",
    "peak_memory_bytes",
    "baseline_drift",
    "baseline_drift_low",
    "baseline_drift_high",
    "notes",
]


@dataclass(slots=True)
class _Row:
    """Figures of one variant as they come in, and why some are missing."""

    values: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def put(self, name: str, interval: Interval) -> None:
        self.values |= {name: interval.estimate, f"{name}_low": interval.low, f"{name}_high": interval.high}
        if interval.reason:
            self.note(interval.reason if interval.estimate is not None else f"{name}: {interval.reason}")

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


@dataclass(frozen=True, slots=True)
class _Sample:
    """The rows of one variant that count, their steps, and what they pair with."""

    rows: pd.DataFrame
    steps: pd.DataFrame
    paired: pd.DataFrame


def summarise(frames: Frames) -> pd.DataFrame:
    """One row per cell and variant, without facts; see docs/results.md for the columns."""
    samples = _samples(frames)
    rows = []
    for cell_id, variants in frames.variants.groupby("cell_id", sort=False):
        baseline_ids = variants.loc[variants["is_baseline"].eq(True), "variant_id"]
        baseline = next((samples[key] for v in baseline_ids if (key := (cell_id, v)) in samples), None)
        for variant in variants.to_dict("records"):
            key = (cell_id, variant["variant_id"])
            rows.append(
                {"cell_id": key[0], "variant_id": key[1], **_row(variant, samples.get(key), baseline)}
            )
    return _corrected(pd.DataFrame(rows, columns=["cell_id", "variant_id", *OWN_COLUMNS]))


def with_facts_first(frames: Frames, table: pd.DataFrame) -> pd.DataFrame:
    """Cell and variant facts between the names of a summary's rows and their figures."""
    leading = ["cell_id", "variant_id"]
    joined = frames.with_facts(table)
    middle = [name for name in joined.columns if name not in leading and name not in OWN_COLUMNS]
    return joined[leading + middle + OWN_COLUMNS]


def _corrected(table: pd.DataFrame) -> pd.DataFrame:
    """Correct the p-values of a cell's speedups, which share a baseline, by Holm's method; judge by them."""
    table["speedup_p_adjusted"] = np.nan
    for _, own in table[table["speedup_p"].notna()].groupby("cell_id"):
        table.loc[own.index, "speedup_p_adjusted"] = holm(own["speedup_p"].tolist())
    table["faster"] = [
        _faster(*row) for row in zip(table["speedup"], table["speedup_p_adjusted"], strict=True)
    ]
    return table


def _faster(speedup: float, p_value: float) -> str | None:
    if pd.isna(p_value):
        return None
    if p_value > 1 - CONFIDENCE:
        return "unclear"
    return "yes" if speedup > 1 else "no"


def _samples(frames: Frames) -> dict[tuple[Any, ...], _Sample]:
    keys = ["cell_id", "variant_id"]
    steps = dict(iter(frames.steps.groupby(keys, sort=False)))
    samples: dict[tuple[Any, ...], _Sample] = {}
    for cell in frames.prepared:
        for variant_id, rows in cell.variants.items():
            key = (cell.cell_id, variant_id)
            paired = cell.paired.get(variant_id, NO_PAIRS)
            samples[key] = _Sample(rows, steps.get(key, frames.steps.iloc[:0]), paired)
    return samples


def _row(variant: Mapping[Any, Any], sample: _Sample | None, baseline: _Sample | None) -> dict[str, Any]:
    row = _Row({"status": variant["status"]})
    if isinstance(variant["error"], str):
        row.note(f"{variant['status']}: {variant['error']}")
    if sample is None:
        row.values |= {"num_prompts": 0, "num_trials": 0, "num_paired": 0, "num_output_tokens": 0}
        row.note("no measured trial was ok")
    else:
        _put_counts(row, sample.rows)
        _put_latency(row, sample)
        _put_speedups(row, variant, sample, baseline)
        _put_acceptance(row, variant, sample)
        _put_costs(row, variant, sample, baseline)
    drift = None if baseline is None else baseline_drift(baseline.rows)
    if drift is not None:
        row.put("baseline_drift", drift)
    return row.values | {"notes": "; ".join(row.notes) or None}


def _put_counts(row: _Row, rows: pd.DataFrame) -> None:
    row.values |= {
        "num_prompts": rows["prompt_id"].nunique(),
        "num_trials": len(rows[["repeat", "block", "order", "started_s"]].drop_duplicates()),
        "num_output_tokens": int(rows["num_output_tokens"].sum()),
        "tokens_per_forward": _tokens_per_forward(rows),
        "peak_memory_bytes": rows["peak_memory_bytes"].max(),
    }


def _tokens_per_forward(rows: pd.DataFrame) -> float | None:
    known = rows.dropna(subset=["num_target_forwards", "num_output_tokens"])
    return tokens_per_target_forward(
        int(known["num_output_tokens"].sum()), int(known["num_target_forwards"].sum())
    )


def _put_latency(row: _Row, sample: _Sample) -> None:
    rows, steps = sample.rows, sample.steps
    waits = {
        "ttft": rows["ttft_s"],
        "tpot": time_per_output_token_s(
            rows["num_output_tokens"], rows["decode_s"], rows["num_first_tokens"]
        ),
        "step": steps["step_s"],
        "total": rows["total_s"],
    }
    for name, seconds in waits.items():
        found = percentiles(np.asarray(seconds, dtype=np.float64))
        row.values |= {f"{name}_p50_s": found.p50, f"{name}_p90_s": found.p90, f"{name}_p99_s": found.p99}
    for name, rate in RATES.items():
        row.put(name, rate_interval(rows, rate))


def _put_speedups(row: _Row, variant: Mapping[Any, Any], sample: _Sample, baseline: _Sample | None) -> None:
    if variant["is_baseline"]:
        row.values |= dict.fromkeys(SPEEDUPS, 1.0) | {"num_paired": len(sample.rows)}
        return
    if baseline is None:
        row.values["num_paired"] = 0
        row.note("speedup: the cell has no ok trial of the baseline")
        return
    paired = sample.paired
    row.values["num_paired"] = len(paired)
    if unpaired := len(sample.rows) - len(paired):
        row.note(f"speedup: {unpaired} of {len(sample.rows)} sequences have no ok baseline and are left out")
    intervals = {name: speedup(paired, rate) for name, rate in SPEEDUPS.items()}
    for name, interval in intervals.items():
        row.put(name, interval)
    row.values["speedup_p"] = intervals["speedup"].p_value


def _put_acceptance(row: _Row, variant: Mapping[Any, Any], sample: _Sample) -> None:
    missing = sample.rows["steps_missing_reason"].dropna().unique()
    for reason in missing:
        row.note(f"steps: {reason}")
    if sample.steps.empty:
        return
    counts = _acceptance(sample.steps)
    row.values |= {
        "num_steps": counts.num_steps,
        "num_empty_steps": counts.num_empty_steps,
        "mean_emitted_per_step": counts.mean_emitted_per_step,
    }
    if variant["is_baseline"]:
        return
    row.values["mean_accepted_per_drafting_step"] = counts.mean_accepted_per_drafting_step
    row.put("acceptance_rate", acceptance_interval(sample.rows))
    row.put("iid_acceptance", alpha_interval(sample.rows))


def _acceptance(steps: pd.DataFrame) -> Acceptance:
    return summarise_steps(steps["proposed"], steps["accepted"], steps["emitted"])


def _put_costs(row: _Row, variant: Mapping[Any, Any], sample: _Sample, baseline: _Sample | None) -> None:
    """Shares of the decode time, cost ratios against the baseline's step, and the speedup they predict."""
    timed = sample.rows[sample.rows["step_proposed"].notna()]
    decode_s = timed["decode_s"].sum()
    draft_s, verify_s = (sample.steps[name].sum(skipna=False) for name in ("draft_s", "verify_s"))
    if decode_s > 0 and np.isfinite(draft_s + verify_s):
        shares = {"draft_share": draft_s / decode_s, "verify_share": verify_s / decode_s}
        row.values |= shares | {"other_share": 1 - sum(shares.values())}
    one_step_s = np.nan if baseline is None else baseline.steps["verify_s"].median()
    if variant["is_baseline"] or sample.steps.empty:
        return
    if sample.steps[["draft_s", "verify_s"]].isna().all(axis=None):
        row.note("predicted_speedup: drafting and verifying weren't timed apart")
        return
    if not one_step_s > 0:
        row.note("predicted_speedup: the baseline's step time is unknown")
        return
    _put_prediction(row, int(variant["k"]), sample.steps, one_step_s)


_MOSTLY = 0.5


def _put_prediction(row: _Row, k: int, steps: pd.DataFrame, one_step_s: float) -> None:
    drafting, full = steps[steps["proposed"] > 0], steps[steps["proposed"] == k]
    if full.empty:
        row.note(f"predicted_speedup: no step drafted all {k} tokens")
        return
    if drafting[["draft_s", "verify_s"]].isna().to_numpy().any():
        row.note("predicted_speedup: the steps weren't timed")
        return
    c = (drafting["draft_s"] / drafting["proposed"]).median() / one_step_s
    v = full["verify_s"].median() / one_step_s
    row.values |= {"draft_cost_ratio": c, "verify_cost_ratio": v}
    counts = _acceptance(steps)
    draft_cost, verify_cost = _step_costs(steps, one_step_s)
    row.values["predicted_speedup"] = speedup_from_emitted(
        counts.num_emitted / counts.num_steps, 1, draft_cost=draft_cost, verify_cost=verify_cost
    )
    alpha = iid_acceptance(counts.num_accepted, counts.num_rejections)
    if len(full) < _MOSTLY * len(drafting):
        row.note(f"predicted_speedup_iid: most steps drafted fewer than {k} tokens")
    elif alpha is not None:
        row.values["predicted_speedup_iid"] = predicted_speedup(alpha, k, draft_cost=c, verify_cost=v)


def _step_costs(steps: pd.DataFrame, one_step_s: float) -> tuple[float, float]:
    """What drafting and verifying take in a mean step, in baseline steps.

    Of each number of drafted tokens the median counts, by its share of the steps. A step that drafted nothing
    verifies one token, at the baseline's cost.
    """
    by_length = steps.groupby("proposed")
    shares = by_length.size() / len(steps)
    medians = by_length[["draft_s", "verify_s"]].median() / one_step_s
    medians.loc[medians.index == 0, "verify_s"] = 1.0
    draft_cost, verify_cost = medians.fillna(0.0).mul(shares, axis=0).sum()
    return float(draft_cost), float(verify_cost)
