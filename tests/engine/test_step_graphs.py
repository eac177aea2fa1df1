"""What CUDA graphs capture, run on any device: forwards in shapes that don't depend on the lengths."""

from __future__ import annotations

import logging

import pytest
import torch
from engine.random_models import random_transformer
from torch.nn import functional

from harness.engine.attention import attend, attend_folded
from harness.engine.cache import KVCache, Placement, causal_mask, static_placement
from harness.engine.step_graphs import MOST_NEW, StepGraphs, step_graphs

MODEL = random_transformer(0)
CAPACITY = 24
VOCAB = MODEL.architecture.vocab_size


def filled_cache(lengths: list[int]) -> KVCache:
    cache = MODEL.new_cache(batch=len(lengths), capacity=CAPACITY)
    tokens = torch.arange(len(lengths) * max(lengths)).view(len(lengths), -1) % VOCAB
    MODEL.forward(tokens, cache)
    cache.lengths = list(lengths)
    return cache


@pytest.mark.parametrize("lengths", [[5], [7, 7, 7], [3, 9, 1], [24 - 4, 2]])
@pytest.mark.parametrize("new", [1, 4])
def test_static_shapes_give_what_growing_ones_give(lengths: list[int], new: int) -> None:
    growing, static = filled_cache(lengths), filled_cache(lengths)
    tokens = (torch.arange(len(lengths) * new) * 7 % VOCAB).view(len(lengths), new)
    expected = MODEL.forward(tokens, growing)
    placement = static_placement(static, torch.tensor(lengths), new)
    found = MODEL.run(functional.embedding(tokens, MODEL.embeddings), static, placement)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    for layer in range(len(static.keys)):
        for row, length in enumerate(lengths):
            for one, other in ((static.keys, growing.keys), (static.values, growing.values)):
                torch.testing.assert_close(
                    one[layer][row, :, : length + new], other[layer][row, :, : length + new]
                )


@pytest.mark.parametrize("num_heads", [2, 6])
def test_heads_folded_into_rows_attend_as_groups_do(num_heads: int) -> None:
    generator = torch.Generator().manual_seed(num_heads)
    queries = torch.randn(3, num_heads, 4, 16, generator=generator)
    keys, values = torch.randn(2, 3, 2, 20, 16, generator=generator)
    mask = causal_mask([3, 16, 9], 4, 20, torch.device("cpu"))
    expected = attend(queries, keys, values, Placement(total=20, start=None, mask=mask))
    torch.testing.assert_close(attend_folded(queries, keys, values, mask), expected)


def test_cpus_have_no_graphs() -> None:
    assert step_graphs(MODEL._run_layers, torch.device("cpu")) is None
    assert not MODEL.has_graphs


def test_a_capture_that_fails_leaves_the_layers_to_be_run_one_by_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried: list[int] = []

    def fail(*_: object) -> None:
        tried.append(1)
        raise RuntimeError("operation not permitted when stream is capturing")

    graphs, cache = StepGraphs(MODEL._run_layers), filled_cache([5])
    monkeypatch.setattr(graphs, "_capture", fail)
    x = torch.zeros(1, 1, MODEL.architecture.hidden_size)
    with caplog.at_level(logging.WARNING):
        assert [graphs.run(x, cache) for _ in range(5)] == [None] * 5
    # the first forwards of a shape aren't captured, and one failure is enough
    assert len(tried) == 1
    assert not graphs.is_running
    assert "CUDA graphs are left out" in caplog.text


def test_long_forwards_are_not_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = StepGraphs(MODEL._run_layers)
    monkeypatch.setattr(graphs, "_capture", lambda *_: pytest.fail("captured"))
    x = torch.zeros(1, MOST_NEW + 1, MODEL.architecture.hidden_size)
    cache = filled_cache([5])
    assert [graphs.run(x, cache) for _ in range(5)] == [None] * 5
