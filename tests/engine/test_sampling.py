from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from engine.exact_distribution import chi_square_p
from hypothesis import assume, given
from hypothesis import strategies as st

from harness.engine.sampling import SamplingParams, draw, probabilities

INF = float("inf")
LARGEST_UNIFORM = 1.0 - 2.0**-53


def by_definition(logits: list[float], params: SamplingParams) -> list[float]:
    """Temperature, then top-k, then top-p, in plain Python; among equals, the first stands first."""
    scaled = [logit / params.temperature for logit in logits]
    if params.top_k and params.top_k < len(scaled):
        bar = sorted(scaled, reverse=True)[params.top_k - 1]
        scaled = [value if value >= bar else -INF for value in scaled]
    weights = [math.exp(value - max(scaled)) for value in scaled]
    probs = [weight / sum(weights) for weight in weights]
    kept, reached = set[int](), 0.0
    for index in sorted(range(len(probs)), key=lambda i: -probs[i]):
        if reached >= params.top_p:
            break
        kept.add(index)
        reached += probs[index]
    return [prob / reached if index in kept else 0.0 for index, prob in enumerate(probs)]


def away_from_the_boundary(logits: list[float], params: SamplingParams) -> bool:
    everything = by_definition(logits, SamplingParams(params.temperature, params.top_k))
    cumulative = np.cumsum(sorted(everything, reverse=True))
    return bool((abs(cumulative - params.top_p) > 1e-5).all())


params = st.builds(
    SamplingParams, st.sampled_from([0.25, 0.7, 1.0, 1.5, 3.0]), st.integers(0, 9), st.floats(0.01, 1.0)
)
# quarters make ties frequent
logit_lists = st.lists(st.integers(-20, 20).map(lambda n: n / 4), min_size=1, max_size=8)


@given(logit_lists, params)
def test_probabilities_equal_the_definition(logits: list[float], params: SamplingParams) -> None:
    assume(away_from_the_boundary(logits, params))
    probs = probabilities(torch.tensor(logits), params)
    assert probs.sum().item() == pytest.approx(1.0, abs=1e-6)
    # which of several equal tokens the nucleus cuts is free; how many stay, and with how much, isn't
    expected = sorted(by_definition(logits, params))
    np.testing.assert_allclose(sorted(probs.tolist()), expected, rtol=1e-5, atol=1e-7)
    if len(set(logits)) == len(logits):
        np.testing.assert_allclose(probs.tolist(), by_definition(logits, params), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (SamplingParams(1.0), [0.5, 0.25, 0.125, 0.125]),
        (SamplingParams(0.5), [16 / 22, 4 / 22, 1 / 22, 1 / 22]),
        (SamplingParams(1.0, top_k=1), [1, 0, 0, 0]),
        (SamplingParams(1.0, top_k=2), [2 / 3, 1 / 3, 0, 0]),
        (SamplingParams(1.0, top_k=3), [0.5, 0.25, 0.125, 0.125]),  # the third and the fourth are equal
        (SamplingParams(1.0, top_k=4), [0.5, 0.25, 0.125, 0.125]),
        (SamplingParams(1.0, top_k=99), [0.5, 0.25, 0.125, 0.125]),
        (SamplingParams(1.0, top_p=0.49), [1, 0, 0, 0]),
        (SamplingParams(1.0, top_p=0.51), [2 / 3, 1 / 3, 0, 0]),
        (SamplingParams(1.0, top_p=1e-6), [1, 0, 0, 0]),
        (SamplingParams(1.0, top_k=2, top_p=0.6), [1, 0, 0, 0]),  # top-k makes the first 2/3
        (SamplingParams(0.5, top_p=0.7), [1, 0, 0, 0]),  # the temperature makes the first 16/22
    ],
)
def test_probabilities_by_hand(params: SamplingParams, expected: list[float]) -> None:
    logits = torch.tensor([0.5, 0.25, 0.125, 0.125]).log()
    np.testing.assert_allclose(probabilities(logits, params).tolist(), expected, rtol=1e-5)


