"""Quantised weights: what the codes stand for, and that every kernel multiplies by exactly that."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from engine.random_models import all_logits, reference_model, save_checkpoint

from harness.engine.linear import make_linear
from harness.engine.quantize import INT4_GROUP, quantize_int4, quantize_int8
from harness.engine.quantized_linear import CPU_WIDE_ROWS, check_scheme, make_quantized_linear
from harness.engine.reading import CHUNK_TOKENS, Reading, read_text
from harness.engine.weights import load_head, load_transformer
from harness.errors import UnsupportedError

CPU = torch.device("cpu")
QUANTIZE = {"int8": quantize_int8, "int4": quantize_int4}


def random_matrix(rows: int, columns: int, *, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def test_int8_is_off_by_at_most_half_a_step() -> None:
    weight = random_matrix(24, 40) * torch.arange(1, 25)[:, None]
    quantized = quantize_int8(weight)
    steps = weight.abs().amax(1, keepdim=True) / 127
    assert quantized.codes.dtype == torch.int8
    assert ((quantized.dequantized() - weight).abs() <= 0.501 * steps).all()
    assert (quantized.codes.abs().amax(1) == 127).all()


def test_int4_is_off_by_at_most_half_a_step_of_its_group() -> None:
    weight = random_matrix(6, 3 * INT4_GROUP) + 5 * random_matrix(6, 1)
    quantized = quantize_int4(weight)
    groups = weight.view(6, 3, INT4_GROUP)
    steps = (groups.amax(2) - groups.amin(2)) / 15
    error = (quantized.dequantized() - weight).view(6, 3, INT4_GROUP).abs().amax(2)
    assert (error <= 0.501 * steps).all()
    assert (quantized.codes.min(), quantized.codes.max()) == (0, 15)


def test_what_int4_can_say_it_says_exactly() -> None:
    steps = torch.randint(0, 16, (4, INT4_GROUP), generator=torch.Generator().manual_seed(1)).float()
    steps[:, 0], steps[:, 1] = 0.0, 15.0
    weight = 0.25 * steps - 2.0
    torch.testing.assert_close(quantize_int4(weight).dequantized(), weight, rtol=0, atol=1e-6)


@pytest.mark.parametrize("quantize", [quantize_int8, quantize_int4])
def test_rows_without_any_spread_stay_what_they_are(quantize: object) -> None:
    weight = torch.zeros(16, INT4_GROUP)
    assert torch.equal(quantize(weight).dequantized(), weight)  # type: ignore[operator]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scheme", ["int8", "int4"])
def test_each_kernel_multiplies_by_what_the_codes_stand_for(scheme: str, dtype: torch.dtype) -> None:
    # 40 outputs: the 4-bit kernel takes them by the sixteen
    weight, bias = random_matrix(40, 64).to(dtype), random_matrix(1, 40, seed=2)[0].to(dtype)
    meant = QUANTIZE[scheme](weight, dtype=dtype).dequantized()  # type: ignore[operator]
    linear = make_quantized_linear(weight, bias, scheme)
    tolerance = 1e-4 if dtype == torch.float32 else 0.15
    for rows in (1, 2, CPU_WIDE_ROWS[scheme] - 1, CPU_WIDE_ROWS[scheme], 16):
        x = random_matrix(rows, 64, seed=rows).to(dtype)
        expected = x.float() @ meant.T + bias.float()
        found = linear(x)
        assert found.dtype == dtype
        torch.testing.assert_close(found.float(), expected, rtol=0.02, atol=tolerance)
        torch.testing.assert_close(linear(x[None])[0], found)
        residual = random_matrix(rows, 40, seed=9).to(dtype)
        torch.testing.assert_close(
            linear.add_to(residual, x).float(), residual.float() + expected, rtol=0.02, atol=tolerance
        )


@pytest.mark.parametrize("scheme", ["int8", "int4"])
def test_a_row_does_not_hang_on_the_rows_beside_it(scheme: str) -> None:
    linear = make_quantized_linear(random_matrix(32, 64), None, scheme)
    x = random_matrix(12, 64, seed=3)
    x[1:] *= 1000  # would set the scale of activations quantised together
    torch.testing.assert_close(linear(x)[0], linear(x[:1])[0], rtol=1e-4, atol=1e-4)


def test_memory_is_that_of_both_copies() -> None:
    weight = random_matrix(64, 64).to(torch.bfloat16)
    plain = 64 * 64 * 2
    assert make_linear(weight).num_bytes == plain
    assert make_quantized_linear(weight, None, "int8").num_bytes == plain + 64 * 64 + 64 * 2
    scales = 64 * (64 // INT4_GROUP) * 2 * 2
    assert make_quantized_linear(weight, None, "int4").num_bytes == plain + 64 * 64 // 2 + scales


def test_what_a_scheme_can_not_do_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"fp8 weights need an NVIDIA GPU\. On a CPU use int8 or int4"):
        make_quantized_linear(random_matrix(32, 32), None, "fp8")
    with pytest.raises(UnsupportedError, match=r"groups of 32, .* rows of 48\. Use int8"):
        make_quantized_linear(random_matrix(16, 48), None, "int4")
    for scheme in ("none", "int8", "int4"):
        check_scheme(scheme, CPU)


@pytest.mark.parametrize("scheme", ["int8", "int4"])
def test_a_checkpoint_is_quantised_when_it_is_loaded(tmp_path: Path, scheme: str) -> None:
    reference = reference_model("llama", hidden_size=64, intermediate_size=96)
    model = load_transformer(
        save_checkpoint(reference, tmp_path / "plain"), dtype=torch.float32, scheme=scheme
    )
    tokens = torch.tensor([[5, 17, 3, 9, 30, 2, 8, 8, 1]])
    rows, hidden = torch.tensor([3, 1, 39]), random_matrix(2, 64)
    head = load_head(tmp_path / "plain", rows, dtype=torch.float32, scheme=scheme)
    torch.testing.assert_close(head(hidden), model.head(hidden)[:, rows], rtol=1e-4, atol=1e-4)
    # the same checkpoint with every matrix but the embeddings replaced by what its codes stand for
    with torch.no_grad():
        for name, parameter in reference.named_parameters():
            if name.endswith("_proj.weight") or name == "lm_head.weight":
                parameter.copy_(QUANTIZE[scheme](parameter).dequantized())  # type: ignore[operator]
    meant = load_transformer(save_checkpoint(reference, tmp_path / "meant"), dtype=torch.float32)
    torch.testing.assert_close(all_logits(model, tokens), all_logits(meant, tokens), rtol=1e-3, atol=1e-3)


def test_a_reading_is_the_models_own_prediction_token_by_token() -> None:
    from engine.random_models import random_transformer

    model = random_transformer(3, vocab_size=9)
    tokens = [1, 5, 2, 2, 8, 0, 3, 1, 7, 4][: 2 * CHUNK_TOKENS + 1]
    reading = read_text(model, tokens)
    logprobs = all_logits(model, torch.tensor([tokens]))[0].log_softmax(-1)
    expected = [-float(logprobs[place, token]) for place, token in enumerate(tokens[1:])]
    assert reading.losses_nats == pytest.approx(expected, abs=1e-4)
    assert reading.choices == logprobs[:-1].argmax(-1).tolist()
    assert reading.perplexity == pytest.approx(float(torch.tensor(expected).mean().exp()), rel=1e-4)


def test_agreement_is_a_share_of_places() -> None:
    one, other = Reading([0.0] * 4, [1, 2, 3, 4]), Reading([0.0] * 4, [1, 2, 0, 4])
    assert one.agreement(other) == 0.75
    assert one.agreement(one) == 1.0
