"""The same equalities on a CUDA device; skipped where there is none."""

from __future__ import annotations

import pytest
import torch
from engine.random_models import random_transformer

from harness.engine.drafters.independent import IndependentDrafter
from harness.engine.loop import Decoder
from harness.engine.quantized_linear import FP8_CAPABILITY, make_quantized_linear
from harness.engine.sampling import SamplingParams
from harness.engine.sequence import Request
from harness.engine.step_graphs import SWITCH

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


@pytest.mark.parametrize("sampling", [SamplingParams(), SamplingParams(1.0)])
def test_batches_equal_single_sequences_on_cuda(sampling: SamplingParams) -> None:
    target, draft_model = (random_transformer(seed, device="cuda") for seed in (0, 1))

    def decoder(batch: int) -> Decoder:
        caches = [model.new_cache(batch=batch, capacity=120) for model in (target, draft_model)]
        return Decoder(target, cache=caches[0], drafter=IndependentDrafter(draft_model, cache=caches[1]), k=3)

    requests = [Request([1], 20, 1), Request([2, 3] * 45, 30, 2), Request([4, 4, 1], 9, 3)]
    single = decoder(1)
    alone = [single.decode_batch([request], sampling=sampling)[0].tokens for request in requests]
    assert [found.tokens for found in decoder(3).decode_batch(requests, sampling=sampling)] == alone


@pytest.mark.parametrize("scheme", ["int8", "int4", "fp8"])
def test_quantised_products_stand_for_their_codes_on_cuda(scheme: str) -> None:
    weight = torch.randn(64, 128, generator=torch.Generator().manual_seed(0)).to("cuda", torch.bfloat16)
    if scheme == "fp8" and torch.cuda.get_device_capability() < FP8_CAPABILITY:
        pytest.skip("needs a GPU with 8-bit floats")
    linear = make_quantized_linear(weight, None, scheme)
    for rows in (1, 5, 16):
        x = torch.randn(rows, 128, generator=torch.Generator().manual_seed(rows)).to("cuda", torch.bfloat16)
        exact = x.float() @ weight.float().T
        error = (linear(x).float() - exact).norm() / exact.norm()
        assert error < {"int8": 0.02, "int4": 0.15, "fp8": 0.06}[scheme]
        torch.testing.assert_close(linear(x)[:1], linear(x[:1]), rtol=0.02, atol=0.1)


def test_cuda_and_cpu_agree_in_float32() -> None:
    models = [random_transformer(0, device=device) for device in ("cpu", "cuda")]
    outputs = [
        Decoder(model, cache=model.new_cache(capacity=64))
        .decode([1, 2, 3], sampling=SamplingParams(), max_new_tokens=16)
        .tokens
        for model in models
    ]
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_graphs_decode_what_single_launches_decode(
    temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = []
    for switch in ("1", "0"):
        monkeypatch.setenv(SWITCH, switch)
        target, draft_model = (random_transformer(seed, device="cuda") for seed in (0, 1))
        assert target.has_graphs == (switch == "1")
        caches = [model.new_cache(batch=3, capacity=120) for model in (target, draft_model)]
        decoder = Decoder(
            target, cache=caches[0], drafter=IndependentDrafter(draft_model, cache=caches[1]), k=3
        )
        requests = [Request([1], 40, 1), Request([2, 3] * 30, 30, 2), Request([4, 4, 1], 50, 3)]
        decoded = decoder.decode_batch(requests, sampling=SamplingParams(temperature))
        outputs.append([one.tokens for one in decoded])
        if switch == "1":
            assert target._graphs is not None
            assert target.has_graphs
            assert target._graphs._captured[caches[0]]
    assert outputs[0] == outputs[1]
