from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
import torch
from engine.exact_distribution import chi_square_p

from harness.engine.sampling import SamplingParams, draw, probabilities
from harness.engine.verify import Proposal, Verdict, verify_greedy, verify_sampled

NUM_TRIALS = 4000
PLAIN = SamplingParams(1.0)
Rows = npt.NDArray[np.float64]


def random_rows(seed: int, num_rows: int, width: int) -> torch.Tensor:
    logits = torch.randn(num_rows, width, generator=torch.Generator().manual_seed(seed))
    return (1.5 * logits).softmax(-1)


def exact_outcomes(target: Rows, draft: Rows) -> dict[tuple[int, ...], float]:
    """Probability of every (accepted drafts..., next token), from the definition of speculative sampling.

    Drafts are independent here, so an accepted x weighs min(p(x), q(x)); the mass that drafting y too
    rarely leaves over, max(p(y) - q(y), 0), is what a rejection followed by y weighs.
    """
    outcomes: dict[tuple[int, ...], float] = {}

    def extend(accepted: tuple[int, ...], weight: float) -> None:
        row = len(accepted)
        last = row == len(draft)
        final = target[row] if last else np.maximum(target[row] - draft[row], 0.0)
        for token, mass in enumerate(final):
            outcomes[*accepted, token] = outcomes.get((*accepted, token), 0.0)
            # the same tokens may come out with another number of accepted ones: kept apart by the sign
            outcomes[*accepted, token] += weight * mass
        if not last:
            for token, mass in enumerate(np.minimum(target[row], draft[row])):
                extend((*accepted, token), weight * mass)

    extend((), 1.0)
    return outcomes
