"""From logits to the distribution that is sampled, the same transform for target and drafter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How a next token is drawn.

    Attributes:
        temperature: 0 is greedy; logits are divided by it otherwise.
        top_k: keep the likeliest `top_k` tokens; 0 keeps all.
        top_p: keep the smallest set of likeliest tokens whose probability reaches it; 1 keeps all.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is always taken."""
        return self.temperature == 0.0


def probabilities(logits: Tensor, params: SamplingParams) -> Tensor:
    """Transform logits into the distribution that is sampled.

    Temperature first, then top-k, then top-p, each renormalised, as Transformers and vLLM do.

    Args:
        logits: [..., vocab].
        params: with a temperature above 0.

    Returns:
        float32 [..., vocab]; rows sum to 1.

    Raises:
        ValueError: temperature is 0; a greedy token needs no distribution.
    """
    if params.is_greedy:
        raise ValueError("a greedy distribution is one-hot: take the argmax of the logits instead")
    scaled = logits.float() / params.temperature
    if 0 < params.top_k < scaled.shape[-1]:
        smallest_kept = scaled.topk(params.top_k, -1).values[..., -1:]
        scaled = scaled.masked_fill(scaled < smallest_kept, float("-inf"))
    probs = scaled.softmax(-1)
    if params.top_p < 1.0:
        probs = _keep_nucleus(probs, params.top_p)
    return probs


def distribution(logits: Tensor, params: SamplingParams) -> Tensor:
    """A drafter's view of its tokens: `probabilities`, and at temperature 0 those at temperature 1.

    Args:
        logits: [..., vocab].
        params: of the target.

    Returns:
        float32 [..., vocab]; rows sum to 1.
    """
    return logits.float().softmax(-1) if params.is_greedy else probabilities(logits, params)


def _keep_nucleus(probs: Tensor, top_p: float) -> Tensor:
    ordered, order = probs.sort(-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    kept = torch.zeros_like(probs).scatter(-1, order, ordered.masked_fill(before >= top_p, 0.0))
    return kept / kept.sum(-1, keepdim=True)


def draw(weights: Tensor, generator: torch.Generator | Sequence[torch.Generator]) -> Tensor:
    """Draw one index per row by inverting the cumulative sum.

    One uniform number and one running sum a row; `torch.multinomial` draws as many random numbers
    as there are tokens in the vocabulary.

    Args:
        weights: [rows, vocab], not negative, each row with a positive sum; needn't be normalised.
        generator: source of the uniform numbers, on the weights' device: one for all rows, or one for each.

    Returns:
        int64 [rows]; an index of weight 0 is never drawn.
    """
    # double: a float32 running sum over 100,000 tokens would round away the smallest of them
    cumulative = weights.cumsum(-1, dtype=torch.float64)
    if isinstance(generator, torch.Generator):
        uniform = _uniform(weights.shape[0], generator)
    else:
        uniform = torch.cat([_uniform(1, own) for own in generator])
    picks = torch.searchsorted(cumulative, uniform * cumulative[:, -1:], right=True)[:, 0]
    # uniform * total can round up to total: step back to the last index that has weight
    last = weights.shape[-1] - 1 - weights.flip(-1).gt(0).to(torch.uint8).argmax(-1)
    return torch.minimum(picks, last)


def _uniform(rows: int, generator: torch.Generator) -> Tensor:
    return torch.rand((rows, 1), generator=generator, device=generator.device, dtype=torch.float64)
