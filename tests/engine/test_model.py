from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from engine.random_models import SHAPE, all_logits, reference_logits, reference_model, save_checkpoint
from safetensors.torch import load_file, save_file

from harness.engine.architecture import Architecture, RopeScaling
from harness.engine.linear import make_linear
from harness.engine.weights import load_head, load_transformer
from harness.errors import ModelSourceError, UnsupportedError

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 50.0,  # small, so that long wavelengths reach all three pieces of the scaling
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-untied": ("llama", {}),
    "llama-tied": ("llama", {"tie_word_embeddings": True}),
    "llama-attention-bias": ("llama", {"attention_bias": True}),
    "llama-mlp-bias": ("llama", {"mlp_bias": True}),
    "llama-head-size": ("llama", {"head_dim": 12}),
    "llama-every-head-its-own": ("llama", {"num_key_value_heads": 4}),
    "llama3-rope": ("llama", {"rope_parameters": LLAMA3_ROPE}),
    "mistral-window": ("mistral", {"sliding_window": 64}),
    "qwen2": ("qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("qwen3", {"head_dim": 16}),
    "qwen3-attention-bias": ("qwen3", {"head_dim": 12, "attention_bias": True}),
}
PROMPT = torch.randint(0, 40, (24,), generator=torch.Generator().manual_seed(3)).tolist()
LLAMA = {**SHAPE, "model_type": "llama"}
CLOSE = {"rtol": 1e-4, "atol": 2e-4}


@pytest.fixture(scope="module", params=CASES)
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """Transformers' model and the folder it is saved in."""
    family, config = CASES[request.param]
    model = reference_model(family, **config)
    return model, save_checkpoint(model, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    model = reference_model("llama")
    return model, save_checkpoint(model, tmp_path_factory.mktemp("llama"))


def test_a_whole_prompt_gives_transformers_logits(checkpoint: tuple[Any, Path]) -> None:
    reference, folder = checkpoint
    ours = all_logits(load_transformer(folder, dtype=torch.float32), torch.tensor([PROMPT]))[0]
    torch.testing.assert_close(ours, reference_logits(reference, PROMPT), **CLOSE)


@pytest.mark.parametrize("chunks", [[1] * 24, [20, 4], [1, 23], [7, 1, 5, 11]])
@torch.inference_mode()
def test_chunks_give_transformers_logits(checkpoint: tuple[Any, Path], chunks: list[int]) -> None:
    reference, folder = checkpoint
    model = load_transformer(folder, dtype=torch.float32)
    cache = model.new_cache(batch=1, capacity=24)
    logits = []
    for size in chunks:
        start = cache.lengths[0]
        logits.append(model.head(model.forward(torch.tensor([PROMPT[start : start + size]]), cache))[0])
        cache.lengths[0] += size
    torch.testing.assert_close(torch.cat(logits), reference_logits(reference, PROMPT), **CLOSE)


@torch.inference_mode()
def test_sequences_of_different_lengths_equal_single_runs(checkpoint: tuple[Any, Path]) -> None:
    reference, folder = checkpoint
    model = load_transformer(folder, dtype=torch.float32)
    sequences = [PROMPT[:3], PROMPT[5:17], PROMPT[10:17]]
    cache = model.new_cache(batch=3, capacity=24)
    for row, tokens in enumerate(sequences):
        view = cache.rows(row, row + 1)
        model.prefill(torch.tensor([tokens]), view)
        cache.lengths[row] = view.lengths[0]
    # four new tokens each, of which each sequence keeps another number; then two more over the leftovers
    for new, kept in ((4, (1, 4, 2)), (2, (2, 2, 2))):
        tokens = torch.randint(0, 40, (3, new), generator=torch.Generator().manual_seed(new))
        logits = model.head(model.forward(tokens, cache))
        for row, number in enumerate(kept):
            alone = reference_logits(reference, sequences[row] + tokens[row].tolist())[-new:]
            torch.testing.assert_close(logits[row], alone, **CLOSE)
            sequences[row] = sequences[row] + tokens[row, :number].tolist()
            cache.lengths[row] += number


@torch.inference_mode()
def test_rows_past_the_length_are_never_seen(llama: tuple[Any, Path]) -> None:
    reference, folder = llama
    model = load_transformer(folder, dtype=torch.float32)
    cache = model.new_cache(batch=1, capacity=24)
    model.prefill(torch.tensor([PROMPT[:10]]), cache)
    model.forward(torch.tensor([PROMPT[15:20]]), cache)  # never committed
    hidden = model.prefill(torch.tensor([PROMPT[10:12]]), cache)
    torch.testing.assert_close(model.head(hidden)[0], reference_logits(reference, PROMPT[:12])[-1], **CLOSE)
    cache.clear()
    hidden = model.prefill(torch.tensor([PROMPT[4:6]]), cache)
    torch.testing.assert_close(model.head(hidden)[0], reference_logits(reference, PROMPT[4:6])[-1], **CLOSE)


def test_bfloat16_is_as_close_as_transformers_bfloat16(checkpoint: tuple[Any, Path]) -> None:
    from transformers import AutoModelForCausalLM

    reference, folder = checkpoint
    exact = reference_logits(reference, PROMPT)
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    ours = load_transformer(folder)
    assert ours.dtype == torch.bfloat16
    our_error = (all_logits(ours, torch.tensor([PROMPT]))[0].float() - exact).std()
    assert our_error < 1.5 * (reference_logits(theirs, PROMPT).float() - exact).std()
    assert our_error < 0.1 * exact.std()


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_head_over_a_subset_gives_those_columns(tmp_path: Path, tied: bool, dtype: torch.dtype) -> None:
    folder = save_checkpoint(reference_model("llama", tie_word_embeddings=tied), tmp_path)
    rows = torch.tensor([17, 3, 39, 0, 4])
    hidden = torch.randn(2, 32, generator=torch.Generator().manual_seed(0)).to(dtype)
    full = load_transformer(folder, dtype=dtype).head(hidden)
    torch.testing.assert_close(load_head(folder, rows, dtype=dtype)(hidden), full[:, rows])


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2**-6)])
@pytest.mark.parametrize("shape", [(1,), (5,), (2, 3)])
def test_products_are_right_with_and_without_a_residual(
    shape: tuple[int, ...], dtype: torch.dtype, tolerance: float, bias: bool
) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = ((*shape, 48), (33, 48), (33,), (*shape, 33))
    x, weight, offset, residual = (torch.randn(*s, generator=generator).to(dtype) for s in shapes)
    linear, before = make_linear(weight, offset if bias else None), residual.clone()
    exact = x.double() @ weight.double().T + (offset.double() if bias else 0.0)
    close = {"rtol": tolerance, "atol": tolerance}
    torch.testing.assert_close(linear(x).double(), exact, **close)
    torch.testing.assert_close(linear.add_to(residual, x).double(), residual.double() + exact, **close)
    assert torch.equal(residual, before)


