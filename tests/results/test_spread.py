from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from simulated_cells import measured, simulated

from harness.config.simulated import DraftingConfig
from harness.metrics import holm, speedup_interval
from harness.results import Results


def cell(folder: Path, *, repeats: int = 3, **changes: object) -> Results:
    steady = {
        "workload__num_prompts": 12,
        "workload__max_output_tokens": 64,
        "measure__min_repeats": repeats,
        "measure__max_repeats": repeats,
        # all of a draft stands, so that only what is asked for makes a difference
        "simulator__draft_model": DraftingConfig(cost=0.1, alpha=1.0, temperature_effect=0.0),
    }
    return measured(folder, simulated(**(steady | changes)))


def row_of(results: Results, variant_id: str = "draft_model-k5") -> pd.Series:
    return results.spread().set_index("variant_id").loc[variant_id]


def test_noise_of_trials_is_between_repeats(tmp_path: Path) -> None:
    found = row_of(cell(tmp_path, simulator__trial_noise=0.1))
    assert found["time_repeats_sd"] == pytest.approx(0.1, rel=0.35)
    assert found["speedup_repeats_sd"] == pytest.approx(0.1 * np.sqrt(2), rel=0.35)
    assert found["time_prompts_sd"] < 0.08
    assert found["narrowed_by"] == "repeats"
    assert (found["num_prompts"], found["num_repeats"]) == (12, 3)


def test_prompts_that_differ_are_between_prompts(tmp_path: Path) -> None:
    prompts = DraftingConfig(cost=0.1, alpha=0.6, temperature_effect=0.0)
    found = row_of(cell(tmp_path, simulator__draft_model=prompts, simulator__prompt_spread=0.6))
    assert found["time_prompts_sd"] > 2 * found["time_repeats_sd"]
    assert found["speedup_prompts_sd"] == pytest.approx(found["time_prompts_sd"], rel=0.2)
    assert found["narrowed_by"] == "prompts"


def test_drift_is_neither(tmp_path: Path) -> None:
    found = row_of(cell(tmp_path, simulator__drift_per_hour=40.0), "autoregressive")
    assert found["time_drift_sd"] > 5 * found["time_repeats_sd"]
    assert found["time_prompts_sd"] < 0.01
    assert pd.isna(found["speedup_repeats_sd"])


def test_a_ratio_of_neighbours_has_little_of_the_drift(tmp_path: Path) -> None:
    found = row_of(cell(tmp_path, simulator__drift_per_hour=40.0))
    assert found["speedup_drift_sd"] < 0.2 * found["time_drift_sd"]


def test_one_repeat_says_nothing_about_sources(tmp_path: Path) -> None:
    found = row_of(cell(tmp_path, repeats=1, simulator__trial_noise=0.1))
    assert found["time_total_sd"] == pytest.approx(0.1, rel=0.6)
    sources = ["time_prompts_sd", "time_repeats_sd", "speedup_repeats_sd", "narrowed_by"]
    assert found[sources].isna().all()


def test_verdicts_are_corrected_over_the_variants_of_a_cell(synthetic: Results) -> None:
    summary = synthetic.summary()
    drafting = summary[~summary["is_baseline"].astype(bool)]
    for _, own in drafting.groupby("cell_id"):
        assert own["speedup_p_adjusted"].tolist() == pytest.approx(holm(own["speedup_p"].tolist()))
        # alone, an interval misses 1 exactly if its p-value is under 5%
        misses = (own["speedup_low"] > 1) | (own["speedup_high"] < 1)
        assert ((own["speedup_p"] < 0.05) == misses).all()
        judged = own["faster"] != "unclear"
        assert (judged == (own["speedup_p_adjusted"] <= 0.05)).all()
        assert (own.loc[judged, "faster"] == np.where(own.loc[judged, "speedup"] > 1, "yes", "no")).all()
    baselines = summary[summary["is_baseline"].astype(bool)]
    assert baselines[["speedup_p", "faster"]].isna().all(axis=None)


def test_corrected_verdicts_are_seldom_false() -> None:
    rng, false, uncorrected = np.random.default_rng(0), 0, 0
    for _ in range(300):
        baseline_s = rng.lognormal(0, 0.2, 12)
        tokens = np.full(12, 50.0)
        # six variants that are as fast as the baseline they share
        found = [
            speedup_interval(tokens, baseline_s * rng.lognormal(0, 0.2, 12), tokens, baseline_s)
            for _ in range(6)
        ]
        p_values = [one.p_value for one in found if one.p_value is not None]
        uncorrected += min(p_values) <= 0.05
        false += min(holm(p_values)) <= 0.05
    assert uncorrected > 45
    assert false <= 30
