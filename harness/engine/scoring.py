"""Run finished outputs through the target once more: how likely was each token?"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from harness.engine.model import Transformer
from harness.engine.sampling import SamplingParams, probabilities
from harness.records import Scored

POSITIONS_AT_ONCE = 64
"""Rows of logits held at a time: over a large vocabulary they outgrow everything else."""

_SIGNIFICANT_BITS = {torch.bfloat16: 8, torch.float16: 11, torch.float32: 24}


@torch.inference_mode()
def score_tokens(
    target: Transformer,
    prompt: Sequence[int],
    tokens: Sequence[int],
    *,
    alternatives: Sequence[tuple[int, int]] = (),
    sampling: SamplingParams,
) -> Scored:
    """Score an output in one forward over prompt and output.

    Args:
        target: the model whose output it should be.
        prompt: token ids, at least one.
        tokens: output token ids, at least one.
        alternatives: (place in `tokens`, token id) of further tokens whose logits are wanted.
        sampling: as the output was decoded; above temperature 0 it decides the probabilities.
    """
    inputs = torch.tensor([[*prompt, *tokens[:-1]]], device=target.device)
    cache = target.new_cache(batch=1, capacity=inputs.shape[1])
    hidden = target.forward(inputs, cache)[0, len(prompt) - 1 :]
    scored = Scored([], [], [], [0.0] * len(alternatives), [], [], _SIGNIFICANT_BITS[target.dtype])
    chosen = torch.tensor(tokens, device=target.device)
    for start in range(0, len(tokens), POSITIONS_AT_ONCE):
        stop = start + POSITIONS_AT_ONCE
        logits = target.head(hidden[start:stop]).float()
        best = logits.max(-1)
        scored.logits += _picked(logits, chosen[start:stop]).tolist()
        scored.best_tokens += best.indices.tolist()
        scored.best_logits += best.values.tolist()
        if not sampling.is_greedy:
            above, mass = _masses(probabilities(logits, sampling), chosen[start:stop])
            scored.mass_above += above.tolist()
            scored.mass += mass.tolist()
        for index, (place, token) in enumerate(alternatives):
            if start <= place < stop:
                scored.alternative_logits[index] = float(logits[place - start, token])
    return scored


def _masses(probs: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Probability of the tokens likelier than the chosen one, and of those exactly as likely.

    Args:
        probs: [rows, vocab].
        chosen: [rows].
    """
    probs = probs.double()
    own = _picked(probs, chosen)[:, None]
    return (probs * (probs > own)).sum(-1), (probs * (probs == own)).sum(-1)


def _picked(values: Tensor, chosen: Tensor) -> Tensor:
    return values.gather(-1, chosen[:, None])[:, 0]
