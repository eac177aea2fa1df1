"""From an engine's answer to decoded sequences, once its records agree with each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.backends.vllm.steps import Arrival, is_truncated, steps_of
from harness.errors import MeasurementError
from harness.records import Decoded, FinishReason, Steps


def decoded_sequences(answer: Mapping[str, Any], *, eos_ids: frozenset[int]) -> list[Decoded]:
    """The sequences of a batch, in order.

    Args:
        answer: what the engine's process says of a batch: `sequences`, `core_steps`, `counted`, `start_s`.
        eos_ids: ids that end a sequence.

    Raises:
        MeasurementError: per-request figures, counters and outputs don't add up to each other.
    """
    _check_counters(answer)
    arrivals = _arrivals(answer["core_steps"], [one["request_id"] for one in answer["sequences"]])
    return [
        _decoded(one, found, start_s=answer["start_s"], eos_ids=eos_ids)
        for one, found in zip(answer["sequences"], arrivals, strict=True)
    ]


def _check_counters(answer: Mapping[str, Any]) -> None:
    drafted = [one["per_step_drafted"] for one in answer["sequences"]]
    accepted = [one["per_step_accepted"] for one in answer["sequences"]]
    told = {
        "drafts": sum(map(len, drafted)),
        "proposed": sum(map(sum, drafted)),
        "accepted": sum(map(sum, accepted)),
    }
    if told != answer["counted"]:
        raise MeasurementError(
            f"vLLM's counters moved by {answer['counted']}, its requests add up to {told}. "
            "Something else ran on the engine, or this release counts otherwise."
        )


def _arrivals(core_steps: Sequence[Mapping[str, Any]], request_ids: Sequence[str]) -> list[list[Arrival]]:
    """Per sequence, what each engine step brought it."""
    found: dict[str, list[Arrival]] = {name: [] for name in request_ids}
    for step in core_steps:
        decoding = sum(bool(found[_external(name, found)]) for name, _ in step["arrived"])
        for name, num_tokens in step["arrived"]:
            own = found[_external(name, found)]
            drafted: bool | None = None
            if not own or step["num_drafts"] == 0:
                drafted = False
            elif step["num_drafts"] == decoding:
                drafted = True
            own.append(Arrival(step["at_s"], num_tokens, drafted))
    return list(found.values())


def _external(name: str, known: Mapping[str, Any]) -> str:
    """The request's own id: the engine's core adds a random end to it."""
    external = name if name in known else name.rpartition("-")[0]
    if external not in known:
        raise MeasurementError(f"vLLM put out tokens of an unknown request {name!r}.")
    return external


def _decoded(
    sequence: Mapping[str, Any], arrivals: Sequence[Arrival], *, start_s: float, eos_ids: frozenset[int]
) -> Decoded:
    tokens = sequence["tokens"]
    brought = sum(arrival.num_tokens for arrival in arrivals)
    if not tokens or brought != len(tokens):
        raise MeasurementError(f"vLLM's steps brought {brought} tokens, the output has {len(tokens)}.")
    steps: Steps = steps_of(
        arrivals,
        per_step_drafted=sequence["per_step_drafted"],
        per_step_accepted=sequence["per_step_accepted"],
    )
    first_s, last_s = sequence["first_token_s"], sequence["last_token_s"]
    return Decoded(
        tokens=tokens,
        finish_reason=FinishReason.EOS if tokens[-1] in eos_ids else FinishReason.LENGTH,
        ttft_s=first_s - start_s,
        decode_s=last_s - first_s,
        total_s=last_s - start_s,
        num_target_forwards=len(arrivals),
        steps=steps,
        last_step_truncated=is_truncated(steps),
    )
