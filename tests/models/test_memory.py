"""Memory estimates against checkpoints of known size, and against tensors that a native session holds."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.backends.base import DecodingSettings, EngineSettings
from harness.backends.native import NativeBackend
from harness.errors import ModelSourceError, OutOfMemoryError
from harness.models.catalogue import DEFAULT_TARGET
from harness.models.checkpoint import ResolvedModel
from harness.models.free_memory import _left_in_container, free_bytes
from harness.models.memory import GIB, Load, MemoryEstimate, MemoryLayout, estimate_memory
from harness.models.sources import inspect_model, resolve_model
from harness.models.tensor_shapes import count_parameters, read_shapes
from harness.records import Variant

PLAIN = MemoryLayout("bfloat16", "bfloat16")
NONE = {"target": "none", "drafter": "none"}
LOAD = Load(context_tokens=100, prompt_tokens=60, batch_size=1, width=3)


def estimate(
    target: Path,
    *,
    drafters: tuple[Path, ...] = (),
    layout: MemoryLayout = PLAIN,
    load: Load = LOAD,
    quantization: dict[str, str] = NONE,
    free: int = GIB,
) -> MemoryEstimate:
    return estimate_memory(
        inspect_model(f"path:{target}"),
        [inspect_model(f"path:{folder}") for folder in drafters],
        layout=layout,
        load=load,
        quantization=quantization,
        free_bytes=free,
        device="cpu",
        remedies=("first", "second"),
    )


def test_headers_and_configuration_count_the_same(make_tiny_llama: Callable[..., Path]) -> None:
    for name, tied in (("tied", True), ("own-head", False)):
        folder = make_tiny_llama(name, tie_word_embeddings=tied)
        exact = count_parameters(folder)
        tensors = sum(torch.Size(shape).numel() for shape in read_shapes(folder).values())
        assert exact.total == tensors
        (folder / "model.safetensors").unlink()
        assert count_parameters(folder) == exact
        assert (exact.head == 0) == tied


def test_weights_by_dtype_and_quantisation(make_tiny_llama: Callable[..., Path]) -> None:
    folder = make_tiny_llama(tie_word_embeddings=False)
    counts = count_parameters(folder)
    kept, shrunk = counts.embeddings + counts.vectors, counts.matrices + counts.head
    for quantization, size in (("none", 2), ("int8", 1), ("fp8", 1), ("int4", 0.625)):
        found = estimate(folder, quantization={"target": quantization, "drafter": "none"})
        assert found.target.weights_bytes == pytest.approx(2 * kept + size * shrunk, abs=1)
    wide = estimate(folder, layout=MemoryLayout("float32", "float32"))
    assert wide.target.weights_bytes == 4 * counts.total


def test_keys_and_values_grow_with_batch_context_dtype_and_caches(
    make_tiny_llama: Callable[..., Path],
) -> None:
    folder = make_tiny_llama()  # 2 layers, 2 key-value heads of 16
    assert estimate(folder).target.kv_bytes == 2 * 2 * 2 * 16 * 2 * 100
    bigger = Load(context_tokens=200, prompt_tokens=60, batch_size=8, width=3)
    layout = MemoryLayout("bfloat16", "float32", target_caches=3)
    assert estimate(folder, layout=layout, load=bigger).target.kv_bytes == 2 * 2 * 2 * 16 * 4 * 200 * 8 * 3
    assert (
        estimate(folder, load=bigger).target.activation_bytes == 8 * estimate(folder).target.activation_bytes
    )


def test_what_does_not_fit_is_refused_with_sizes_and_remedies_in_order(
    make_tiny_llama: Callable[..., Path],
) -> None:
    target, drafter = make_tiny_llama("a"), make_tiny_llama("b", num_layers=1)
    needed = estimate(target, drafters=(drafter,)).needed_bytes
    estimate(target, drafters=(drafter,), free=round(needed * 1.11)).require_fit()
    with pytest.raises(OutOfMemoryError) as caught:
        estimate(target, drafters=(drafter,), free=needed).require_fit()
    message = str(caught.value)
    assert "GiB are free on cpu" in message
    assert f"path:{target}: weights" in message
    assert f"path:{drafter}: weights" in message
    assert "first; second" in message
    assert "check_memory=false" in message


def test_a_damaged_header_is_named(make_tiny_llama: Callable[..., Path]) -> None:
    folder = make_tiny_llama()
    file = folder / "model.safetensors"
    file.write_bytes(b"\xff" * 40)
    with pytest.raises(ModelSourceError, match=r"model\.safetensors: its safetensors header"):
        count_parameters(folder)


def test_a_configuration_without_sizes_is_refused(make_tiny_llama: Callable[..., Path]) -> None:
    folder = make_tiny_llama()
    (folder / "model.safetensors").unlink()
    config = json.loads((folder / "config.json").read_text())
    del config["intermediate_size"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelSourceError, match="lacks a size"):
        count_parameters(folder)


def test_a_container_limit_counts(tmp_path: Path) -> None:
    assert _left_in_container(tmp_path) is None
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 400\ninactive_file 250\n")
    assert _left_in_container(tmp_path) == 550
    (tmp_path / "memory.max").write_text("max\n")
    assert _left_in_container(tmp_path) is None


def test_free_memory_is_that_of_this_machine() -> None:
    free, device = free_bytes("cpu")
    assert device == "cpu"
    assert free > 2**20


def tensor_bytes() -> int:
    """Bytes of all tensors alive, each storage once; packed weights have none and count by their elements."""
    gc.collect()
    seen: dict[object, int] = {}
    for found in gc.get_objects():
        if not isinstance(found, torch.Tensor):
            continue
        if found.layout == torch.strided:
            storage = found.untyped_storage()
            seen[storage.data_ptr()] = storage.nbytes()
        else:
            seen["packed", id(found)] = found.numel() * found.element_size()
    return sum(seen.values())


@pytest.mark.model
def test_the_estimate_is_within_a_tenth_of_what_the_default_pair_takes(default_target: Any) -> None:
    drafter_ref = "asset:smollm2-135m-draft"
    drafter: ResolvedModel = resolve_model(drafter_ref, base_ref=DEFAULT_TARGET)
    options = (("draft_sampling", "sampled"), ("draft_vocab", True))
    variants = [
        Variant("autoregressive"),
        *(Variant("draft_model", k, drafter_ref, options) for k in (2, 3, 5)),
    ]
    engine = EngineSettings(default_target, "cpu", "bfloat16", 1, "none", "none")
    load = Load(context_tokens=400, prompt_tokens=300, batch_size=1, width=6)
    expected = estimate_memory(
        default_target,
        [drafter],
        layout=NativeBackend.memory_layout(engine, variants),
        load=load,
        quantization=NONE,
        free_bytes=GIB,
        device="cpu",
        remedies=(),
    )
    before = tensor_bytes()
    session = NativeBackend.open(engine)
    settings = DecodingSettings(0.0, 0, 1.0, frozenset(), load.context_tokens)
    for variant in variants:
        session.prepare(variant, drafter if variant.drafter else None, settings)
    measured = tensor_bytes() - before
    session.close()
    stated = sum(model.weights_bytes + model.kv_bytes for model in expected.models)
    assert stated == pytest.approx(measured, rel=0.1)
