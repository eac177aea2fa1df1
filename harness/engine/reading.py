"""What a model makes of a given text: how surprised it is, and what it would have written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from harness.engine.model import Transformer

CHUNK_TOKENS = 4
"""Read at once: few, so that the kernels are those that decode."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One entry per token of a text but the first.

    Attributes:
        losses_nats: minus the logarithm of the token's probability.
        choices: the token that the model holds for the likeliest in its place.
    """

    losses_nats: list[float]
    choices: list[int]

    @property
    def perplexity(self) -> float:
        """Exponential of the mean loss."""
        return math.exp(sum(self.losses_nats) / len(self.losses_nats))

    def agreement(self, other: Reading) -> float:
        """Share of the places where both hold the same token for the likeliest."""
        pairs = zip(self.choices, other.choices, strict=True)
        return sum(one == two for one, two in pairs) / len(self.choices)


@torch.inference_mode()
def read_text(model: Transformer, tokens: Sequence[int]) -> Reading:
    """Let a model predict every token of a text from those before it.

    Args:
        model: reads from an empty cache.
        tokens: ids, at least two.
    """
    cache = model.new_cache(capacity=len(tokens))
    losses: list[float] = []
    choices: list[int] = []
    for start in range(0, len(tokens) - 1, CHUNK_TOKENS):
        chunk = tokens[start : min(start + CHUNK_TOKENS, len(tokens) - 1)]
        hidden = model.forward(torch.tensor([chunk], device=model.device), cache)
        cache.lengths[0] += len(chunk)
        logprobs = model.head(hidden[0]).float().log_softmax(-1)
        following = torch.tensor(tokens[start + 1 : start + 1 + len(chunk)], device=model.device)
        losses += (-logprobs.gather(1, following[:, None])[:, 0]).tolist()
        choices += logprobs.argmax(-1).tolist()
    return Reading(losses, choices)
