"""One sequence while it is decoded: what it asked for, what it has written, and what its steps did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from harness.engine.verify import Proposal, Verdict
from harness.records import Decoded, FinishReason, Steps


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt to decode.

    Attributes:
        prompt: token ids, at least one.
        max_new_tokens: output limit, at least 1.
        seed: of the sequence's random numbers.
    """

    prompt: Sequence[int]
    max_new_tokens: int
    seed: int = 0


class DecodedSequence:
    """State of one sequence of a batch.

    Attributes:
        tokens: prompt and output so far.
        output: what was written so far.
        generator: of the sequence's own random numbers.
        steps: what each step did.
        limit: most tokens to write.
    """

    def __init__(self, request: Request, *, eos_ids: frozenset[int], device: torch.device) -> None:
        """Start with the prompt and nothing written."""
        self.tokens = list(request.prompt)
        self.output: list[int] = []
        self.generator = torch.Generator(device=device).manual_seed(request.seed)
        self.steps = Steps()
        self.limit, self._eos = request.max_new_tokens, eos_ids
        self._truncated = False

    @property
    def has_ended(self) -> bool:
        """Whether the limit is reached or an end token was written."""
        return len(self.output) >= self.limit or self.output[-1] in self._eos

    @property
    def num_wanted(self) -> int:
        """Tokens worth drafting: the target adds one of its own, so drafting the last would be wasted."""
        return self.limit - len(self.output) - 1

    def commit(self, proposal: Proposal, verdict: Verdict) -> int:
        """Write what stands of a proposal and the target's own token; returns how many fit."""
        tokens = [*(proposal.tokens[node - 1] for node in verdict.nodes), verdict.next_token]
        end = next((i + 1 for i, token in enumerate(tokens) if token in self._eos), len(tokens))
        kept = tokens[: min(end, self.limit - len(self.output))]
        self._truncated = len(kept) < len(tokens)
        self.tokens += kept
        self.output += kept
        return len(kept)

    def decoded(self, *, ttft_s: float, decode_s: float) -> Decoded:
        """The finished sequence, with the seconds to its first token and from there to its last."""
        return Decoded(
            tokens=self.output,
            finish_reason=FinishReason.EOS if self.output[-1] in self._eos else FinishReason.LENGTH,
            ttft_s=ttft_s,
            decode_s=decode_s,
            total_s=ttft_s + decode_s,
            num_target_forwards=1 + len(self.steps.proposed),
            steps=self.steps,
            last_step_truncated=self._truncated,
        )