def test_bfloat16_runs_where_onednn_lacks_it(
    llama: tuple[Any, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError(
            "bf16 path needs the cpu support avx_ne_convert or avx512bw, avx512vl and avx512dq"
        )

    expected = all_logits(load_transformer(llama[1]), torch.tensor([PROMPT]))
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    monkeypatch.setattr(torch.ops.mkldnn, "_reorder_linear_weight", refuse)
    plain = all_logits(load_transformer(llama[1]), torch.tensor([PROMPT]))
    torch.testing.assert_close(plain, expected, rtol=0.05, atol=0.3)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model_type": "gpt2"}, "gpt2"),
        ({"model_type": None}, "model_type"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "yarn"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "linear"),
        ({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4}}, "dynamic"),
    ],
)
def test_what_isnt_implemented_is_refused(tmp_path: Path, change: dict[str, Any], named: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, **change}))
    with pytest.raises(UnsupportedError, match=named):
        load_transformer(tmp_path)


def test_older_and_newer_rope_fields_mean_the_same() -> None:
    scaling = {key: value for key, value in LLAMA3_ROPE.items() if key != "rope_theta"}
    older = Architecture.from_config({**LLAMA, "rope_theta": 50.0, "rope_scaling": scaling})
    assert older == Architecture.from_config({**LLAMA, "rope_parameters": LLAMA3_ROPE})
    assert (older.rope_theta, older.rope_scaling) == (50.0, RopeScaling(8.0, 1.0, 4.0, 32))
    plain = Architecture.from_config({**LLAMA, "rope_theta": 7e4, "rope_scaling": None})
    assert (plain.rope_theta, plain.rope_scaling) == (7e4, None)


