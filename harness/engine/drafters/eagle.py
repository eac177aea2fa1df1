"""EAGLE: one decoder layer that continues the target's hidden states, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from harness.engine.cache import KVCache, Placement
from harness.engine.compiled.chain import CompiledChain, chains_run, compiled_chain
from harness.engine.drafters.base import Turn
from harness.engine.linear import Linear
from harness.engine.model import Transformer, last_states, padded, unpadded
from harness.engine.sampling import SamplingParams
from harness.engine.tree import ROOT
from harness.engine.tree_growth import GrowingTree, TreePlan, grow_trees, growths
from harness.engine.tree_placement import NodeSlots
from harness.engine.verify import Proposal


class EagleHead:
    """Maps [embedding of token t + 1 ; hidden state t] to hidden state t + 1.

    Args:
        model: the decoder layer, without norms before and behind it; its LM head is the target's.
        fuse: [hidden, 2 * hidden] from the pair to the layer's input.
        vocab: [draft_vocab] int64 target ids of the LM head's outputs; None where they're the same.

    Source: Li et al. 2024, "EAGLE", section 4.1.
    """

    def __init__(self, model: Transformer, fuse: Linear, vocab: Tensor | None) -> None:
        """See the class."""
        self.model, self.fuse, self.vocab = model, fuse, vocab

    def run(
        self, tokens: Tensor, hidden: Tensor, cache: KVCache, placement: Placement | None = None
    ) -> Tensor:
        """Run pairs behind each sequence's committed length.

        Args:
            tokens: [batch, new] int64, each the one after its hidden state's.
            hidden: [batch, new, hidden_size] the target's, or this head's own.
            cache: of the head.
            placement: where the pairs go and what they see; None lets them follow each other.

        Returns:
            [batch, new, hidden_size] the hidden states at `tokens`, as the head expects them.
        """
        embedded = functional.embedding(tokens, self.model.embeddings)
        return self.model.run(
            self.fuse(torch.cat((embedded, hidden.to(embedded.dtype)), -1)), cache, placement
        )


class EagleDrafter:
    """Drafts chains or trees; committed tokens are read with the target's own hidden states.

    Args:
        head: the layer.
        cache: of the head, for as many sequences and tokens as the target's.
        plan: the tree's shape.
        sample: draw drafts from the head's distributions at temperature above 0; otherwise propose
            their likeliest tokens with certainty.
    """

    def __init__(self, head: EagleHead, *, cache: KVCache, plan: TreePlan, sample: bool = False) -> None:
        """See the class."""
        self._head, self._cache, self._plan, self._sample = head, cache, plan, sample
        self._chain = compiled_chain(head.model, head.model.head, vocab=head.vocab, fuse=head.fuse)
        self._unfed: list[Tensor] = []
        self._prompts: Sequence[Sequence[int]] = ()

    def begin(self, prompts: Sequence[Sequence[int]]) -> None:
        """Wait for the prompts' hidden states."""
        self._cache.clear(len(prompts))
        self._prompts, self._unfed = prompts, []

    def read_hidden(self, hidden: Sequence[Tensor]) -> None:
        """Keep them until the tokens behind them are known; a prompt's are known but for the last."""
        if self._prompts:
            # a prompt of one token has no pair yet
            if any(len(prompt) > 1 for prompt in self._prompts):
                self._feed([list(prompt[1:]) for prompt in self._prompts], [own[:-1] for own in hidden])
            self._prompts, self._unfed = (), [own[-1:] for own in hidden]
        elif self._unfed:
            self._unfed = [torch.cat(pair) for pair in zip(self._unfed, hidden, strict=True)]
        else:
            self._unfed = list(hidden)

    def propose(self, turns: Sequence[Turn], *, sampling: SamplingParams) -> list[Proposal]:
        """Read what was committed since, then grow."""
        fed = self._cache.lengths
        new = [list(turn.tokens[length + 1 :]) for turn, length in zip(turns, fed, strict=True)]
        draws = self._sample and not sampling.is_greedy
        runs = chains_run(sampling, sample=draws, min_confidence=self._plan.min_confidence)
        if self._chain is not None and self._plan.is_chain and runs:
            return self._propose_chains(self._chain, new, turns, sampling.temperature, sample=draws)
        roots = self._feed(new, self._unfed)
        slots, known = NodeSlots(self._cache), [{ROOT: root} for root in roots]

        def expand(trees: Sequence[GrowingTree], nodes: Sequence[Sequence[int]]) -> Tensor:
            """Logits [all nodes, draft_vocab] after new nodes, from the hidden states of their parents."""
            placement = slots.place([tree.parents for tree in trees], nodes)
            tokens = [[tree.tokens[n] for n in own] for tree, own in zip(trees, nodes, strict=True)]
            before = [
                torch.stack([known[row][tree.parents[n]] for n in own]) if own else roots[:0]
                for row, (tree, own) in enumerate(zip(trees, nodes, strict=True))
            ]
            hidden = self._run(tokens, before, placement)
            for row, own in enumerate(nodes):
                known[row].update(zip(own, hidden[row], strict=False))
            return self._head.model.head(unpadded(hidden, tokens))

        growing = growths(self._plan, turns, sampling, sampled=self._sample, vocab=self._head.vocab)
        return grow_trees(growing, self._head.model.head(roots), expand)

    def _propose_chains(
        self,
        chains: CompiledChain,
        new: list[list[int]],
        turns: Sequence[Turn],
        temperature: float,
        *,
        sample: bool,
    ) -> list[Proposal]:
        turns = [replace(turn, limit=min(turn.limit, self._plan.depth)) for turn in turns]
        proposals = chains.propose(
            new,
            turns,
            self._cache,
            temperature=temperature,
            sample=sample,
            min_confidence=self._plan.min_confidence,
            hidden=self._unfed,
        )
        self._commit(new)
        return proposals

    def settle(self, num_accepted: Sequence[int]) -> None:
        """Nothing to forget: drafted rows are never committed, the target's hidden states replace them."""

    def keep(self, rows: Sequence[int]) -> None:
        """Drop the cached rows of finished sequences."""
        self._cache.keep(rows)
        self._unfed = [self._unfed[row] for row in rows]

    def _feed(self, tokens: list[list[int]], hidden: Sequence[Tensor]) -> Tensor:
        """Run and commit pairs; gives the hidden state at each sequence's last token, [batch, hidden]."""
        out = self._run(tokens, hidden, None)
        self._commit(tokens)
        return last_states(out, tokens)

    def _commit(self, tokens: list[list[int]]) -> None:
        self._cache.lengths = [
            length + len(own) for length, own in zip(self._cache.lengths, tokens, strict=True)
        ]
        self._unfed = []

    def _run(self, tokens: list[list[int]], hidden: Sequence[Tensor], placement: Placement | None) -> Tensor:
        ids = padded(tokens, self._head.model.device)
        states = torch.nn.utils.rnn.pad_sequence(list(hidden), batch_first=True)
        return self._head.run(ids, states, self._cache, placement)
