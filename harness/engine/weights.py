"""Load a Hugging Face checkpoint into the engine's fused layout."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from harness.engine.architecture import Architecture
from harness.engine.compiled.build import load_kernels
from harness.engine.compiled.packing import PackedMatrix, pack
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
    tensors = CheckpointTensors(path, dtype, device)
    embeddings = tensors.get("model.embed_tokens.weight")
    head_weight = embeddings if architecture.tied_head else tensors.get("lm_head.weight")
    maker = LinearMaker(architecture, dtype=dtype, device=device, scheme=scheme)
    return assemble(
        tensors,
        architecture,
        maker,
        embeddings=embeddings,
        prefixes=[f"model.layers.{index}." for index in range(architecture.num_layers)],
        norm=tensors.get("model.norm.weight"),
        head=maker.linear(head_weight),
    )


def runs_compiled(path: Path, *, dtype: torch.dtype, device: torch.device | str) -> bool:
    """Whether the compiled kernels will run a checkpoint."""
    return LinearMaker(Architecture.from_checkpoint(path), dtype=dtype, device=device).is_compiled


class LinearMaker:
    """Lays weight matrices out for what will multiply with them: the compiled kernels, or PyTorch's.

    Args:
        architecture: of the model they belong to.
        dtype: of activations.
        device: where it runs.
        scheme: how to quantise them.

    Attributes:
        kernels: the compiled kernels where they can run the model, or the reason why not.

    Raises:
        UnsupportedError: the device can't run the scheme.
    """

    def __init__(
        self,
        architecture: Architecture,
        *,
        dtype: torch.dtype,
        device: torch.device | str,
        scheme: str = "none",
    ) -> None:
        """See the class."""
        check_scheme(scheme, torch.device(device))
        self._scheme = scheme
        self.kernels: Any = "compiled kernels are for bfloat16 on CPUs"
        if torch.device(device).type == "cpu" and dtype == torch.bfloat16:
            self.kernels = why_not(architecture) or load_kernels()

    @property
    def is_compiled(self) -> bool:
        """Whether the compiled kernels multiply."""
        return not isinstance(self.kernels, str)

    def linear(self, weight: Tensor, bias: Tensor | None = None) -> Linear:
        """A matrix [out_features, in_features] that is used alone."""
        if self.is_compiled:
            return CompiledLinear(self.kernels, self.pack(weight, bias))
        if self._scheme == "none":
            return make_linear(weight, bias)
        return make_quantized_linear(weight, bias, self._scheme)

    def pack(self, weight: Tensor, bias: Tensor | None = None) -> PackedMatrix:
        """A matrix that the compiled kernels use inside a forward pass."""
        return pack(weight, bias, scheme=self._scheme)


def assemble(
    tensors: CheckpointTensors,
    architecture: Architecture,
    maker: LinearMaker,
    *,
    embeddings: Tensor,
    prefixes: Sequence[str],
    norm: Tensor | None,
    head: Linear,
    has_input_norm: bool = True,
) -> Transformer:
    """Put a transformer together.

    Args:
        tensors: of the checkpoint.
        architecture: shape facts.
        maker: lays out its matrices.
        embeddings: [vocab_size, hidden_size].
        prefixes: what the names of each decoder layer's tensors begin with.
        norm: behind the last layer; None where there is none.
        head: the LM head.
        has_input_norm: whether layers have a norm before the attention; an EAGLE layer has none.
    """
    make = maker.pack if maker.is_compiled else maker.linear
    parts = [
        _layer_parts(tensors, architecture, prefix, make, has_input_norm=has_input_norm)
        for prefix in prefixes
    ]
    if not maker.is_compiled:
        layers = [Layer(**part) for part in parts]
        return Transformer(architecture, embeddings=embeddings, layers=layers, norm=norm, head=head)
    return CompiledTransformer(
        maker.kernels,
        architecture,
        embeddings=embeddings,
        layers=[PackedLayer.of(**part) for part in parts],
        norm=None if norm is None else norm.float(),
        head=head,
    )


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
    weight = CheckpointTensors(path, dtype, device).get(name)[rows.to(device)]
    return LinearMaker(architecture, dtype=dtype, device=device, scheme=scheme).linear(weight)


def _layer_parts(
    tensors: CheckpointTensors,
    arch: Architecture,
    prefix: str,
    make: Callable[[Tensor, Tensor | None], Any],
    *,
    has_input_norm: bool,
) -> dict[str, Any]:
    """The fields of `Layer` or `PackedLayer`, projections fused."""

    def read(name: str) -> Tensor:
        tensor = tensors.get(prefix + name)
        turned = ("q_proj", "k_proj", "q_norm", "k_norm")
        return interleave(tensor, arch.head_dim) if any(part in name for part in turned) else tensor

    def fused(*names: str, bias: bool) -> Any:
        weight = torch.cat([read(f"{name}.weight") for name in names])
        return make(weight, torch.cat([read(f"{name}.bias") for name in names]) if bias else None)

    attention = "self_attn."
    return {
        "input_norm": read("input_layernorm.weight") if has_input_norm else None,
        "qkv": fused(*(f"{attention}{part}_proj" for part in "qkv"), bias=arch.has_qkv_bias),
        "output": fused(attention + "o_proj", bias=arch.has_output_bias),
        "post_norm": read("post_attention_layernorm.weight"),
        "gate_up": fused("mlp.gate_proj", "mlp.up_proj", bias=arch.has_mlp_bias),
        "down": fused("mlp.down_proj", bias=arch.has_mlp_bias),
        "query_norm": read("self_attn.q_norm.weight") if arch.has_qk_norm else None,
        "key_norm": read("self_attn.k_norm.weight") if arch.has_qk_norm else None,
    }


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