@pytest.mark.parametrize(
    ("change", "max_positions"),
    [
        ({}, 96),
        ({"model_type": "mistral", "sliding_window": 64}, 64),
        ({"model_type": "mistral", "sliding_window": None}, 96),
        ({"model_type": "mistral", "sliding_window": 4096}, 96),
        ({"model_type": "qwen2", "sliding_window": 64, "use_sliding_window": False}, 96),
        ({"model_type": "qwen2", "sliding_window": 64, "use_sliding_window": True}, 64),
    ],
)
def test_the_context_ends_where_a_sliding_window_would_matter(
    llama: tuple[Any, Path], change: dict[str, Any], max_positions: int
) -> None:
    architecture = Architecture.from_config({**LLAMA, **change})
    assert architecture.max_positions == max_positions
    model = load_transformer(llama[1], dtype=torch.float32)
    model.architecture = architecture
    model.new_cache(batch=1, capacity=max_positions)
    with pytest.raises(UnsupportedError, match=f"{max_positions + 1} tokens.*end at {max_positions}"):
        model.new_cache(batch=1, capacity=max_positions + 1)


@pytest.mark.parametrize("tied", [False, True])
def test_sizes_are_counted(tied: bool) -> None:
    reference = reference_model("llama", tie_word_embeddings=tied)
    architecture = Architecture.from_config(reference.config.to_dict())
    assert architecture.num_parameters == sum(p.numel() for p in reference.parameters())
    assert architecture.kv_bytes_per_token == 2 * 2 * 2 * 2 * 8  # k and v, 2 bytes, 2 layers, 2 heads, 8 each


@pytest.mark.parametrize("keeps_index", [True, False])
def test_a_checkpoint_may_be_split_over_files(
    llama: tuple[Any, Path], tmp_path: Path, keeps_index: bool
) -> None:
    reference, folder = llama
    save_checkpoint(reference, tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    if not keeps_index:
        (tmp_path / "model.safetensors.index.json").unlink()
    models = (load_transformer(path, dtype=torch.float32) for path in (folder, tmp_path))
    whole, split = (all_logits(model, torch.tensor([PROMPT])) for model in models)
    assert torch.equal(whole, split)


@pytest.mark.parametrize(
    "lacking", ["model.layers.1.mlp.down_proj.weight", "lm_head.weight", "model.norm.weight"]
)
def test_a_missing_tensor_is_named(llama: tuple[Any, Path], tmp_path: Path, lacking: str) -> None:
    tensors = load_file(llama[1] / "model.safetensors")
    del tensors[lacking]
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_bytes((llama[1] / "config.json").read_bytes())
    with pytest.raises(ModelSourceError, match=lacking):
        load_transformer(tmp_path)


def test_pickled_weights_are_refused(llama: tuple[Any, Path], tmp_path: Path) -> None:
    torch.save(llama[0].state_dict(), tmp_path / "pytorch_model.bin")
    (tmp_path / "config.json").write_bytes((llama[1] / "config.json").read_bytes())
    with pytest.raises(ModelSourceError, match="pickled"):
        load_transformer(tmp_path)


@pytest.mark.parametrize("damage", ["no shard", "short shard", "no index", "empty index"])
def test_damaged_files_are_named(llama: tuple[Any, Path], tmp_path: Path, damage: str) -> None:
    save_checkpoint(llama[0], tmp_path, max_shard_size="20KB")
    index, shard = tmp_path / "model.safetensors.index.json", min(tmp_path.glob("*.safetensors"))
    if damage == "no shard":
        shard.unlink()
    elif damage == "short shard":
        shard.write_bytes(shard.read_bytes()[:5])
    else:
        index.write_text("{" if damage == "no index" else "{}")
    with pytest.raises(ModelSourceError, match="Fetch it anew"):
        load_transformer(tmp_path)


@pytest.mark.parametrize("content", [None, "{", '{"model_type": "llama"}', "[]"])
def test_an_unreadable_configuration_is_named(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelSourceError, match=r"config\.json"):
        load_transformer(tmp_path)


@pytest.mark.model
def test_the_default_target_gives_transformers_logits(default_target: Any) -> None:
    from transformers import AutoModelForCausalLM

    reference = AutoModelForCausalLM.from_pretrained(default_target.path, dtype=torch.float32).eval()
    tokens = torch.randint(0, 40_000, (12,), generator=torch.Generator().manual_seed(0)).tolist()
    theirs = reference_logits(reference, tokens)
    ours = all_logits(load_transformer(default_target.path, dtype=torch.float32), torch.tensor([tokens]))[0]
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=2e-3)
    assert ours.argmax(-1).tolist() == theirs.argmax(-1).tolist()
