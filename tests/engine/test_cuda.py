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
    draft_model = random_transformer(1, device="cuda")
    drafter = IndependentDrafter(draft_model, cache=draft_model.new_cache(capacity=64))
    settings = {"sampling": SamplingParams(), "max_new_tokens": 24}
    expected = Decoder(target, cache=target.new_cache(capacity=64)).decode([1, 2, 3], **settings).tokens
    assert (
        Decoder(target, cache=target.new_cache(capacity=64), drafter=drafter, k=k)
        .decode([1, 2, 3], **settings)
        .tokens
        == expected
    )


def test_cuda_and_cpu_agree_in_float32() -> None:
    models = [random_transformer(0, device=device) for device in ("cpu", "cuda")]
    outputs = [
        Decoder(model, cache=model.new_cache(capacity=64))
        .decode([1, 2, 3], sampling=SamplingParams(), max_new_tokens=16)
        .tokens
        for model in models
    ]
    assert outputs[0] == outputs[1]
