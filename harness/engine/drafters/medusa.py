"""Medusa: heads on the target's last hidden state that see one token further each."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from harness.engine.drafters.base import Turn
from harness.engine.linear import Linear
from harness.engine.sampling import SamplingParams
from harness.engine.tree_growth import GrowingTree, TreePlan, grow_trees, growths
from harness.engine.verify import Proposal


class MedusaHeads:
    """Residual SiLU blocks per head, then an LM head that all share or each has for itself.

    Args:
        blocks: per head its residual blocks, [hidden, hidden] each.
        lm_heads: one for all heads, or one per head.
        vocab: [draft_vocab] int64 target ids of the LM heads' outputs; None where they're the same.

    Source: Cai et al. 2024, "Medusa", section 2.1.
    """

    def __init__(
        self, blocks: Sequence[Sequence[Linear]], lm_heads: Sequence[Linear], vocab: Tensor | None
    ) -> None:
        """See the class."""
        self._blocks, self._lm_heads = blocks, lm_heads
        self.vocab = vocab

    @property
    def num_heads(self) -> int:
        """Most tokens that can be drafted."""
        return len(self._blocks)

    def logits(self, hidden: Tensor, count: int) -> Tensor:
        """What the first heads say.

        Args:
            hidden: [batch, hidden_size] of the target, after the token before the last committed one.
            count: heads to run.

        Returns:
            [count, batch, draft_vocab]; head i sees i + 2 tokens ahead of the hidden state, from i = 0.
        """
        seen = torch.stack([self._ahead(blocks, hidden) for blocks in self._blocks[:count]])
        if len(self._lm_heads) == 1:
            # one product for all heads reads the LM head once
            return self._lm_heads[0](seen)
        return torch.stack([head(x) for head, x in zip(self._lm_heads, seen, strict=False)])

    def _ahead(self, blocks: Sequence[Linear], hidden: Tensor) -> Tensor:
        for block in blocks:
            hidden = hidden + functional.silu(block(hidden))
        return hidden


class MedusaDrafter:
    """Drafts chains or trees; each depth of a tree takes its tokens from that depth's head.

    Args:
        heads: no fewer than the plan is deep.
        plan: the tree's shape.
        sample: draw drafts from the heads' distributions at temperature above 0; otherwise propose
            their likeliest tokens with certainty.
    """

    def __init__(self, heads: MedusaHeads, plan: TreePlan, *, sample: bool = False) -> None:
        """See the class."""
        self._heads, self._plan, self._sample = heads, plan, sample
        self._hidden: list[Tensor] = []

    def begin(self, prompts: Sequence[Sequence[int]]) -> None:
        """Nothing but hidden states is read."""

    def read_hidden(self, hidden: Sequence[Tensor]) -> None:
        """Keep the last one of each sequence."""
        self._hidden = [states[-1] for states in hidden]

    def propose(self, turns: Sequence[Turn], *, sampling: SamplingParams) -> list[Proposal]:
        """Draft from the last hidden states; the drafts of a step cost one pass of all heads."""
        depth = min(self._plan.depth, max(turn.limit for turn in turns))
        logits = self._heads.logits(torch.stack(self._hidden), depth)

        def expand(trees: Sequence[GrowingTree], nodes: Sequence[Sequence[int]]) -> Tensor:
            rows = [
                logits[tree.depths[node], row]
                for row, (tree, own) in enumerate(zip(trees, nodes, strict=True))
                for node in own
            ]
            return torch.stack(rows)

        growing = growths(self._plan, turns, sampling, sampled=self._sample, vocab=self._heads.vocab)
        return grow_trees(growing, logits[0], expand)

    def settle(self, num_accepted: Sequence[int]) -> None:
        """Nothing to forget."""

    def keep(self, rows: Sequence[int]) -> None:
        """Drop the hidden states of finished sequences."""
        self._hidden = [self._hidden[row] for row in rows]
