#!/usr/bin/env python
"""How often do the 95% intervals hold the truth?

Draws experiments from the simulator, under each kind of disturbance it knows, and counts how many of their
intervals hold the figure that all experiments together have. Prompts differ in every experiment.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.backends.base import DecodingSettings, SequenceRequest
from harness.backends.simulator.backend import SimulatorSession
from harness.config.simulated import DraftingConfig, SimulatorConfig
from harness.metrics import Interval, proportion_interval, ratio_interval, speedup_interval
from harness.records import Decoded, Variant

Array = npt.NDArray[np.float64]

KINDS: Mapping[str, Mapping[str, Any]] = {
    "independent noise": {"step_noise": 0.3, "trial_noise": 0.1},
    "drift": {"step_noise": 0.1, "drift_per_hour": 40.0},
    "outliers": {"step_noise": 0.1, "outlier_probability": 0.01},
    "spread of prompts": {"step_noise": 0.1, "prompt_spread": 0.4},
    "all together": {
        "step_noise": 0.1,
        "trial_noise": 0.1,
        "drift_per_hour": 40.0,
        "outlier_probability": 0.003,
        "prompt_spread": 0.3,
        "eos_probability": 0.01,
    },
}
VARIANTS = (Variant("autoregressive"), Variant("draft_model", 4, "drafter"))
_SETTINGS = DecodingSettings(1.0, 0, 1.0, frozenset({2}), 512)


@dataclass(frozen=True)
class Experiments:
    """Sums by prompt, [num_experiments, num_prompts]: of the variant, and of its baseline."""

    tokens: Array
    seconds: Array
    baseline_tokens: Array
    baseline_s: Array
    accepted: Array
    proposed: Array

    def first(self, num_prompts: int) -> Experiments:
        """The same experiments, had they had fewer prompts."""
        return Experiments(*(getattr(self, name)[:, :num_prompts] for name in self.__dataclass_fields__))


def draw(kind: str, *, num_experiments: int, num_prompts: int, output_tokens: int = 48) -> Experiments:
    """Simulate experiments of one kind; every prompt of each is another."""
    rows = [_experiment(kind, number, num_prompts, output_tokens) for number in range(num_experiments)]
    return Experiments(*np.moveaxis(np.asarray(rows, dtype=np.float64), 2, 0))


def _experiment(kind: str, number: int, num_prompts: int, output_tokens: int) -> list[list[float]]:
    drafting = DraftingConfig(cost=0.1, alpha=0.7, temperature_effect=0.0)
    session = SimulatorSession(SimulatorConfig(draft_model=drafting, seed=number, **KINDS[kind]))
    for variant in VARIANTS:
        session.prepare(variant, None, _SETTINGS)
    order = np.random.default_rng(number)
    rows = []
    for prompt in range(num_prompts):
        found: dict[str, Decoded] = {}
        for index in order.permutation(len(VARIANTS)):
            seed = (number * num_prompts + prompt) * len(VARIANTS) + int(index)
            request = SequenceRequest((number, prompt), output_tokens, seed)
            found[VARIANTS[index].method] = session.decode(VARIANTS[index], [request], _SETTINGS)[0]
        rows.append(_sums(found["draft_model"], found["autoregressive"]))
    return rows


def _sums(variant: Decoded, baseline: Decoded) -> list[float]:
    assert variant.steps is not None
    return [
        len(variant.tokens) - 1,
        variant.decode_s,
        len(baseline.tokens) - 1,
        baseline.decode_s,
        sum(variant.steps.accepted),
        sum(variant.steps.proposed),
    ]


FIGURES: Mapping[str, tuple[Callable[..., Interval], Sequence[str]]] = {
    "speedup": (speedup_interval, ("tokens", "seconds", "baseline_tokens", "baseline_s")),
    "tokens per second": (ratio_interval, ("tokens", "seconds")),
    "acceptance": (proportion_interval, ("accepted", "proposed")),
}


def coverage(
    experiments: Experiments, interval: Callable[..., Interval], names: Sequence[str], truth: float
) -> tuple[float, float]:
    """Share of the experiments whose interval holds the truth, and the median relative half-width."""
    columns = [getattr(experiments, name) for name in names]
    found = [interval(*(column[i] for column in columns)) for i in range(len(columns[0]))]
    known = [one for one in found if one.low is not None and one.high is not None]
    held = [one.low <= truth <= one.high for one in known]
    return float(np.mean(held)), float(np.median([one.relative_half_width or 0.0 for one in known]))


def truth_of(experiments: Experiments, interval: Callable[..., Interval], names: Sequence[str]) -> float:
    """The figure of all prompts of all experiments together: the population, near enough."""
    estimate = interval(*(getattr(experiments, name).ravel() for name in names)).estimate
    assert estimate is not None
    return estimate


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--experiments", type=int, default=1000, help="of each kind (default: %(default)s)")
    parser.add_argument(
        "--prompts", type=int, nargs="+", default=[8, 16, 32], help="of an experiment (default: 8 16 32)"
    )
    options = parser.parse_args()
    print(f"{options.experiments} experiments of each kind, nominal coverage 95%")
    print(f"{'disturbance':20s} {'figure':18s} {'prompts':>8s} {'coverage':>9s} {'half-width':>11s}")
    started, inside, total = time.monotonic(), 0, 0
    for kind in KINDS:
        drawn = draw(kind, num_experiments=options.experiments, num_prompts=max(options.prompts))
        for figure, (interval, names) in FIGURES.items():
            for num_prompts in options.prompts:
                own = drawn.first(num_prompts)
                share, width = coverage(own, interval, names, truth_of(own, interval, names))
                inside, total = inside + (0.93 <= share <= 0.97), total + 1
                print(f"{kind:20s} {figure:18s} {num_prompts:8d} {share:9.1%} {width:11.1%}", flush=True)
    print(f"{inside} of {total} between 93% and 97%; {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
