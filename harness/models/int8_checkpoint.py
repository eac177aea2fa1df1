"""A checkpoint with 8-bit weights in the layout that vLLM reads: compressed-tensors, W8A8 INT8."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import ModelSourceError
from harness.models.checkpoint import CONFIG_FILE, read_config, weight_files

if TYPE_CHECKING:
    from torch import Tensor

_LARGEST_INT8 = 127
_WEIGHTS_FILE = "model.safetensors"
# Every matrix of the layers; embeddings and head keep their dtype.
_QUANTIZED = (".self_attn.", ".mlp.")
_FORMAT: dict[str, Any] = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {
                "num_bits": 8,
                "type": "int",
                "symmetric": True,
                "strategy": "channel",
                "dynamic": False,
            },
            "input_activations": {
                "num_bits": 8,
                "type": "int",
                "symmetric": True,
                "strategy": "token",
                "dynamic": True,
            },
        }
    },
}


def quantize_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Round a matrix to 8 bits with one scale per output row.

    Args:
        weight: [out, in] floating point.

    Returns:
        [out, in] int8 in -127..127, and [out, 1] float32 scales: their product is within half a scale of the
        weight. Rows of zeros get a scale of 1.
    """
    import torch

    rows = weight.to(torch.float32)
    scale = rows.abs().amax(dim=1, keepdim=True) / _LARGEST_INT8
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    return torch.round(rows / scale).to(torch.int8), scale


def write_int8_checkpoint(source: Path, folder: Path) -> None:
    """Copy a Llama-family checkpoint with its layers' matrices in 8 bits.

    Activations are rounded per token when the model runs, so nothing needs calibrating.

    Args:
        source: checkpoint folder in floating point.
        folder: to write; it must not exist.

    Raises:
        ModelSourceError: the source is quantised already, or has no matrix to quantise.
    """
    from safetensors.torch import load_file, save_file

    config = read_config(source)
    if "quantization_config" in config:
        raise ModelSourceError(f"{source}: is quantised already. Give the checkpoint it was made from.")
    tensors: dict[str, Tensor] = {}
    num_quantized = 0
    for file in weight_files(source):
        for name, tensor in load_file(file).items():
            if tensor.ndim == 2 and any(part in name for part in _QUANTIZED):
                tensors[name], tensors[f"{name}_scale"] = quantize_rows(tensor)
                num_quantized += 1
            else:
                tensors[name] = tensor
    if not num_quantized:
        raise ModelSourceError(f"{source}: has no matrices under {' or '.join(_QUANTIZED)}.")
    folder.mkdir(parents=True)
    weights = {file.name for file in weight_files(source)}
    for file in source.iterdir():
        if file.is_file() and file.name not in weights and not file.name.endswith(".index.json"):
            shutil.copyfile(file, folder / file.name)
    save_file(tensors, folder / _WEIGHTS_FILE, metadata={"format": "pt"})
    text = json.dumps(config | {"quantization_config": _FORMAT}, indent=2)
    (folder / CONFIG_FILE).write_text(text + "\n", encoding="utf-8")
