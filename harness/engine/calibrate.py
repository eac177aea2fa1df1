"""Measure what a step's parts cost, so that the number of drafted tokens can follow."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from statistics import median

from harness.engine.loop import Decoder
from harness.engine.pace import PacePlan, StepCosts
from harness.engine.sampling import SamplingParams
from harness.engine.sequence import Request

_PROMPT_TOKENS = 64
_STEPS = 5


def measure_step_costs(
    make_decoder: Callable[[PacePlan], Decoder], *, k: int, batch: int, capacity: int
) -> StepCosts:
    """Decode a repeated token with 0, 1, ... k drafted tokens per step, and take the median of each part.

    What is drafted and accepted doesn't matter for how long it takes. Costs are made not to fall as
    more is drafted: where they do, that is noise.

    Args:
        make_decoder: builds the decoder of the variant with a given pace.
        k: most drafted tokens.
        batch: sequences decoded together.
        capacity: tokens the decoder has room for.
    """
    prompt = [1] * max(1, min(_PROMPT_TOKENS, capacity // 2))
    room = max(1, capacity - len(prompt))
    draft_s, verify_s = [], []
    for length in range(k + 1):
        limit = min(room, _STEPS * (length + 1) + 1)
        requests = [Request(prompt, limit)] * batch
        decoder = make_decoder(PacePlan(length))
        decoded = decoder.decode_batch(requests, sampling=SamplingParams())[0]
        steps = decoded.steps
        known = (
            [
                (draft, verify)
                for proposed, draft, verify in zip(steps.proposed, steps.draft_s, steps.verify_s, strict=True)
                if proposed == length
            ]
            if steps is not None
            else []
        )
        if not known:
            break
        draft_s.append(median(draft for draft, _ in known))
        verify_s.append(median(verify for _, verify in known))
    return StepCosts(list(accumulate(draft_s, max)), list(accumulate(verify_s, max)))
