"""How long simulated work takes, and what makes it take longer or shorter than it should."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from harness.config.simulated import SimulatorConfig

_CALLS_TO_HALVE = 4


@dataclass(frozen=True, slots=True)
class StepSeconds:
    """The parts of one step of a batch."""

    draft_s: float
    verify_s: float
    overhead_s: float


class Costs:
    """Seconds of one trial's work.

    Args:
        settings: the truth.
        draft_cost: c of the variant's method.
        seed: of the disturbances.
        num_calls_before: of the same variant, which warmed it up.
    """

    def __init__(
        self, settings: SimulatorConfig, *, draft_cost: float, seed: str, num_calls_before: int = 0
    ) -> None:
        """See the class."""
        self._settings, self._draft_cost = settings, draft_cost
        self._random = Random(seed)
        self._of_trial = _log_normal(self._random, settings.trial_noise)
        self._of_trial *= 1 + settings.warming * 0.5 ** (num_calls_before / _CALLS_TO_HALVE)

    def prefill_s(self, num_prompt_tokens: float, *, now_s: float) -> float:
        """Reading the prompts of a batch; the drafter reads them too."""
        tokens_s = num_prompt_tokens * self._settings.prefill_s_per_token
        return tokens_s * (1 + self._draft_cost) * self._disturbance(now_s)

    def step(self, proposed: list[int], *, now_s: float) -> StepSeconds:
        """One step of a batch, in which all sequences wait for each other.

        Args:
            proposed: drafted tokens of each sequence that still decodes.
            now_s: simulated time, which decides the drift.
        """
        settings, disturbance = self._settings, self._disturbance(now_s)
        batch = 1 + settings.batch_slope * (len(proposed) - 1)
        step_s = settings.step_s * disturbance
        return StepSeconds(
            draft_s=step_s * batch * self._draft_cost * max(proposed),
            verify_s=step_s * (batch + settings.verify_slope * sum(proposed)),
            overhead_s=settings.overhead_s * disturbance,
        )

    def _disturbance(self, now_s: float) -> float:
        settings = self._settings
        factor = self._of_trial * (1 + settings.drift_per_hour * now_s / 3600)
        factor *= _log_normal(self._random, settings.step_noise)
        if self._random.random() < settings.outlier_probability:
            factor *= settings.outlier_factor
        return factor


def _log_normal(random: Random, sigma: float) -> float:
    """A factor of mean 1."""
    return random.lognormvariate(-(sigma**2) / 2, sigma)
