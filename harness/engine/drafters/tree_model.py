"""A small model of its own that drafts trees."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from harness.engine.cache import KVCache
from harness.engine.drafters.base import Turn
from harness.engine.linear import Linear
from harness.engine.model import Transformer, padded, unpadded
from harness.engine.prefill import prefill_prompts
from harness.engine.sampling import SamplingParams
from harness.engine.tree_growth import GrowingTree, TreePlan, grow_trees, growths
from harness.engine.tree_placement import NodeSlots
from harness.engine.verify import Proposal


class TreeDraftModel:
    """Grows trees with a second, smaller transformer over its own static cache.

    Drafted rows aren't committed: what stands is read again with the next step's first pass, which
    takes as long over several tokens as over one.

    Args:
        model: the draft model.
        cache: of the draft model, for as many sequences and tokens as the target's.
        plan: the tree's shape.
        head: replaces the model's own LM head, giving [..., draft_vocab].
        vocab: [draft_vocab] int64 target ids of the head's outputs; None where they're the same.
        sample: draw drafts from the drafter's distribution at temperature above 0; otherwise propose
            its likeliest tokens with certainty.
    """

    def __init__(
        self,
        model: Transformer,
        *,
        cache: KVCache,
        plan: TreePlan,
        head: Linear | None = None,
        vocab: Tensor | None = None,
        sample: bool = False,
    ) -> None:
        """See the class."""
        self._model, self._cache, self._plan = model, cache, plan
        self._head, self._vocab, self._sample = head or model.head, vocab, sample

    def begin(self, prompts: Sequence[Sequence[int]]) -> None:
        """Prefill each prompt's tokens, all but the last: `propose` always has one to feed."""
        self._cache.clear(len(prompts))
        prefill_prompts(self._model, [prompt[:-1] for prompt in prompts], self._cache)

    def propose(self, turns: Sequence[Turn], *, sampling: SamplingParams) -> list[Proposal]:
        """Read what was committed since, then grow."""
        fed = self._cache.lengths
        new = [list(turn.tokens[length:]) for turn, length in zip(turns, fed, strict=True)]
        roots = self._model.feed(new, self._cache)
        slots = NodeSlots(self._cache)

        def expand(trees: Sequence[GrowingTree], nodes: Sequence[Sequence[int]]) -> Tensor:
            placement = slots.place([tree.parents for tree in trees], nodes)
            tokens = [[tree.tokens[n] for n in own] for tree, own in zip(trees, nodes, strict=True)]
            hidden = self._model.forward(padded(tokens, self._model.device), self._cache, placement)
            return self._head(unpadded(hidden, tokens))

        growing = growths(self._plan, turns, sampling, sampled=self._sample, vocab=self._vocab)
        return grow_trees(growing, self._head(roots), expand)

    def settle(self, num_accepted: Sequence[int]) -> None:
        """Nothing to forget: drafted rows are never committed."""

    def keep(self, rows: Sequence[int]) -> None:
        """Drop the cached rows of finished sequences."""
        self._cache.keep(rows)
