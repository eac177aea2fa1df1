"""Each rule finds what the simulator was told to do wrong, and nothing where it wasn't."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from report_scenes import cells_of, edit_observations, edit_record, set_facts
from simulated_cells import measured, simulated

from harness.config.simulated import DraftingConfig, FailureConfig, TaskConfig
from harness.findings import RULES, Confidence, Finding, Topic, find
from harness.results import Results, load

Edit = Callable[[list[Path]], None]


@dataclass(frozen=True)
class Seed:
    """A truth that a rule must see: cells, and edits to what they stored."""

    changes: tuple[dict[str, Any], ...]
    edit: Edit | None = None
    confidence: Confidence | None = None


def drafting(**values: Any) -> DraftingConfig:
    return DraftingConfig(**({"cost": 0.1, "alpha": 0.75, "temperature_effect": 0.0} | values))


def cell(**changes: Any) -> dict[str, Any]:
    """A healthy cell with a little noise, ten prompts of ten tasks, two repeats."""
    healthy = {
        "method__k": [2, 4],
        "workload__num_prompts": 10,
        "workload__max_output_tokens": 64,
        "measure__min_repeats": 2,
        "measure__max_repeats": 2,
        "simulator__draft_model": drafting(),
        "simulator__step_noise": 0.03,
        "simulator__trial_noise": 0.01,
        "simulator__prefill_s_per_token": 0.0001,
    }
    return healthy | changes


def machine(**facts: Any) -> Edit:
    """What the runner would have stored of the machine."""
    quiet = {
        "other_cpu_share": 0.01,
        "steal_share": 0.0,
        "swapped_bytes": 0,
        "throttle_events": 0,
        "cpu_clock_mhz_before": 3000.0,
        "cpu_clock_mhz_after": 2990.0,
        "gpu_other_processes": 0,
        "gpu_use_before": 0.0,
        "gpu_throttle_reason": None,
    }

    def edit(cells: list[Path]) -> None:
        for one in cells:
            edit_record(one, lambda record: record["environment"].update(while_measuring=quiet | facts))

    return edit


def warmup_on_a_measured_prompt(cells: list[Path]) -> None:
    def rename(row: dict[str, Any]) -> dict[str, Any]:
        return row | ({"prompt_id": "both"} if row["block"] == 0 else {})

    edit_observations(cells[0], rename)


def other_text(cells: list[Path]) -> None:
    def shift(row: dict[str, Any]) -> dict[str, Any]:
        drafts = row["variant_id"] != "autoregressive"
        return row | {"output_tokens": [(t + drafts) % 1000 for t in row["output_tokens"]]}

    edit_observations(cells[0], shift)


def read_long_prompts(cells: list[Path]) -> None:
    edit_observations(cells[0], lambda row: row | {"num_prompt_tokens": 5000})


def stuck(cells: list[Path]) -> None:
    edit_observations(cells[0], lambda row: row | {"output_tokens": [7] * len(row["output_tokens"])})


def changes_output(cells: list[Path]) -> None:
    """The larger k, which is the faster, says that it isn't lossless."""

    def change(record: dict[str, Any]) -> None:
        record["variants"][2]["lossless"] = False

    edit_record(cells[0], change)


def quantised(cells: list[Path]) -> None:
    for one in cells:
        alpha = load(one).cells["simulator.draft_model.alpha"].iloc[0]
        edit_record(one, lambda record: record["facts"].pop("simulator"))
        set_facts(one, drafter_quantization="none" if alpha > 0.7 else "int4")


