"""The decode loop: prefill, then propose, verify and commit until every sequence has ended."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from time import perf_counter

import torch
from torch import Tensor

from harness.engine.cache import KVCache
from harness.engine.drafters.base import Drafter, HiddenReader, Turn
from harness.engine.model import Transformer
from harness.engine.pace import PacePlan
from harness.engine.prefill import prefill_prompts
from harness.engine.sampling import SamplingParams
from harness.engine.sequence import DecodedSequence, Request
from harness.engine.tree import TreeProposal, parents_of
from harness.engine.tree_placement import place_trees
from harness.engine.tree_verify import judge_choices, judge_sampled
from harness.engine.typical import TypicalAcceptance, judge_typical
from harness.engine.verify import Proposal, Verdict
from harness.errors import UnsupportedError
from harness.records import Decoded


class Decoder:
    """Decodes batches of sequences with a target and, where tokens are drafted, a drafter.

    Args:
        target: the model whose distribution the output has.
        cache: of the target; says how many sequences fit, and how many tokens of each. Decoders that
            don't run at the same time may share it.
        drafter: proposes tokens; None decodes autoregressively.
        k: drafted tokens per step; of a tree, of its longest path.
        pace: decides instead of `k` how many tokens each sequence's steps draft.
        typical: accepts by plausibility, which isn't lossless; None accepts losslessly.
    """

    def __init__(
        self,
        target: Transformer,
        *,
        cache: KVCache,
        drafter: Drafter | None = None,
        k: int = 0,
        pace: PacePlan | None = None,
        typical: TypicalAcceptance | None = None,
    ) -> None:
        """See the class."""
        self._target = target
        self._cache = cache
        self._drafter = drafter
        self._pace = pace or PacePlan(k)
        self._typical = typical

    def decode(
        self,
        prompt: Sequence[int],
        *,
        sampling: SamplingParams,
        max_new_tokens: int,
        eos_ids: frozenset[int] = frozenset(),
        seed: int = 0,
    ) -> Decoded:
        """Decode one prompt: a batch of one `Request`; see `decode_batch`."""
        request = Request(prompt, max_new_tokens, seed)
        return self.decode_batch([request], sampling=sampling, eos_ids=eos_ids)[0]

    @torch.inference_mode()
    def decode_batch(
        self,
        requests: Sequence[Request],
        *,
        sampling: SamplingParams,
        eos_ids: frozenset[int] = frozenset(),
    ) -> list[Decoded]:
        """Decode sequences together, each at its own pace and to its own end.

        First tokens come when all prompts have been read, so `ttft_s` is the same for all; a sequence that
        ends leaves the batch, and the others go on without it.

        Args:
            requests: at least one; their prompts may be of any lengths.
            sampling: of target and drafter alike.
            eos_ids: ids that end a sequence; empty ignores EOS.

        Returns:
            One result per request, in order; its tokens don't hang on who shared the batch, up to rounding.

        Raises:
            UnsupportedError: more sequences, or more tokens of one, than the cache has room for.
        """
        self._check(requests)
        # sorted, so that prompts of similar length are neighbours and can be read together
        order = sorted(range(len(requests)), key=lambda index: len(requests[index].prompt))
        sequences = [
            DecodedSequence(requests[index], eos_ids=eos_ids, device=self._target.device) for index in order
        ]
        run = _Run(
            self._target, self._cache, self._drafter, self._pace, sampling=sampling, typical=self._typical
        )
        decoded = run.decode(sequences)
        by_index = dict(zip(order, decoded, strict=True))
        return [by_index[index] for index in range(len(requests))]

    def _check(self, requests: Sequence[Request]) -> None:
        if len(requests) > self._cache.max_batch:
            raise UnsupportedError(
                f"{len(requests)} sequences were to be decoded together, but there is room for "
                f"{self._cache.max_batch}. Lower batch_size."
            )
        for request in requests:
            if len(request.prompt) + request.max_new_tokens > self._cache.capacity:
                raise UnsupportedError(
                    f"a prompt of {len(request.prompt)} tokens and {request.max_new_tokens} new ones don't "
                    f"fit the context of {self._cache.capacity} tokens. Shorten the prompt or lower "
                    "workload.max_output_tokens."
                )


class _Run:
    """One batch while it is decoded; row i of every cache belongs to the i-th sequence still active."""

    def __init__(
        self,
        target: Transformer,
        cache: KVCache,
        drafter: Drafter | None,
        pace: PacePlan,
        *,
        sampling: SamplingParams,
        typical: TypicalAcceptance | None,
    ) -> None:
        self._target, self._cache = target, cache
        self._drafter, self._pace = drafter, pace
        self._reader = drafter if isinstance(drafter, HiddenReader) else None
        self._sampling, self._typical = sampling, typical
        self._active: list[DecodedSequence] = []

    def decode(self, sequences: Sequence[DecodedSequence]) -> list[Decoded]:
        """Decode sequences to their ends; results come in the order given."""
        started = perf_counter()
        self._active = list(sequences)
        self._paces = {
            sequence: self._pace.start(prompt_tokens=len(sequence.tokens), max_new_tokens=sequence.limit)
            for sequence in sequences
        }
        self._prefill()
        first_token = perf_counter()
        ended = dict.fromkeys(sequences, first_token)
        self._retire()
        while self._active:
            stepped = self._active
            self._step()
            ended.update(dict.fromkeys(stepped, perf_counter()))
            self._retire()
        return [
            sequence.decoded(ttft_s=first_token - started, decode_s=ended[sequence] - first_token)
            for sequence in sequences
        ]

    def _prefill(self) -> None:
        prompts = [sequence.tokens for sequence in self._active]
        self._cache.clear(len(prompts))
        collected: list[Tensor] | None = [] if self._reader else None
        logits = self._target.head(prefill_prompts(self._target, prompts, self._cache, collected=collected))
        nothing = [Proposal()] * len(prompts)
        verdicts = self._verdicts(logits, nothing)
        if self._drafter is not None:
            self._drafter.begin(prompts)
        if self._reader is not None and collected is not None:
            self._reader.read_hidden(collected)
        for sequence, proposal, verdict in zip(self._active, nothing, verdicts, strict=True):
            sequence.commit(proposal, verdict)

    def _step(self) -> None:
        start = perf_counter()
        proposals = self._propose()
        drafted = perf_counter()
        verdicts = self._verify(proposals)
        emitted = [
            sequence.commit(proposal, verdict)
            for sequence, proposal, verdict in zip(self._active, proposals, verdicts, strict=True)
        ]
        verified = perf_counter()
        for sequence, proposal, verdict, count in zip(
            self._active, proposals, verdicts, emitted, strict=True
        ):
            self._paces[sequence].observe(proposal.length, verdict.num_accepted)
            sequence.steps.add(
                proposed=proposal.length,
                accepted=verdict.num_accepted,
                emitted=count,
                draft_s=drafted - start,
                verify_s=verified - drafted,
            )

    def _propose(self) -> list[Proposal]:
        limits = [0] * len(self._active)
        if self._pace.rules.allows_batch(len(self._active)):
            limits = [
                max(0, min(self._paces[sequence].length(), sequence.num_wanted)) for sequence in self._active
            ]
        if self._drafter is None or not any(limits):
            return [Proposal()] * len(limits)
        turns = [
            Turn(sequence.tokens, limit, sequence.generator)
            for sequence, limit in zip(self._active, limits, strict=True)
        ]
        return self._drafter.propose(turns, sampling=self._sampling)

    def _verify(self, proposals: list[Proposal]) -> list[Verdict]:
        rows = [
            [sequence.tokens[-1], *proposal.tokens]
            for sequence, proposal in zip(self._active, proposals, strict=True)
        ]
        placement = None
        if any(isinstance(proposal, TreeProposal) for proposal in proposals):
            placement = place_trees(self._cache, [parents_of(proposal) for proposal in proposals])
        if self._sampling.is_greedy:
            hidden, choices = self._target.choose_rows(rows, self._cache, placement)
            verdicts = self._judge_choices(choices, proposals)
        else:
            hidden, logits = self._target.logits_rows(rows, self._cache, placement)
            verdicts = self._verdicts(logits, proposals)
        self._commit_rows(hidden, [len(row) for row in rows], verdicts)
        return verdicts

    def _commit_rows(self, hidden: Tensor, counts: list[int], verdicts: list[Verdict]) -> None:
        accepted = [verdict.num_accepted for verdict in verdicts]
        for row, verdict in enumerate(verdicts):
            self._cache.gather(row, verdict.nodes)
        # the last committed token and the accepted drafts are cached now; rejected rows are dropped
        self._cache.lengths = [
            length + 1 + count for length, count in zip(self._cache.lengths, accepted, strict=True)
        ]
        if self._drafter is not None:
            self._drafter.settle(accepted)
        if self._reader is not None:
            each = [hidden] if len(counts) == 1 else torch.split(hidden, counts)
            self._reader.read_hidden(
                [_standing(states, verdict.nodes) for states, verdict in zip(each, verdicts, strict=True)]
            )

    def _verdicts(self, logits: Tensor, proposals: list[Proposal]) -> list[Verdict]:
        """Judge proposals by their logits [sum of len(tokens) + 1, vocab], one below the other."""
        if self._sampling.is_greedy:
            return self._judge_choices(logits.argmax(-1).tolist(), proposals)
        rows = torch.split(logits, [len(proposal.tokens) + 1 for proposal in proposals])
        if self._typical is not None:
            rule = self._typical
            return [
                judge_typical(own, p, self._sampling, rule) for own, p in zip(rows, proposals, strict=True)
            ]
        parts = zip(rows, proposals, self._active, strict=True)
        return [judge_sampled(own, p, self._sampling, s.generator) for own, p, s in parts]

    def _judge_choices(self, choices: list[int], proposals: list[Proposal]) -> list[Verdict]:
        """`_verdicts` from the likeliest tokens."""
        ids = iter(choices)
        return [judge_choices(list(islice(ids, len(p.tokens) + 1)), p) for p in proposals]

    def _retire(self) -> None:
        """Let ended sequences go; the last active ones move into the rows they leave."""
        rows = _survivors([sequence.has_ended for sequence in self._active])
        if len(rows) == len(self._active):
            return
        self._active = [self._active[row] for row in rows]
        if rows:
            self._cache.keep(rows)
            if self._drafter is not None:
                self._drafter.keep(rows)


def _standing(states: Tensor, nodes: Sequence[int]) -> Tensor:
    """The rows of the root and of accepted nodes; of a chain without a copy."""
    if isinstance(nodes, range):
        return states[: nodes.stop]
    return states[[0, *nodes]]


def _survivors(has_ended: Sequence[bool]) -> list[int]:
    """The rows that go on, each at its place but for those that fill the gaps before them."""
    going_on = [row for row, ended in enumerate(has_ended) if not ended]
    staying = [row for row in going_on if row < len(going_on)]
    moving = iter(row for row in going_on if row >= len(going_on))
    taken = set(staying)
    return [row if row in taken else next(moving) for row in range(len(going_on))]
