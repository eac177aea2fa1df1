"""Resampling prompts with replacement: how often each draw takes each of them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt


@lru_cache(maxsize=32)
def resampling_weights(num_units: int, num_resamples: int, seed: int) -> npt.NDArray[np.float64]:
    """How often each resample draws each unit; equal for all figures of one sample size.

    Args:
        num_units: prompts, or batches of prompts.
        num_resamples: draws with replacement.
        seed: of the draws.

    Returns:
        [num_resamples, num_units], shared and read-only; rows sum to `num_units`.
    """
    generator = np.random.default_rng(seed)
    weights = generator.multinomial(num_units, np.full(num_units, 1 / num_units), size=num_resamples)
    shared = weights.astype(np.float64)
    shared.setflags(write=False)
    return shared
