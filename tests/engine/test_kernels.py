from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from engine.random_models import all_logits, reference_logits, reference_model, save_checkpoint
from torch import Tensor

from harness.engine.compiled import build
from harness.engine.compiled.packing import KINDS, pack
from harness.engine.compiled.transformer import CompiledLinear, CompiledTransformer
from harness.engine.drafters.ngram import NgramDrafter
from harness.engine.loop import Decoder
from harness.engine.model import Transformer
from harness.engine.sampling import SamplingParams
from harness.engine.weights import load_transformer

KERNELS = build.load_kernels()
needs_kernels = pytest.mark.skipif(isinstance(KERNELS, str), reason=f"no compiled kernels: {KERNELS}")
WIDE: dict[str, Any] = {"hidden_size": 128, "intermediate_size": 160, "head_dim": 32, "vocab_size": 84}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama-biases": ("llama", {"attention_bias": True, "mlp_bias": True, "num_key_value_heads": 4}),
    "qwen2": ("qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("qwen3", {"head_dim": 64}),
    "mistral": ("mistral", {"sliding_window": 64}),
}


def random_matrix(out: int, size: int) -> Tensor:
    return torch.randn(out, size, generator=torch.Generator().manual_seed(out))


def errors(got: Tensor, wanted: Tensor) -> float:
    """The root mean square error in units of the wanted values' own."""
    return float((got - wanted).norm() / wanted.norm())


@pytest.mark.parametrize(("scheme", "limit"), [("none", 0.003), ("int8", 0.008), ("int4", 0.09)])
def test_packing_keeps_a_matrix_up_to_its_rounding(scheme: str, limit: float) -> None:
    weight = random_matrix(37, 96)
    packed = pack(weight, scheme=scheme)
    assert 0 < errors(packed.dequantise(), weight) < limit
    bits = 8 * packed.num_bytes / (48 * 96)  # 37 outputs are padded to 48
    assert bits == pytest.approx({"none": 16, "int8": 8 + 32 / 96, "int4": 5}[scheme])


def test_int4_keeps_weights_on_its_grid() -> None:
    steps = torch.randint(0, 16, (32, 64), generator=torch.Generator().manual_seed(1)).float()
    steps[:, ::32], steps[:, 1::32] = 0, 15  # each group spans the whole range
    torch.testing.assert_close(pack(steps * 0.25 - 1.5, scheme="int4").dequantise(), steps * 0.25 - 1.5)


@needs_kernels
@pytest.mark.parametrize("scheme", KINDS)
@pytest.mark.parametrize("rows", [1, 2, 3, 5, 6, 8, 67])
@pytest.mark.parametrize("outputs", [37, 245])
def test_products_agree_with_the_packed_matrix(scheme: str, rows: int, outputs: int) -> None:
    x, bias = random_matrix(rows, 96), torch.linspace(-1, 1, outputs)
    packed = pack(random_matrix(outputs, 96), bias, scheme=scheme)
    got = CompiledLinear(KERNELS, packed)(x)
    assert got.shape == (rows, outputs)
    # what is left is the rounding of the inputs: bfloat16, or int8 with a scale per 32
    assert errors(got, x @ packed.dequantise().T + bias) < (0.004 if scheme == "none" else 0.012)
    # exact where nothing has to be rounded: a row of int8 values whose largest is 127
    exact = torch.randint(-100, 101, (rows, 96), generator=torch.Generator().manual_seed(rows)).float()
    exact[:, ::32] = 127
    torch.testing.assert_close(
        CompiledLinear(KERNELS, packed)(exact), exact @ packed.dequantise().T + bias, rtol=1e-4, atol=2e-3
    )


