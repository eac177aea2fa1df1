"""vLLM's per-request counts and the engine's outputs, put together into the steps of one sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.errors import MeasurementError
from harness.records import Steps


@dataclass(frozen=True, slots=True)
class Arrival:
    """Tokens of one sequence that one engine step brought.

    Attributes:
        at_s: the engine's monotonic clock when they were ready.
        num_tokens: how many reached the output.
        drafted: whether the step verified drafts of this sequence; None where only the whole batch is known.
    """

    at_s: float
    num_tokens: int
    drafted: bool | None


def steps_of(
    arrivals: Sequence[Arrival], *, per_step_drafted: Sequence[int], per_step_accepted: Sequence[int]
) -> Steps:
    """One entry per engine step after the prefill, those that drafted nothing included.

    vLLM lists the steps that drafted; those that didn't, as where no n-gram matched, brought one token each.
    In a batch where only some sequences drafted, a step of one token may be either: then the earliest place
    that fits is taken, which moves no count. The engine drafts for the next step inside a step, so the two
    can't be timed apart.

    Args:
        arrivals: everything that came, the prefill's token first.
        per_step_drafted: drafted tokens of each step that drafted.
        per_step_accepted: accepted ones, before the end token or the limit cut the last step.

    Raises:
        MeasurementError: the two records contradict each other.
    """
    steps = Steps()
    decoding = arrivals[1:]
    known = all(arrival.drafted is not None for arrival in decoding)
    taken = 0
    for place, arrival in enumerate(decoding):
        is_last = place == len(decoding) - 1
        left = len(per_step_drafted) - taken
        if left and _drafted(arrival, per_step_accepted[taken], known=known, is_last=is_last):
            proposed, accepted = per_step_drafted[taken], per_step_accepted[taken]
            taken += 1
        else:
            proposed = accepted = 0
        fits = arrival.num_tokens == accepted + 1 or (is_last and arrival.num_tokens < accepted + 1)
        if not fits or accepted > proposed:
            raise MeasurementError(
                f"vLLM's records disagree at step {place}: {arrival.num_tokens} tokens came, "
                f"{accepted} of {proposed} drafted ones were accepted."
            )
        previous = arrivals[place].at_s
        steps.add_untimed(
            proposed=proposed, accepted=accepted, emitted=arrival.num_tokens, step_s=arrival.at_s - previous
        )
    if taken != len(per_step_drafted):
        raise MeasurementError(
            f"vLLM counted {len(per_step_drafted)} steps that drafted, {taken} of them were seen."
        )
    return steps


def is_truncated(steps: Steps) -> bool:
    """Whether the last step let fewer tokens out than stood."""
    return bool(steps.emitted) and steps.emitted[-1] < steps.accepted[-1] + 1


def _drafted(arrival: Arrival, accepted: int, *, known: bool, is_last: bool) -> bool:
    if known:
        return bool(arrival.drafted)
    return is_last or arrival.num_tokens == accepted + 1