SEEDS = {
    "out_of_memory": Seed(
        (cell(simulator__failures=[FailureConfig("draft_model-k4", out_of_memory=True)]),),
        confidence=Confidence.COUNTED,
    ),
    "different_text": Seed((cell(),), other_text, Confidence.COUNTED),
    "changed_output": Seed((cell(),), changes_output, Confidence.COUNTED),
    "stuck_output": Seed((cell(),), stuck, Confidence.COUNTED),
    "mismatched_pair": Seed(
        (cell(simulator__draft_model=drafting(alpha=0.01)),), confidence=Confidence.CLEAR
    ),
    "wrong_pair": Seed((cell(simulator__draft_model=drafting(alpha=0.15)),), confidence=Confidence.CLEAR),
    "weak_pair": Seed((cell(simulator__draft_model=drafting(alpha=0.4)),), confidence=Confidence.CLEAR),
    "little_to_look_up": Seed((cell(method__name="ngram", simulator__ngram=drafting(empty=0.8)),)),
    "hot_sampling": Seed(
        tuple(
            cell(sampling__temperature=t, simulator__draft_model=drafting(temperature_effect=0.3))
            for t in (0.0, 1.0)
        ),
        confidence=Confidence.CLEAR,
    ),
    "quantised_drafter": Seed(
        (cell(), cell(simulator__draft_model=drafting(alpha=0.6))), quantised, Confidence.CLEAR
    ),
    "hard_task": Seed(
        (
            cell(
                workload__num_prompts=None,
                measure__max_repeats=1,
                measure__min_repeats=1,
                simulator__tasks=[TaskConfig("code", -0.5)],
            ),
        )
    ),
    "k_past_optimum": Seed((cell(method__k=[2, 4, 16]),), confidence=Confidence.CLEAR),
    "k_range_too_short": Seed(
        (cell(method__k=[1, 2, 4], simulator__draft_model=drafting(alpha=0.97, cost=0.01)),),
        confidence=Confidence.CLEAR,
    ),
    "large_batch": Seed(
        tuple(
            cell(batch_size=size, workload__num_prompts=32, simulator__verify_slope=0.15) for size in (1, 16)
        ),
    ),
    "short_outputs": Seed((cell(workload__max_output_tokens=20, simulator__prefill_s_per_token=0.005),)),
    "long_prompts": Seed((cell(simulator__prefill_s_per_token=0.05),), read_long_prompts),
    "slow_drafter": Seed((cell(simulator__draft_model=drafting(cost=0.5)),)),
    "slow_verification": Seed((cell(simulator__verify_slope=0.5),)),
    "engine_overhead": Seed((cell(simulator__overhead_s=0.01),), confidence=Confidence.COUNTED),
    "falling_acceptance": Seed((cell(simulator__alpha_drift_per_hour=-20.0),)),
    "shared_memory": Seed((cell(simulator__carry_over=0.2),), confidence=Confidence.CLEAR),
    "measured_warmup_prompts": Seed((cell(),), warmup_on_a_measured_prompt, Confidence.COUNTED),
    "prefix_cache": Seed((cell(simulator__prefix_cache=0.9),), confidence=Confidence.CLEAR),
    "short_warmup": Seed((cell(simulator__warming=1.0),), confidence=Confidence.CLEAR),
    "baseline_drift": Seed((cell(simulator__drift_per_hour=20.0),), confidence=Confidence.CLEAR),
    "noisy_cell": Seed((cell(simulator__trial_noise=0.15),)),
    "outliers": Seed((cell(simulator__outlier_probability=0.003, simulator__outlier_factor=100.0),)),
    "busy_cpu": Seed((cell(),), machine(other_cpu_share=0.4), Confidence.COUNTED),
    "stolen_cpu": Seed((cell(),), machine(steal_share=0.1), Confidence.COUNTED),
    "throttled_clock": Seed((cell(),), machine(cpu_clock_mhz_after=2000.0), Confidence.LIKELY),
    "swapping": Seed((cell(),), machine(swapped_bytes=50 * 2**20), Confidence.COUNTED),
    "busy_gpu": Seed((cell(),), machine(gpu_other_processes=2), Confidence.COUNTED),
}


def seeded(folder: Path, seed: Seed) -> Results:
    results = measured(folder, *(simulated(**changes) for changes in seed.changes))
    if seed.edit is not None:
        seed.edit(cells_of(results.path))
    return load(results.path)


def names(found: list[Finding]) -> set[str]:
    return {one.rule.name for one in found}


def test_there_is_a_seed_for_every_rule() -> None:
    assert set(SEEDS) == {rule.name for rule in RULES}
    assert len({rule.name for rule in RULES}) == len(RULES)


@pytest.mark.parametrize("name", list(SEEDS))
def test_a_rule_fires_where_its_trouble_was_seeded(name: str, tmp_path: Path) -> None:
    seed = SEEDS[name]
    found = [one for one in find(seeded(tmp_path, seed)) if one.rule.name == name]
    assert found
    if seed.confidence is not None:
        assert {one.sighting.confidence for one in found} == {seed.confidence}
    for one in found:
        assert one.sighting.text.endswith(".")
        assert one.sighting.figures
        assert one.next_step.endswith(".")
        assert one.rule.threshold


@pytest.mark.parametrize("noise", [0.01, 0.03])
def test_a_healthy_cell_gives_no_finding(noise: float, tmp_path: Path) -> None:
    for number in range(3):
        healthy = cell(
            simulator__trial_noise=noise,
            simulator__prompt_spread=0.1,
            simulator__seed=number,
            measure__seed=number,
        )
        results = seeded(tmp_path / str(number), Seed((healthy,), machine()))
        assert names(find(results)) == set()


def test_seeds_of_speculation_raise_no_doubt_about_the_measurement(tmp_path: Path) -> None:
    for number, name in enumerate(("wrong_pair", "k_past_optimum", "slow_drafter", "hard_task")):
        found = find(seeded(tmp_path / str(number), SEEDS[name]))
        assert {one.rule.topic for one in found} == {Topic.SPECULATION}


def test_without_steps_and_machine_the_rules_stay_silent(tmp_path: Path) -> None:
    def forget(row: dict[str, Any]) -> dict[str, Any]:
        return row | {name: None for name in row if name.startswith("step_")}

    results = measured(tmp_path, simulated(**cell(simulator__draft_model=drafting(alpha=0.1))))
    edit_observations(cells_of(results.path)[0], forget)
    assert names(find(load(results.path))) <= {"k_past_optimum"}


def test_confidence_follows_the_interval(tmp_path: Path) -> None:
    few = cell(
        simulator__draft_model=drafting(alpha=0.28),
        simulator__prompt_spread=0.3,
        workload__num_prompts=4,
        workload__max_output_tokens=24,
        measure__max_repeats=1,
        measure__min_repeats=1,
    )
    (found,) = [
        one for one in find(seeded(tmp_path, Seed((few,)))) if one.rule.name in ("wrong_pair", "weak_pair")
    ]
    figures = found.sighting.figures
    assert isinstance(figures["alpha_high"], float)
    limit = 0.3 if found.rule.name == "wrong_pair" else 0.5
    assert found.sighting.confidence == (
        Confidence.CLEAR if figures["alpha_high"] < limit else Confidence.LIKELY
    )
