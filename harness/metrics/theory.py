"""What speculative decoding should give, from the acceptance rate and two measured cost ratios.

Notation of Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative Decoding"
(ICML 2023): alpha is the probability that a drafted token stands, k (their gamma) the drafted tokens per
step, c the seconds of one drafted token over those of one target step. They take verifying k + 1 tokens to
cost as much as decoding one; v, the ratio of the two, is measured here, and v = 1 gives their formulas.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq


def expected_emitted(alpha: float, k: int) -> float:
    """Expected tokens of a step when each drafted token stands independently with probability alpha.

    Returns:
        (1 - alpha^(k+1)) / (1 - alpha), between 1 and k + 1; the target's own token is counted.

    Raises:
        ValueError: alpha outside [0, 1] or k negative.

    Source: Leviathan et al. 2023, equation 1.
    """
    _check(alpha, k)
    # The sum of the series: the quotient loses all its digits as alpha comes near 1.
    return float(np.sum(alpha ** np.arange(k + 1)))


def speedup_from_emitted(
    mean_emitted: float, num_draft_tokens: float, *, draft_cost: float, verify_cost: float
) -> float:
    """Predicted speedup of steps whose mean yield is known, without assuming independence.

    Args:
        mean_emitted: tokens a step adds to the output.
        num_draft_tokens: drafted tokens per step (a mean where it varies).
        draft_cost: c, seconds per drafted token over those of a baseline step.
        verify_cost: v, seconds of a verification over those of a baseline step.

    Raises:
        ValueError: the costs don't add up to a positive one.

    Source: Leviathan et al. 2023, theorem 3.8, with its expected number of tokens replaced by the
    measured one and its verification cost of 1 by v.
    """
    cost = num_draft_tokens * draft_cost + verify_cost
    if not cost > 0:
        raise ValueError(f"draft_cost, verify_cost: a step must cost something, got {cost}.")
    return mean_emitted / cost


def predicted_speedup(alpha: float, k: int, *, draft_cost: float, verify_cost: float = 1.0) -> float:
    """Predicted speedup with independent acceptance: expected tokens over (k c + v).

    Source: Leviathan et al. 2023, theorem 3.8.
    """
    return speedup_from_emitted(expected_emitted(alpha, k), k, draft_cost=draft_cost, verify_cost=verify_cost)


def iid_acceptance(num_accepted: int, num_rejections: int) -> float | None:
    """The alpha that makes the observed steps likeliest, were acceptance independent.

    A step accepts a run of tokens and ends in at most one rejection (none when the whole draft stands), so
    each tested token is one Bernoulli trial: alpha = accepted / (accepted + rejections). It differs from the
    acceptance rate, whose denominator also holds the tokens after the rejection, which nobody tested.

    Returns:
        alpha in [0, 1]; None where no drafted token was tested.

    Source: maximum likelihood for the capped geometric law of Leviathan et al. 2023, section 3.1.
    """
    tested = num_accepted + num_rejections
    return num_accepted / tested if tested else None


def break_even_alpha(k: int, *, draft_cost: float, verify_cost: float = 1.0) -> float | None:
    """The alpha at which drafting k tokens neither gains nor loses.

    Returns:
        alpha in [0, 1]; None where even alpha = 1 doesn't pay.

    Source: root of theorem 3.8 of Leviathan et al. 2023 set to 1; with v = 1 it pays iff alpha > c
    for some k (their corollary 3.9).
    """
    cost = k * draft_cost + verify_cost
    if cost > k + 1:
        return None
    if cost <= 1:
        return 0.0
    return float(brentq(lambda alpha: expected_emitted(alpha, k) - cost, 0.0, 1.0))


def optimal_k(
    alpha: float, *, draft_cost: float, verify_cost: Callable[[int], float] | float = 1.0, max_k: int = 32
) -> int:
    """The k with the highest predicted speedup, the smallest on a tie; 0 where drafting doesn't pay.

    Args:
        alpha: probability that a drafted token stands.
        draft_cost: c.
        verify_cost: v, a number or a function of the tokens verified (k + 1).
        max_k: the largest k tried.

    Source: Leviathan et al. 2023, section 3.5 (maximise theorem 3.8 over gamma).
    """
    best_k, best_speedup = 0, 1.0
    for k in range(1, max_k + 1):
        v = verify_cost(k + 1) if callable(verify_cost) else verify_cost
        speedup = predicted_speedup(alpha, k, draft_cost=draft_cost, verify_cost=v)
        if speedup > best_speedup:
            best_k, best_speedup = k, speedup
    return best_k


def _check(alpha: float, k: int) -> None:
    if not 0.0 <= alpha <= 1.0:
        raise ValueError(f"alpha: must lie in [0, 1], got {alpha}.")
    if k < 0:
        raise ValueError(f"k: must be 0 or more, got {k}.")
