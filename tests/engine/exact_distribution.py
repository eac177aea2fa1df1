"""Exact distributions of sampled tokens, and how well counts agree with them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import torch
from engine.random_models import all_logits
from scipy import stats

from harness.engine.model import Transformer
from harness.engine.sampling import SamplingParams, probabilities

MIN_EXPECTED = 5.0


def joint_distribution(
    model: Transformer, prompt: list[int], sampling: SamplingParams, num_tokens: int
) -> npt.NDArray[np.float64]:
    """Probability of every continuation of `num_tokens` tokens, one axis a token."""
    vocab_size = model.architecture.vocab_size
    continuations = torch.tensor(list(itertools.product(range(vocab_size), repeat=num_tokens)))
    sequences = torch.cat((torch.tensor(prompt).expand(len(continuations), -1), continuations), 1)
    logits = all_logits(model, sequences[:, :-1])[:, len(prompt) - 1 :]
    each = probabilities(logits, sampling).double().gather(2, continuations[..., None])[..., 0]
    return each.prod(1).reshape((vocab_size,) * num_tokens).numpy()


def count_outcomes(outcomes: Iterable[tuple[int, ...]], shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
    counts = np.zeros(shape, dtype=np.int64)
    np.add.at(counts, tuple(np.array(list(outcomes)).T), 1)
    return counts


def chi_square_p(counts: npt.NDArray[np.int64], exact: npt.NDArray[np.float64]) -> float:
    """Pearson's test; the rarest cells are pooled until they expect enough, the impossible must not occur."""
    observed, probability = counts.ravel(), exact.ravel()
    assert abs(probability.sum() - 1.0) < 1e-4
    if observed[probability == 0.0].any():
        return 0.0
    order = np.argsort(probability)
    expected = observed.sum() * probability[order] / probability.sum()
    enough = int(np.searchsorted(expected.cumsum(), MIN_EXPECTED)) + 1
    pooled = max(int((expected < MIN_EXPECTED).sum()), enough)
    cells = [np.append(values[:pooled].sum(), values[pooled:]) for values in (observed[order], expected)]
    return float(stats.chisquare(*cells).pvalue)
