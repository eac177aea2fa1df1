"""How many drafted tokens stood, counted over the steps of many sequences.

`accepted` is what the target accepted before EOS or the output limit cut the sequence, and never counts
the target's own token: a cut last step doesn't lower acceptance. `emitted` is what reached the output after
the cut, the target's own token included: figures about the length of the output use it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Sums over steps and the rates that follow from them; a rate without a denominator is None.

    Attributes:
        num_steps: verification steps, those that drafted nothing included.
        num_drafting_steps: steps with at least one drafted token.
        num_empty_steps: steps that drafted nothing; they still emit the target's own token.
        num_rejections: drafting steps in which a drafted token was refused (one per step at most).
        num_proposed: drafted tokens.
        num_accepted: drafted tokens that the target accepted.
        num_emitted: tokens that reached the output.
    """

    num_steps: int
    num_drafting_steps: int
    num_empty_steps: int
    num_rejections: int
    num_proposed: int
    num_accepted: int
    num_emitted: int

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted over proposed tokens, so that long drafts weigh more."""
        return _ratio(self.num_accepted, self.num_proposed)

    @property
    def mean_emitted_per_step(self) -> float | None:
        """Tokens that reached the output per step, the target's own included, over all steps."""
        return _ratio(self.num_emitted, self.num_steps)

    @property
    def mean_accepted_per_drafting_step(self) -> float | None:
        """Accepted drafted tokens per step that drafted, without the target's own token."""
        return _ratio(self.num_accepted, self.num_drafting_steps)

    @property
    def mean_proposed_per_step(self) -> float | None:
        """Drafted tokens per step, over all steps."""
        return _ratio(self.num_proposed, self.num_steps)


@dataclass(frozen=True, slots=True)
class PositionRates:
    """Acceptance by place in the draft; entry 0 is the first drafted token. NaN where nothing was counted.

    Attributes:
        marginal: accepted at i, over steps whose draft has a token at i.
        conditional: accepted at i, over those of them whose tokens before i were all accepted.
        num_steps: denominators of `marginal`.
        num_reached: denominators of `conditional`.
    """

    marginal: FloatArray
    conditional: FloatArray
    num_steps: IntArray
    num_reached: IntArray


def summarise_steps(proposed: npt.ArrayLike, accepted: npt.ArrayLike, emitted: npt.ArrayLike) -> Acceptance:
    """Count tokens and steps.

    Args:
        proposed: [num_steps] drafted tokens, of all sequences one after the other.
        accepted: [num_steps] accepted drafted tokens, at most `proposed`.
        emitted: [num_steps] tokens that reached the output.

    Raises:
        ValueError: the lengths differ, or a step accepted more than it drafted.
    """
    drafted, stood, out = _counts(proposed), _counts(accepted), _counts(emitted)
    _check(drafted, stood)
    if out.shape != drafted.shape:
        raise ValueError(f"emitted: needs {drafted.size} steps as proposed has, got {out.size}.")
    drafting = int(np.count_nonzero(drafted))
    return Acceptance(
        num_steps=drafted.size,
        num_drafting_steps=drafting,
        num_empty_steps=drafted.size - drafting,
        num_rejections=int(np.count_nonzero(stood < drafted)),
        num_proposed=int(drafted.sum()),
        num_accepted=int(stood.sum()),
        num_emitted=int(out.sum()),
    )


def position_rates(proposed: npt.ArrayLike, accepted: npt.ArrayLike) -> PositionRates:
    """Acceptance by position, marginal and conditional.

    A step that drafted fewer than i tokens is in neither denominator of position i, so that short drafts
    (n-gram matches, a step near the limit) don't read as rejections.

    Args:
        proposed: [num_steps] drafted tokens.
        accepted: [num_steps] accepted drafted tokens.

    Returns:
        Arrays of length max(proposed).

    Raises:
        ValueError: the lengths differ, or a step accepted more than it drafted.
    """
    drafted, stood = _counts(proposed), _counts(accepted)
    _check(drafted, stood)
    depth = int(drafted.max(initial=0))
    # A step stops at its first rejection: it reaches one place past what it accepted, if it drafted that far.
    drafted_at = _at_least(drafted, depth)
    accepted_at = _at_least(stood, depth)
    reached = _at_least(np.minimum(stood + 1, drafted), depth)
    return PositionRates(_divide(accepted_at, drafted_at), _divide(accepted_at, reached), drafted_at, reached)


def tokens_per_target_forward(num_output_tokens: int, num_target_forwards: int) -> float | None:
    """Output tokens per forward of the target, prefill included on both sides.

    It leaves out what drafting and verifying cost, so it is not a speedup.
    """
    return _ratio(num_output_tokens, num_target_forwards)


def _counts(values: npt.ArrayLike) -> IntArray:
    return np.asarray(values, dtype=np.int64).ravel()


def _check(proposed: IntArray, accepted: IntArray) -> None:
    if proposed.shape != accepted.shape:
        raise ValueError(f"accepted: needs {proposed.size} steps as proposed has, got {accepted.size}.")
    if np.any(accepted > proposed) or np.any(accepted < 0):
        step = int(np.flatnonzero((accepted > proposed) | (accepted < 0))[0])
        raise ValueError(
            f"accepted[{step}]: must lie between 0 and proposed ({proposed[step]}), got {accepted[step]}."
        )


def _at_least(values: IntArray, depth: int) -> IntArray:
    """How many values are at least 1, 2, ..., depth."""
    histogram = np.bincount(values, minlength=depth + 1)
    return histogram[::-1].cumsum()[::-1][1 : depth + 1].astype(np.int64)


def _divide(numerator: IntArray, denominator: IntArray) -> FloatArray:
    out = np.full(numerator.shape, np.nan)
    np.divide(numerator, denominator, out=out, where=denominator > 0)
    return out


def _ratio(numerator: int, denominator: int) -> float | None:
    return numerator / denominator if denominator else None
