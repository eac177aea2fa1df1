"""How likely a drafted token stands: by position, temperature, task and prompt."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from scipy.special import betaincinv

from harness.config.simulated import DraftingConfig


def position_alphas(
    drafting: DraftingConfig, k: int, *, temperature: float, offset: float, spread: float, quantile: float
) -> list[float]:
    """Probability that each drafted token of a prompt stands, those before it having stood.

    Args:
        drafting: of the method.
        k: drafted tokens per step.
        temperature: of sampling.
        offset: what the prompt's task adds.
        spread: see `SimulatorConfig.prompt_spread`.
        quantile: the prompt's place among all prompts, in (0, 1): 0.5 is the median prompt.

    Returns:
        [k] values in [0, 1], whose mean over prompts is the configured alpha less the temperature's
        effect plus the offset, clipped to [0, 1].
    """
    given = drafting.alpha if isinstance(drafting.alpha, list | tuple) else [drafting.alpha]
    shift = offset - drafting.temperature_effect * temperature
    means = [min(1.0, max(0.0, given[min(place, len(given) - 1)] + shift)) for place in range(k)]
    return [spread_out(mean, spread, quantile) for mean in means]


@lru_cache(maxsize=4096)
def spread_out(mean: float, spread: float, quantile: float) -> float:
    """Quantile of the beta distribution with this mean and `spread` times the largest deviation it allows.

    The largest standard deviation a value in [0, 1] of mean m can have is sqrt(m (1 - m)); a beta
    distribution of a + b = 1 / spread^2 - 1 has `spread` times that.
    """
    if spread == 0 or mean in (0.0, 1.0):
        return mean
    weight = 1 / spread**2 - 1
    return float(betaincinv(mean * weight, (1 - mean) * weight, quantile))


def num_standing(alphas: Sequence[float], draws: Sequence[float]) -> int:
    """Drafted tokens that stand: those before the first whose draw reaches its alpha.

    Args:
        alphas: [k] see `position_alphas`.
        draws: [num_proposed] uniform in [0, 1), at most k.
    """
    for place, draw in enumerate(draws):
        if draw >= alphas[place]:
            return place
    return len(draws)
