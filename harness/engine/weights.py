"""Load a Hugging Face checkpoint into the engine's fused layout."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from harness.engine.architecture import Architecture
from harness.engine.linear import Linear, make_linear
from harness.engine.model import Layer, Transformer
from harness.engine.rope import interleave
from harness.errors import ModelSourceError


def load_transformer(
    path: Path, *, dtype: torch.dtype = torch.bfloat16, device: torch.device | str = "cpu"
) -> Transformer:
    """Read `config.json` and the safetensors of a checkpoint folder.

    Raises:
        UnsupportedError: a family this engine doesn't implement.
        ModelSourceError: no safetensors, or a tensor missing.
    """
    architecture = Architecture.from_checkpoint(path)
    tensors = CheckpointTensors(path, dtype, device)
    embeddings = tensors.get("model.embed_tokens.weight")
    head_weight = embeddings if architecture.tied_head else tensors.get("lm_head.weight")
    return Transformer(
        architecture,
        embeddings=embeddings,
        layers=[
            load_layer(tensors, architecture, f"model.layers.{index}.")
            for index in range(architecture.num_layers)
        ],
        norm=tensors.get("model.norm.weight"),
        head=make_linear(head_weight),
    )


def load_head(path: Path, rows: Tensor, *, dtype: torch.dtype, device: torch.device | str = "cpu") -> Linear:
    """An LM head over a subset of the vocabulary.

    Args:
        path: checkpoint folder.
        rows: [draft_vocab] int64 token ids, in the order the head's outputs take.
        dtype: of the weights.
        device: where it runs.
    """
    architecture = Architecture.from_checkpoint(path)
    name = "model.embed_tokens.weight" if architecture.tied_head else "lm_head.weight"
    return make_linear(CheckpointTensors(path, dtype, device).get(name)[rows.to(device)])


def load_layer(
    tensors: CheckpointTensors, arch: Architecture, prefix: str, *, has_input_norm: bool = True
) -> Layer:
    """One decoder layer, its projections fused.

    Args:
        tensors: of the checkpoint.
        arch: shape facts.
        prefix: what its tensors' names begin with.
        has_input_norm: whether there is a norm before the attention; an EAGLE layer has none.
    """

    def read(name: str) -> Tensor:
        tensor = tensors.get(prefix + name)
        turned = ("q_proj", "k_proj", "q_norm", "k_norm")
        return interleave(tensor, arch.head_dim) if any(part in name for part in turned) else tensor

    def fused(*names: str, bias: bool) -> Linear:
        weight = torch.cat([read(f"{name}.weight") for name in names])
        return make_linear(weight, torch.cat([read(f"{name}.bias") for name in names]) if bias else None)

    attention = "self_attn."
    return Layer(
        input_norm=read("input_layernorm.weight") if has_input_norm else None,
        qkv=fused(*(f"{attention}{part}_proj" for part in "qkv"), bias=arch.has_qkv_bias),
        output=fused(attention + "o_proj", bias=arch.has_output_bias),
        post_norm=read("post_attention_layernorm.weight"),
        gate_up=fused("mlp.gate_proj", "mlp.up_proj", bias=arch.has_mlp_bias),
        down=fused("mlp.down_proj", bias=arch.has_mlp_bias),
        query_norm=read("self_attn.q_norm.weight") if arch.has_qk_norm else None,
        key_norm=read("self_attn.k_norm.weight") if arch.has_qk_norm else None,
    )


class CheckpointTensors:
    """Named tensors of a checkpoint that may be split over several files."""

    def __init__(self, path: Path, dtype: torch.dtype, device: torch.device | str) -> None:
        """List the tensors of a folder; `dtype` and `device` are what `get` turns them into.

        Raises:
            ModelSourceError: no safetensors, or unreadable ones.
        """
        self._dtype, self._device, self._path = dtype, device, path
        try:
            self._files = _tensor_files(path)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
            raise ModelSourceError(
                f"{path}: its safetensors can't be listed: {error!r}. Fetch it anew."
            ) from error
        if not self._files:
            raise ModelSourceError(f"{path} holds no .safetensors file; pickled weights are refused.")

    @property
    def names(self) -> list[str]:
        """Of all tensors."""
        return list(self._files)

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def get(self, name: str, *, dtype: torch.dtype | None = None) -> Tensor:
        """One tensor on the device, in the checkpoint's dtype unless another is named.

        Raises:
            ModelSourceError: there is none of that name, or it can't be read.
        """
        if name not in self._files:
            raise ModelSourceError(f"{self._path} lacks the tensor {name!r}: not a complete checkpoint.")
        try:
            with safe_open(self._files[name], framework="pt") as handle:
                tensor: Tensor = handle.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise ModelSourceError(
                f"{self._files[name]}: {name!r} can't be read: {error}. Fetch it anew."
            ) from error
        return tensor.to(self._device, dtype or self._dtype)


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
