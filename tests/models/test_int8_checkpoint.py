from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from harness.errors import ModelSourceError
from harness.models.int8_checkpoint import quantize_rows, write_int8_checkpoint
from harness.models.sources import resolve_model


def test_rows_are_rounded_to_within_half_a_scale() -> None:
    weight = torch.tensor([[0.5, -1.27, 0.014], [0.0, 0.0, 0.0]])
    integers, scale = quantize_rows(weight)
    assert integers.tolist() == [[50, -127, 1], [0, 0, 0]]
    assert scale.flatten().tolist() == pytest.approx([0.01, 1.0])
    torch.manual_seed(0)
    large = torch.randn(64, 96)
    integers, scale = quantize_rows(large)
    assert integers.dtype == torch.int8
    assert integers.abs().amax(dim=1).tolist() == [127] * 64
    assert ((integers * scale - large).abs() <= scale / 2 + 1e-6).all()


def test_a_checkpoint_is_copied_with_its_layers_in_eight_bits(
    make_tiny_llama: Callable[..., Path], tmp_path: Path
) -> None:
    source, folder = make_tiny_llama("whole"), tmp_path / "small"
    write_int8_checkpoint(source, folder)
    before, after = load_file(source / "model.safetensors"), load_file(folder / "model.safetensors")
    matrices = [name for name, tensor in after.items() if tensor.dtype == torch.int8]
    assert len(matrices) == 2 * 7
    assert set(after) == set(before) | {f"{name}_scale" for name in matrices}
    for name in matrices:
        error = (after[name] * after[f"{name}_scale"] - before[name].float()).abs()
        assert (error <= after[f"{name}_scale"] / 2 + 1e-6).all()
    assert torch.equal(after["model.embed_tokens.weight"], before["model.embed_tokens.weight"])
    config = json.loads((folder / "config.json").read_text())
    assert config["quantization_config"]["quant_method"] == "compressed-tensors"
    assert (folder / "tokenizer.json").is_file()
    assert resolve_model(f"path:{folder}").revision != resolve_model(f"path:{source}").revision
    with pytest.raises(ModelSourceError, match="quantised already"):
        write_int8_checkpoint(folder, tmp_path / "again")
