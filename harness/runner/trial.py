"""One variant decodes one block: the smallest thing that is timed."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

from harness.backends.base import SequenceRequest, Session
from harness.errors import MeasurementError
from harness.records import Decoded, Observation, Phase, Status, Variant
from harness.runner.plan import CellPlan, EncodedPrompt
from harness.runner.schedule import Block, sequence_seed


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Keep Python's collector from running inside a timing; it runs before instead."""
    gc.collect(1)
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def run_trial(
    session: Session, plan: CellPlan, variant: Variant, block: Block, *, phase: Phase, epoch: float
) -> list[Observation]:
    """Decode a block with one variant and time it.

    Args:
        session: with the variant prepared.
        plan: the cell.
        variant: what decodes.
        block: what is decoded.
        phase: whether it counts.
        epoch: reading of the session's clock that `started_s` counts from.

    Raises:
        MeasurementError: the backend returned another number of sequences, or an empty one.
    """
    seed = plan.config.measure.seed
    requests = [
        SequenceRequest(p.tokens, p.max_new_tokens, sequence_seed(seed, variant, p, block.repeat), p.task)
        for p in block.prompts
    ]
    # simulated time doesn't pass while Python collects
    with nullcontext() if plan.backend.is_simulated else no_garbage_collection():
        start = session.clock()
        decoded = session.decode(variant, requests, plan.decoding)
        seconds = session.clock() - start
    if len(decoded) != len(requests) or any(not sequence.tokens for sequence in decoded):
        raise MeasurementError(
            f"{variant.variant_id}: asked for {len(requests)} sequences, got "
            f"{[len(sequence.tokens) for sequence in decoded]} tokens."
        )
    memory = session.peak_memory_bytes()
    observations = []
    for prompt, request, sequence in zip(block.prompts, requests, decoded, strict=True):
        row = _blank(plan, variant, block, prompt, phase=phase, seed=request.seed, status=Status.OK)
        row.started_s, row.trial_s, row.peak_memory_bytes = start - epoch, seconds, memory
        _fill(row, sequence)
        observations.append(row)
    return observations


def unmeasured(
    plan: CellPlan, variant: Variant, block: Block, *, phase: Phase, status: Status, error: str
) -> list[Observation]:
    """Rows that say why a trial has no numbers."""
    rows = []
    for prompt in block.prompts:
        seed = sequence_seed(plan.config.measure.seed, variant, prompt, block.repeat)
        row = _blank(plan, variant, block, prompt, phase=phase, seed=seed, status=status)
        row.error = error
        rows.append(row)
    return rows


def warmup_blocks(plan: CellPlan, variants: Sequence[Variant]) -> Iterator[Block]:
    """One block per warmup prompt, variants in the order given."""
    for number, prompt in enumerate(plan.warmup):
        yield Block(
            number=number, repeat=0, prompts=(prompt,) * plan.config.batch_size, order=tuple(variants)
        )


def _blank(
    plan: CellPlan,
    variant: Variant,
    block: Block,
    prompt: EncodedPrompt,
    *,
    phase: Phase,
    seed: int,
    status: Status,
) -> Observation:
    return Observation(
        cell_id=plan.cell_id,
        variant_id=variant.variant_id,
        phase=phase.value,
        repeat=block.repeat,
        block=block.number,
        order=block.order.index(variant) if block.turn is None else block.turn,
        prompt_id=prompt.prompt_id,
        task=prompt.task,
        seed=seed,
        status=status.value,
        num_prompt_tokens=len(prompt.tokens),
    )


def _fill(row: Observation, decoded: Decoded) -> None:
    row.num_output_tokens = len(decoded.tokens)
    row.finish_reason = decoded.finish_reason.value
    row.ttft_s, row.decode_s, row.total_s = decoded.ttft_s, decoded.decode_s, decoded.total_s
    row.num_target_forwards = decoded.num_target_forwards
    row.last_step_truncated = decoded.last_step_truncated
    row.output_tokens = decoded.tokens
    row.steps_missing_reason = decoded.steps_missing_reason
    if decoded.steps is not None:
        row.step_proposed, row.step_accepted = decoded.steps.proposed, decoded.steps.accepted
        row.step_emitted = decoded.steps.emitted
        if decoded.steps.step_s:
            row.step_s = decoded.steps.step_s
        else:
            row.step_draft_s, row.step_verify_s = decoded.steps.draft_s, decoded.steps.verify_s
