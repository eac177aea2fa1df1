"""Configuration of the simulator."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class DraftingConfig:
    """How one method drafts in the simulator.

    Attributes:
        cost: c, seconds of one drafted token over those of a target step.
        alpha: probability that a drafted token stands, those before it having stood: one number, or one per
            position, whose last counts for all further ones.
        temperature_effect: what alpha loses per unit of temperature.
        empty: probability that a step drafts nothing, as where no n-gram matches.
    """

    cost: float = 0.1
    alpha: Any = 0.7
    temperature_effect: float = 0.1
    empty: float = 0.0


@dataclass
class TaskConfig:
    """A task whose drafts stand more or less often than others in the simulator.

    Attributes:
        name: of the task, as the workload gives it.
        alpha_offset: what to add to every alpha.
    """

    name: str = "???"
    alpha_offset: float = 0.0


@dataclass
class FailureConfig:
    """Something that goes wrong in the simulator, on demand.

    Attributes:
        variant: name of the variant that fails, such as `draft_model-k3`; null fails loading the target.
        call: which of its decode calls in a cell fails, counted from 0 with warmup; null fails preparing it.
        out_of_memory: whether memory ran out; else the engine crashed.
    """

    variant: str | None = None
    call: int | None = None
    out_of_memory: bool = False


@dataclass
class SimulatorConfig:
    """What the simulator takes for the truth; docs/simulator.md has the formulas.

    Attributes:
        step_s: seconds of one target step of one sequence.
        verify_slope: what each drafted token to verify adds to a step, as a share of it.
        batch_slope: what each further sequence of a batch adds to a step, as a share of it.
        prefill_s_per_token: seconds per token of the prompt.
        overhead_s: seconds of a step outside drafting and verifying.
        load_s: seconds of loading the target.
        first_call_s: seconds that the first decode call of a variant takes longer.
        draft_model: how the draft model drafts.
        ngram: how prompt lookup drafts.
        tasks: those whose alpha differs from the others'.
        prompt_spread: standard deviation of alpha between prompts, over the largest there can be; up to 0.9.
        eos_probability: probability that an output token ends the sequence.
        step_noise: sigma of each step's log-normal factor, of mean 1.
        trial_noise: sigma of the factor that all steps of a trial share.
        drift_per_hour: what every hour of simulated time adds to all seconds, as a share of the first ones.
        outlier_probability: how likely a step is an outlier.
        outlier_factor: how many times longer an outlier takes.
        warming: what a variant's first call takes longer, as a share; every four calls halve the excess.
        prefix_cache: share of a prompt's prefill that is saved once the session has read the prompt.
        carry_over: what alpha gains on a prompt that the same variant has decoded before.
        alpha_drift_per_hour: what every hour of simulated time adds to alpha.
        failures: what goes wrong.
        seed: which prompts there are: their greedy outputs and their alphas. `measure.seed` draws the rest.
    """

    step_s: float = 0.02
    verify_slope: float = 0.02
    batch_slope: float = 0.02
    prefill_s_per_token: float = 0.0005
    overhead_s: float = 0.0
    load_s: float = 1.0
    first_call_s: float = 0.0
    draft_model: DraftingConfig = field(default_factory=DraftingConfig)
    ngram: DraftingConfig = field(default_factory=lambda: DraftingConfig(cost=0.002, alpha=0.6, empty=0.5))
    tasks: list[TaskConfig] = field(default_factory=list)
    prompt_spread: float = 0.0
    eos_probability: float = 0.0
    step_noise: float = 0.0
    trial_noise: float = 0.0
    drift_per_hour: float = 0.0
    outlier_probability: float = 0.0
    outlier_factor: float = 10.0
    warming: float = 0.0
    prefix_cache: float = 0.0
    carry_over: float = 0.0
    alpha_drift_per_hour: float = 0.0
    failures: list[FailureConfig] = field(default_factory=list)
    seed: int = 0
