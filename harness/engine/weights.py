"""Load a Hugging Face checkpoint into the engine's fused layout."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from harness.engine.architecture import Architecture
from harness.engine.compiled.build import load_kernels
from harness.engine.compiled.packing import pack
from harness.engine.compiled.transformer import CompiledLinear, CompiledTransformer, PackedLayer, why_not
from harness.engine.linear import Linear, make_linear
from harness.engine.model import Layer, Transformer
from harness.engine.quantized_linear import check_scheme, make_quantized_linear
from harness.engine.rope import interleave
from harness.errors import ModelSourceError


def load_transformer(
    path: Path,
    *,
    dtype: torch.dtype = torch.bfloat16,
    device: torch.device | str = "cpu",
    scheme: str = "none",
) -> Transformer:
    """Read `config.json` and the safetensors of a checkpoint folder.

    Args:
        path: of the folder.
        dtype: of activations, and of weights that aren't quantised.
        device: where it runs.
        scheme: how to quantise all matrices but the embeddings; see `harness.engine.quantize.SCHEMES`.

    Raises:
        UnsupportedError: a family this engine doesn't implement, or a scheme that the device can't run.
        ModelSourceError: no safetensors, or a tensor missing.
    """
    architecture = Architecture.from_checkpoint(path)
    tensors = _Tensors(path, dtype, device)
    embeddings = tensors.get("model.embed_tokens.weight")
    head_weight = embeddings if architecture.tied_head else tensors.get("lm_head.weight")
    norm = tensors.get("model.norm.weight")
    indices = range(architecture.num_layers)
    if isinstance(kernels := kernels_for(architecture, dtype=dtype, device=device), str):
        make = partial(_linear, scheme=scheme)
        layers = [Layer(**_layer(tensors, architecture, index, make)) for index in indices]
        head = make(head_weight, None)
        return Transformer(architecture, embeddings=embeddings, layers=layers, norm=norm, head=head)
    check_scheme(scheme, torch.device(device))
    packed = partial(pack, scheme=scheme)
    return CompiledTransformer(
        kernels,
        architecture,
        embeddings=embeddings,
        layers=[PackedLayer.of(**_layer(tensors, architecture, index, packed)) for index in indices],
        norm=norm.float(),
        head=packed(head_weight),
    )


def kernels_for(architecture: Architecture, *, dtype: torch.dtype, device: torch.device | str) -> Any:
    """The compiled kernels where they can run a model, or the reason why PyTorch's run it."""
    if torch.device(device).type != "cpu" or dtype != torch.bfloat16:
        return "compiled kernels are for bfloat16 on CPUs"
    return why_not(architecture) or load_kernels()


def load_head(
    path: Path,
    rows: Tensor,
    *,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
    scheme: str = "none",
) -> Linear:
    """An LM head over a subset of the vocabulary.

    Args:
        path: checkpoint folder.
        rows: [draft_vocab] int64 token ids, in the order the head's outputs take.
        dtype: of the weights.
        device: where it runs.
        scheme: how to quantise it.
    """
    architecture = Architecture.from_checkpoint(path)
    name = "model.embed_tokens.weight" if architecture.tied_head else "lm_head.weight"
    weight = _Tensors(path, dtype, device).get(name)[rows.to(device)]
    if isinstance(kernels := kernels_for(architecture, dtype=dtype, device=device), str):
        return _linear(weight, None, scheme=scheme)
    return CompiledLinear(kernels, pack(weight, scheme=scheme))


def _linear(weight: Tensor, bias: Tensor | None, *, scheme: str) -> Linear:
    return make_linear(weight, bias) if scheme == "none" else make_quantized_linear(weight, bias, scheme)


def _layer(
    tensors: _Tensors, arch: Architecture, index: int, make: Callable[[Tensor, Tensor | None], Any]
) -> dict[str, Any]:
    prefix = f"model.layers.{index}."

    def read(name: str) -> Tensor:
        tensor = tensors.get(prefix + name)
        turned = ("q_proj", "k_proj", "q_norm", "k_norm")
        return interleave(tensor, arch.head_dim) if any(part in name for part in turned) else tensor

    def fused(*names: str, bias: bool) -> Any:
        weight = torch.cat([read(f"{name}.weight") for name in names])
        return make(weight, torch.cat([read(f"{name}.bias") for name in names]) if bias else None)

    attention = "self_attn."
    return {
        "input_norm": read("input_layernorm.weight"),
        "qkv": fused(*(f"{attention}{part}_proj" for part in "qkv"), bias=arch.has_qkv_bias),
        "output": fused(attention + "o_proj", bias=arch.has_output_bias),
        "post_norm": read("post_attention_layernorm.weight"),
        "gate_up": fused("mlp.gate_proj", "mlp.up_proj", bias=arch.has_mlp_bias),
        "down": fused("mlp.down_proj", bias=arch.has_mlp_bias),
        "query_norm": read("self_attn.q_norm.weight") if arch.has_qk_norm else None,
        "key_norm": read("self_attn.k_norm.weight") if arch.has_qk_norm else None,
    }


class _Tensors:
    """Named tensors of a checkpoint that may be split over several files."""

    def __init__(self, path: Path, dtype: torch.dtype, device: torch.device | str) -> None:
        self._dtype, self._device, self._path = dtype, device, path
        try:
            self._files = _tensor_files(path)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
            raise ModelSourceError(
                f"{path}: its safetensors can't be listed: {error!r}. Fetch it anew."
            ) from error
        if not self._files:
            raise ModelSourceError(f"{path} holds no .safetensors file; pickled weights are refused.")

    def get(self, name: str) -> Tensor:
        if name not in self._files:
            raise ModelSourceError(f"{self._path} lacks the tensor {name!r}: not a complete checkpoint.")
        try:
            with safe_open(self._files[name], framework="pt") as handle:
                tensor: Tensor = handle.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise ModelSourceError(
                f"{self._files[name]}: {name!r} can't be read: {error}. Fetch it anew."
            ) from error
        return tensor.to(self._device, self._dtype)


def _tensor_files(path: Path) -> dict[str, Path]:
    index = path / "model.safetensors.index.json"
    if index.is_file():
        names = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        return {name: path / file for name, file in names.items()}
    files: dict[str, Path] = {}
    for file in sorted(path.glob("*.safetensors")):
        with safe_open(file, framework="pt") as handle:
            files.update(dict.fromkeys(handle.keys(), file))
    return files
