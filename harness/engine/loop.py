"""The decode loop: prefill, then propose, verify and commit until EOS or the limit."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import torch

from harness.engine.drafters.base import Drafter
from harness.engine.model import Transformer
from harness.engine.sampling import SamplingParams
from harness.engine.verify import Proposal, Verdict, verify_greedy, verify_sampled
from harness.errors import UnsupportedError
from harness.records import Decoded, FinishReason, Steps


class Decoder:
    """Decodes one sequence at a time with a target and, where tokens are drafted, a drafter.

    Args:
        target: the model whose distribution the output has.
        capacity: tokens of context to allocate, prompt and output together.
        drafter: proposes tokens; None decodes autoregressively.
        k: drafted tokens per step.
    """

    def __init__(
        self, target: Transformer, *, capacity: int, drafter: Drafter | None = None, k: int = 0
    ) -> None:
        """See the class."""
        self._target = target
        self._cache = target.new_cache(batch=1, capacity=capacity)
        self._drafter = drafter
        self._k = k

    @torch.inference_mode()
    def decode(
        self,
        prompt: Sequence[int],
        *,
        sampling: SamplingParams,
        max_new_tokens: int,
        eos_ids: frozenset[int] = frozenset(),
        seed: int = 0,
    ) -> Decoded:
        """Decode one prompt.

        Args:
            prompt: token ids, at least one.
            sampling: of target and drafter alike.
            max_new_tokens: output limit, at least 1.
            eos_ids: ids that end the sequence; empty ignores EOS.
            seed: of the sequence's random numbers.

        Raises:
            UnsupportedError: prompt and output don't fit the allocated context.
        """
        if len(prompt) + max_new_tokens > self._cache.capacity:
            raise UnsupportedError(
                f"a prompt of {len(prompt)} tokens and {max_new_tokens} new ones don't fit the context of "
                f"{self._cache.capacity} tokens. Shorten the prompt or lower workload.max_output_tokens."
            )
        run = _Run(self, prompt, sampling, max_new_tokens, eos_ids, seed)
        return run.finish()


class _Run:
    """State of one sequence while it is decoded."""

    def __init__(
        self,
        decoder: Decoder,
        prompt: Sequence[int],
        sampling: SamplingParams,
        max_new_tokens: int,
        eos_ids: frozenset[int],
        seed: int,
    ) -> None:
        self._target, self._cache = decoder._target, decoder._cache
        self._drafter, self._k = decoder._drafter, decoder._k
        self._sampling, self._limit, self._eos = sampling, max_new_tokens, eos_ids
        self._generator = torch.Generator(device=self._target.device).manual_seed(seed)
        self._tokens = list(prompt)
        self._output: list[int] = []
        self._steps = Steps()
        self._truncated = False

    def finish(self) -> Decoded:
        started = perf_counter()
        self._prefill()
        first_token = perf_counter()
        while not self._ended:
            self._step()
        ended = perf_counter()
        return Decoded(
            tokens=self._output,
            finish_reason=FinishReason.EOS if self._output[-1] in self._eos else FinishReason.LENGTH,
            ttft_s=first_token - started,
            decode_s=ended - first_token,
            total_s=ended - started,
            num_target_forwards=1 + len(self._steps.proposed),
            steps=self._steps,
            last_step_truncated=self._truncated,
        )

    @property
    def _ended(self) -> bool:
        return len(self._output) >= self._limit or self._output[-1] in self._eos

    def _prefill(self) -> None:
        self._cache.clear()
        hidden = self._target.prefill(torch.tensor([self._tokens], device=self._target.device), self._cache)
        verdict = self._verify(self._target.head(hidden), Proposal())
        if self._drafter is not None:
            self._drafter.begin(self._tokens)
        self._commit([verdict.next_token])

    def _step(self) -> None:
        start = perf_counter()
        proposal = self._propose()
        drafted = perf_counter()
        inputs = torch.tensor([[self._tokens[-1], *proposal.tokens]], device=self._target.device)
        hidden = self._target.forward(inputs, self._cache)[0]
        verdict = self._verify(self._target.head(hidden), proposal)
        # the last committed token and the accepted drafts are cached now; rejected rows are dropped
        self._cache.lengths[0] += 1 + verdict.num_accepted
        if self._drafter is not None:
            self._drafter.settle(verdict.num_accepted)
        emitted = self._commit([*proposal.tokens[: verdict.num_accepted], verdict.next_token])
        self._steps.add(
            proposed=len(proposal.tokens),
            accepted=verdict.num_accepted,
            emitted=emitted,
            draft_s=drafted - start,
            verify_s=perf_counter() - drafted,
        )

    def _propose(self) -> Proposal:
        # the target adds a token of its own, so drafting the last one would be wasted
        limit = min(self._k, self._limit - len(self._output) - 1)
        if self._drafter is None or limit < 1:
            return Proposal()
        return self._drafter.propose(
            self._tokens, limit=limit, sampling=self._sampling, generator=self._generator
        )

    def _verify(self, logits: torch.Tensor, proposal: Proposal) -> Verdict:
        if self._sampling.is_greedy:
            return verify_greedy(logits, proposal)
        return verify_sampled(logits, proposal, self._sampling, self._generator)

    def _commit(self, tokens: list[int]) -> int:
        end = next((i + 1 for i, token in enumerate(tokens) if token in self._eos), len(tokens))
        kept = tokens[: min(end, self._limit - len(self._output))]
        self._truncated = len(kept) < len(tokens)
        self._tokens += kept
        self._output += kept
        return len(kept)