@pytest.fixture(scope="module", params=FAMILIES)
def models(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """Transformers' model with weights rounded to bfloat16, and the folder it is saved in."""
    family, config = FAMILIES[request.param]
    model = reference_model(family, **{**WIDE, **config})
    for parameter in model.parameters():
        parameter.data = (0.4 * parameter.data).bfloat16().float() if parameter.ndim > 1 else parameter.data
    return model, save_checkpoint(model, tmp_path_factory.mktemp(request.param))


PROMPT = torch.randint(0, 84, (24,), generator=torch.Generator().manual_seed(3)).tolist()


@needs_kernels
def test_a_forward_gives_transformers_logits(models: tuple[Any, Path]) -> None:
    reference, folder = models
    compiled = load_transformer(folder)
    assert isinstance(compiled, CompiledTransformer)
    wanted = reference_logits(reference, PROMPT)
    ours = errors(all_logits(compiled, torch.tensor([PROMPT]))[0].float(), wanted)
    # rounding its inputs to bfloat16 is all that parts the kernels from float32
    assert ours < 0.02


@needs_kernels
def test_a_row_has_the_same_bits_whatever_runs_beside_it(models: tuple[Any, Path]) -> None:
    model = load_transformer(models[1])
    alone = model.new_cache(batch=1, capacity=40)
    singly = []
    for token in PROMPT:
        singly.append(model.prefill(torch.tensor([[token]]), alone))
    together = model.new_cache(batch=3, capacity=40)
    together.lengths = [0, 0, 0]
    first = model.forward(torch.tensor([PROMPT[:9], PROMPT[3:12], PROMPT[:9]]), together)
    assert torch.equal(first[0], torch.cat(singly[:9]))
    together.lengths = [9, 2, 5]  # each sequence goes on from its own length
    rest = model.forward(torch.tensor([PROMPT[9:13], PROMPT[5:9], PROMPT[5:9]]), together)
    assert torch.equal(rest[0], torch.cat(singly[9:13]))
    assert torch.equal(rest[2], torch.cat(singly[5:9]))
    together.lengths = [9, 2, 5]
    uneven = model.forward_rows([PROMPT[9:10], PROMPT[5:8], PROMPT[5:9]], together)
    assert torch.equal(uneven[[0, 4, 5, 6, 7]], torch.cat([singly[9], *singly[5:9]]))
    assert torch.equal(together.keys[1][2, :, :9], alone.keys[1][0, :, :9])


@needs_kernels
def test_attention_over_several_blocks_of_keys(tmp_path: Path) -> None:
    reference = reference_model("llama", **WIDE)
    for parameter in reference.parameters():
        parameter.data = parameter.data.bfloat16().float()
    model = load_transformer(save_checkpoint(reference, tmp_path))
    tokens = (PROMPT * 4)[:91]
    assert (
        errors(all_logits(model, torch.tensor([tokens]))[0].float(), reference_logits(reference, tokens))
        < 0.05
    )
    alone, together = model.new_cache(capacity=96), model.new_cache(capacity=96)
    singly = [model.prefill(torch.tensor([[token]]), alone) for token in tokens]
    model.prefill(torch.tensor([tokens[:78]]), together)
    assert torch.equal(model.forward(torch.tensor([tokens[78:]]), together)[0], torch.cat(singly[78:]))


@needs_kernels
def test_greedy_speculation_gives_the_baselines_tokens_in_bfloat16(models: tuple[Any, Path]) -> None:
    model = load_transformer(models[1])
    prompt = PROMPT[:6] * 2
    outputs = []
    for drafter, k in ((None, 0), (NgramDrafter(min_ngram=1, max_ngram=3), 5)):
        decoder = Decoder(model, cache=model.new_cache(capacity=64), drafter=drafter, k=k)
        outputs.append(decoder.decode(prompt, sampling=SamplingParams(), max_new_tokens=50).tokens)
    assert outputs[0] == outputs[1]


def test_what_the_kernels_cannot_run_goes_to_pytorch(
    models: tuple[Any, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert type(load_transformer(models[1], dtype=torch.float32)) is Transformer
    narrow = save_checkpoint(reference_model("llama", hidden_size=40), tmp_path)
    assert type(load_transformer(narrow)) is Transformer
    monkeypatch.setenv(build.SWITCH, "torch")
    build.load_kernels.cache_clear()
    try:
        assert type(load_transformer(models[1])) is Transformer
    finally:
        build.load_kernels.cache_clear()


def test_a_failing_compiler_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HARNESS_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(build, "_cpu_flags", lambda: build._NEEDED)
    compiler = tmp_path / "cc"
    compiler.write_text(
        "#!/bin/sh\ncase $1 in --version) echo 1.0;; *) echo 'no such flag' >&2; exit 1;; esac\n"
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    build.load_kernels.cache_clear()
    try:
        assert build.load_kernels() == f"{compiler} failed: no such flag"
        monkeypatch.setattr(build, "_cpu_flags", lambda: frozenset({"avx2"}))
        build.load_kernels.cache_clear()
        assert "the CPU lacks avx512_bf16" in build.load_kernels()
    finally:
        build.load_kernels.cache_clear()
    assert not list((tmp_path / "kernels").iterdir())  # nothing half-made stays behind
