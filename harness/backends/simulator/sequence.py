"""One simulated sequence: what it writes, and what each of its steps does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

from harness.backends.simulator.acceptance import num_standing
from harness.backends.simulator.costs import StepSeconds
from harness.models.stand_in import VOCAB_SIZE
from harness.records import Decoded, FinishReason, Steps


class SimulatedSequence:
    """Steps through an output that is known beforehand, at the pace its drafts are accepted.

    Args:
        output: token ids, already cut at the end token or the limit.
        limit: output limit.
        ends: whether the last token of `output` is an end token.
        alphas: [k] see `position_alphas`; empty for the baseline.
        empty: probability that a step drafts nothing.
        seed: of drafting and accepting.
    """

    def __init__(
        self,
        output: list[int],
        *,
        limit: int,
        ends: bool,
        alphas: Sequence[float],
        empty: float,
        seed: str,
    ) -> None:
        """See the class; the prefill has written the first token."""
        self._output, self._limit, self._ends = output, limit, ends
        self._alphas, self._empty = alphas, empty
        self._random = Random(seed)
        self._num_written = 1
        self._steps = Steps()
        self._overhead_s = 0.0
        self._truncated = False

    @property
    def has_ended(self) -> bool:
        """Whether all of the output is written."""
        return self._num_written >= len(self._output)

    def propose(self) -> int:
        """How many tokens the next step drafts; the target adds one, so the last is never drafted."""
        limit = min(len(self._alphas), self._limit - self._num_written - 1)
        if limit < 1 or self._random.random() < self._empty:
            return 0
        return limit

    def commit(self, proposed: int, seconds: StepSeconds) -> None:
        """Accept what stands of a draft and write it, together with the target's own token."""
        accepted = num_standing(self._alphas, [self._random.random() for _ in range(proposed)])
        emitted = min(accepted + 1, len(self._output) - self._num_written)
        self._truncated = emitted < accepted + 1
        self._num_written += emitted
        self._overhead_s += seconds.overhead_s
        self._steps.add(
            proposed=proposed,
            accepted=accepted,
            emitted=emitted,
            draft_s=seconds.draft_s,
            verify_s=seconds.verify_s,
        )

    def decoded(self, ttft_s: float) -> Decoded:
        """The finished sequence."""
        decode_s = sum(self._steps.draft_s) + sum(self._steps.verify_s) + self._overhead_s
        return Decoded(
            tokens=self._output,
            finish_reason=FinishReason.EOS if self._ends else FinishReason.LENGTH,
            ttft_s=ttft_s,
            decode_s=decode_s,
            total_s=ttft_s + decode_s,
            num_target_forwards=1 + len(self._steps.proposed),
            steps=self._steps,
            last_step_truncated=self._truncated,
        )


def written(
    seed: str, limit: int, *, eos_probability: float, eos_ids: frozenset[int]
) -> tuple[list[int], bool]:
    """What a sequence writes: a longer limit goes on where a shorter one stopped.

    Args:
        seed: equal for sequences that write the same.
        limit: output limit.
        eos_probability: that a token ends the sequence.
        eos_ids: end tokens; empty never ends.

    Returns:
        Token ids, and whether the last one is an end token.
    """
    random = Random(seed)
    draw = 1 - random.random()
    tokens = random.choices(range(1, VOCAB_SIZE), k=limit)
    if not eos_ids or eos_probability == 0:
        return tokens, False
    length = 1 if eos_probability == 1 else 1 + int(math.log(draw) / math.log1p(-eos_probability))
    if length > limit:
        return tokens, False
    return [*tokens[: length - 1], min(eos_ids)], True
