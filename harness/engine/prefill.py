"""Run the prompts of a batch, those of similar length together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from harness.engine.cache import KVCache
from harness.engine.model import Transformer

MOST_PADDING = 0.25
"""Of a group's tokens, as a share of its prompts' own."""
MOST_TOKENS = 4096
"""Of a group of two or more, so that activations stay small beside the weights."""


def prefill_prompts(
    model: Transformer,
    prompts: Sequence[Sequence[int]],
    cache: KVCache,
    *,
    collected: list[Tensor] | None = None,
) -> Tensor:
    """Run prompts of any lengths from an empty cache and commit them.

    Args:
        model: runs them.
        prompts: [batch] token ids; neighbours of similar length run together, so they should be sorted.
        cache: cleared, of the same batch.
        collected: takes each prompt's hidden states [tokens, hidden_size], in order.

    Returns:
        [batch, hidden_size] after each prompt's last token; anything for an empty prompt.
    """
    hidden = []
    for start, stop in similar_lengths([len(prompt) for prompt in prompts]):
        if not any(prompts[start:stop]):
            hidden.append(model.embeddings.new_zeros(stop - start, model.architecture.hidden_size))
            continue
        group = cache if stop - start == cache.batch else cache.rows(start, stop)
        if collected is None:
            hidden.append(model.feed(prompts[start:stop], group))
        else:
            states = model.feed_all(prompts[start:stop], group)
            hidden.append(
                torch.stack([own[-1] if len(own) else own.new_zeros(own.shape[1]) for own in states])
            )
            collected += states
        cache.lengths[start:stop] = group.lengths
    return torch.cat(hidden)


def similar_lengths(lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Split neighbours into groups that need little padding.

    Args:
        lengths: tokens of each prompt.

    Yields:
        Start and stop of each group, in order.
    """
    start = 0
    for stop in range(1, len(lengths) + 1):
        if stop == len(lengths) or not _fit_together(lengths[start : stop + 1]):
            yield start, stop
            start = stop


def _fit_together(lengths: Sequence[int]) -> bool:
    tokens = max(lengths) * len(lengths)
    return tokens <= MOST_TOKENS and tokens <= (1 + MOST_PADDING) * sum(lengths)
