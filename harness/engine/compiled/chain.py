"""Chains of drafted tokens in one call into the compiled kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import chain

import torch
from torch import Tensor

from harness.engine.cache import KVCache
from harness.engine.compiled import layout
from harness.engine.compiled.transformer import CompiledLinear, CompiledTransformer, batch_of
from harness.engine.drafters.base import Turn
from harness.engine.linear import Linear
from harness.engine.model import Transformer
from harness.engine.sampling import SamplingParams
from harness.engine.verify import Proposal


class CompiledChain:
    """Drafts all tokens of all sequences without coming back to Python between them.

    Args:
        model: the draft model, or an EAGLE layer.
        head: LM head, perhaps over a part of the vocabulary.
        vocab: [draft_vocab] int64 target ids of the head's outputs; None where they're the same.
        fuse: of an EAGLE layer: from [embedding ; hidden state] to its input.
    """

    def __init__(
        self,
        model: CompiledTransformer,
        head: CompiledLinear,
        *,
        vocab: Tensor | None = None,
        fuse: CompiledLinear | None = None,
    ) -> None:
        """See the class."""
        self._model, self._vocab, self._size = model, vocab, head.matrix.struct.out
        self._struct = layout.Drafter(
            model=ctypes.pointer(model.struct),
            head=ctypes.pointer(head.matrix.struct),
            fuse=None if fuse is None else ctypes.pointer(fuse.matrix.struct),
            vocab=None if vocab is None else vocab.data_ptr(),
        )
        # the pointers point into them
        self._kept = head, fuse

    def propose(
        self,
        tokens: Sequence[Sequence[int]],
        turns: Sequence[Turn],
        cache: KVCache,
        *,
        temperature: float,
        sample: bool,
        min_confidence: float = 0.0,
        hidden: Sequence[Tensor] = (),
    ) -> list[Proposal]:
        """Read what was committed since the last call, then draft up to `limit` tokens for each sequence.

        Args:
            tokens: [batch] committed tokens the cache lacks; at least one where any are drafted.
            turns: the sequences.
            cache: of the drafter; its lengths are left as they were.
            temperature: of the drafter's distribution; at 0 its confidences are those at 1.
            sample: draw each token from the distribution; otherwise take the likeliest.
            min_confidence: see `TreePlan`.
            hidden: [batch] of [new, hidden_size] the target's hidden states, for an EAGLE layer.

        Returns:
            One proposal per sequence.
        """
        limits = [turn.limit for turn in turns]
        longest = max(limits)
        drafted = layout.int64s([0] * (len(turns) * longest))
        lengths = layout.int32s([0] * len(turns))
        task = layout.Chains(
            tokens=layout.int64s(list(chain.from_iterable(tokens))),
            limits=layout.int32s(limits),
            longest=longest,
            temperature=temperature,
            min_confidence=min_confidence,
            drafted=drafted,
            lengths=lengths,
        )
        if hidden:
            states = _joined(hidden)
            task.hidden = states.data_ptr()
        probs: Tensor | None = None
        if sample:
            uniform = _uniform(turns, longest)
            probs = torch.empty((len(turns), longest, self._size))
            task.uniform, task.probs = uniform.data_ptr(), probs.data_ptr()
        batch = batch_of([len(own) for own in tokens], cache)
        self._model.library.harness_draft(self._struct, batch, *self._model.prepare(cache), task)
        parts = [drafted[row * longest : row * longest + length] for row, length in enumerate(lengths)]
        return [
            Proposal(part, None if probs is None or not part else probs[row, : len(part)], self._vocab)
            for row, part in enumerate(parts)
        ]


def compiled_chain(
    model: Transformer, head: Linear, *, vocab: Tensor | None = None, fuse: Linear | None = None
) -> CompiledChain | None:
    """A drafter's chain in one call, None where the compiled kernels don't run it."""
    if not isinstance(model, CompiledTransformer) or not isinstance(head, CompiledLinear):
        return None
    if fuse is not None and not isinstance(fuse, CompiledLinear):
        return None
    return CompiledChain(model, head, vocab=vocab, fuse=fuse)


def chains_run(sampling: SamplingParams, *, sample: bool, min_confidence: float) -> bool:
    """Whether the kernels can draft like this: no tokens are cut off where probabilities count."""
    return (sampling.top_k == 0 and sampling.top_p == 1.0) or not (sample or min_confidence)


def _joined(hidden: Sequence[Tensor]) -> Tensor:
    """Hidden states of all sequences below each other, as the kernels read them."""
    return (hidden[0] if len(hidden) == 1 else torch.cat(list(hidden))).float().contiguous()


def _uniform(turns: Sequence[Turn], longest: int) -> Tensor:
    """[batch, longest] float64 in [0, 1), each sequence's from its own generator."""
    uniform = torch.zeros((len(turns), longest), dtype=torch.float64)
    for row, turn in zip(uniform, turns, strict=True):
        torch.rand(turn.limit, generator=turn.generator, dtype=torch.float64, out=row[: turn.limit])
    return uniform
