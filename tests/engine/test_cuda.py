"""The same equalities on a CUDA device; skipped where there is none."""

from __future__ import annotations

import pytest
import torch
from engine.random_models import random_transformer

from harness.engine.drafters.independent import IndependentDrafter
from harness.engine.loop import Decoder
from harness.engine.sampling import SamplingParams

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("k", [1, 4])
def test_greedy_speculation_equals_the_baseline_on_cuda(k: int) -> None:
    target = random_transformer(0, device="cuda")
    drafter = IndependentDrafter(random_transformer(1, device="cuda"), capacity=64)
    settings = {"sampling": SamplingParams(), "max_new_tokens": 24}
    expected = Decoder(target, capacity=64).decode([1, 2, 3], **settings).tokens
    assert Decoder(target, capacity=64, drafter=drafter, k=k).decode([1, 2, 3], **settings).tokens == expected


def test_cuda_and_cpu_agree_in_float32() -> None:
    outputs = [
        Decoder(random_transformer(0, device=device), capacity=64)
        .decode([1, 2, 3], sampling=SamplingParams(), max_new_tokens=16)
        .tokens
        for device in ("cpu", "cuda")
    ]
    assert outputs[0] == outputs[1]