def test_the_nucleus_of_equal_tokens_keeps_as_many_as_it_needs() -> None:
    for top_p, expected in ((0.25, [0.5] * 2), (0.3, [1 / 3] * 3)):  # two reach a quarter exactly
        probs = probabilities(torch.zeros(8), SamplingParams(1.0, top_p=top_p))
        assert sorted(probs.tolist(), reverse=True)[: len(expected) + 1] == pytest.approx([*expected, 0.0])


def test_rows_are_independent_and_low_precision_is_widened() -> None:
    logits = torch.randn(2, 3, 7, generator=torch.Generator().manual_seed(0)).bfloat16()
    params = SamplingParams(0.8, top_k=4, top_p=0.9)
    probs = probabilities(logits, params)
    assert probs.dtype == torch.float32
    for row in np.ndindex(2, 3):
        np.testing.assert_allclose(
            probs[row].tolist(), by_definition(logits[row].tolist(), params), atol=1e-6
        )


def test_a_greedy_distribution_is_refused() -> None:
    assert SamplingParams().is_greedy
    assert not SamplingParams(0.1).is_greedy
    with pytest.raises(ValueError, match="argmax"):
        probabilities(torch.zeros(3), SamplingParams(0.0))


@pytest.mark.parametrize(
    "weights", [[0.1, 0.2, 0.3, 0.4], [0, 0, 5, 0, 1, 0, 0], [1e-3, 0, 2e-3, 0], [3.0], [0, 7.0, 0]]
)
def test_draws_have_the_weights_frequencies(weights: list[float]) -> None:
    rows = torch.tensor(weights).expand(20_000, -1)
    picks = draw(rows, torch.Generator().manual_seed(5))
    assert picks.dtype == torch.int64
    counts = torch.bincount(picks, minlength=len(weights)).numpy()
    assert (counts[np.array(weights) == 0] == 0).all()
    if np.count_nonzero(weights) > 1:
        assert chi_square_p(counts, np.array(weights) / sum(weights)) > 1e-3


def test_rows_are_drawn_each_from_its_own_weights() -> None:
    weights = torch.eye(6)[[3, 0, 5, 2]] * torch.tensor([[1e-6], [1.0], [1e6], [3.0]])
    assert draw(weights, torch.Generator()).tolist() == [3, 0, 5, 2]


@pytest.mark.parametrize(
    ("uniform", "picked"), [(0.0, 1), (0.2, 1), (0.26, 3), (0.999, 3), (LARGEST_UNIFORM, 3)]
)
def test_extreme_uniform_numbers_hit_only_weights(
    monkeypatch: pytest.MonkeyPatch, uniform: float, picked: int
) -> None:
    monkeypatch.setattr(torch, "rand", lambda size, **_: torch.full(size, uniform, dtype=torch.float64))
    assert draw(torch.tensor([[0, 1.0, 0, 3.0, 0, 0]]), torch.Generator()).tolist() == [picked]


def test_a_uniform_number_rounded_up_to_the_total_stays_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "rand", lambda size, **_: torch.ones(size, dtype=torch.float64))
    assert draw(torch.tensor([[0.3, 0.7, 0, 0]]), torch.Generator()).tolist() == [1]


@pytest.mark.parametrize("index", [1, 500_000, *range(899_990, 900_003), 1_000_000])
def test_tiny_weights_behind_a_large_one_are_told_apart(monkeypatch: pytest.MonkeyPatch, index: int) -> None:
    # twelve of them fit between two float32 numbers at 1
    weights = torch.full((1, 1_000_001), 1e-8)
    weights[0, 0] = 1.0
    tiny = weights[0, 1].double().item()
    uniform = (1.0 + (index - 0.5) * tiny) / (1.0 + 1_000_000 * tiny)
    monkeypatch.setattr(torch, "rand", lambda size, **_: torch.full(size, uniform, dtype=torch.float64))
    assert draw(weights, torch.Generator()).item() == index


positive_weights = st.lists(
    st.sampled_from([0.0, 0.0, 1e-30, 1e-6, 0.5, 1.0, 100.0]), min_size=1, max_size=12
)


@given(positive_weights.filter(any), st.integers(0, 2**32))
def test_an_index_without_weight_is_never_drawn(weights: list[float], seed: int) -> None:
    rows = torch.tensor(weights).expand(50, -1)
    picks = draw(rows, torch.Generator().manual_seed(seed))
    assert all(weights[pick] > 0 for pick in picks.tolist())
