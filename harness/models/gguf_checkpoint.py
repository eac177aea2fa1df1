"""Convert a Llama GGUF file into a plain bfloat16 Hugging Face checkpoint.

Transformers can read the same file. This conversion gives the same tensors in a fraction of the time, bytes
that don't depend on the Transformers release, and the pre-tokenizer that the file names.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.errors import ModelSourceError
from harness.models.cache import require_free_bytes
from harness.models.checkpoint import CONFIG_FILE
from harness.models.gguf_tokenizer import write_tokenizer

if TYPE_CHECKING:
    from torch import Tensor

_REMEDY = "Convert it with its own tools to a safetensors checkpoint and use a path: model."
_TOP_LEVEL = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_PER_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_TOKEN_KEYS = {"bos": "bos", "eos": "eos", "pad": "padding", "unk": "unknown"}


def convert_gguf(file: Path, folder: Path) -> None:
    """Write `config.json`, `model.safetensors`, generation settings and the tokenizer.

    Args:
        file: a GGUF file of architecture `llama`, in any quantisation the `gguf` package can undo.
        folder: an existing folder.

    Raises:
        ModelSourceError: not a GGUF file, another architecture, or a tensor with no place in plain Llama.
        StorageError: the folder's disk can't take the converted weights.
    """
    from gguf import GGUFReader
    from safetensors.torch import save_file

    try:
        reader = GGUFReader(file)
    except (ValueError, OSError, IndexError) as error:
        raise ModelSourceError(f"{file.name}: isn't a readable GGUF file ({error}).") from error
    metadata = _Metadata(file, reader)
    num_elements = sum(int(tensor.n_elements) for tensor in reader.tensors)
    require_free_bytes(folder, 2 * num_elements, purpose=f"to convert {file.name}")
    config = _config(metadata, tied_head=all(tensor.name != "output.weight" for tensor in reader.tensors))
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    tensors = {_hf_name(file, t.name): _bfloat16(t, heads.get(_part(t.name))) for t in reader.tensors}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    _write_json(folder / CONFIG_FILE, config)
    tokens = {f"{name}_token_id": config[f"{name}_token_id"] for name in ("bos", "eos", "pad")}
    _write_json(folder / "generation_config.json", tokens)
    write_tokenizer(metadata.get, folder, max_context_tokens=config["max_position_embeddings"])


class _Metadata:
    """Key-value pairs of a GGUF file."""

    def __init__(self, file: Path, reader: Any) -> None:
        self._file, self._reader = file, reader

    def get(self, key: str) -> Any:
        """The value, or `None`."""
        field = self._reader.get_field(key)
        return None if field is None else field.contents()

    def require(self, key: str) -> Any:
        """The value, or an error that names the key."""
        value = self.get(key)
        if value is None:
            raise ModelSourceError(f"{self._file.name}: lacks the key {key!r}. {_REMEDY}")
        return value

    def refuse(self, reason: str) -> ModelSourceError:
        """The error for a file that isn't a plain Llama."""
        return ModelSourceError(f"{self._file.name}: {reason} isn't supported by this conversion. {_REMEDY}")


def _config(metadata: _Metadata, *, tied_head: bool) -> dict[str, Any]:
    architecture = metadata.require("general.architecture")
    if architecture != "llama":
        raise metadata.refuse(f"architecture {architecture!r}")
    for key in ("llama.rope.scaling.type", "llama.expert_count"):
        if metadata.get(key):
            raise metadata.refuse(f"{key} = {metadata.get(key)!r}")
    num_heads = int(metadata.require("llama.attention.head_count"))
    hidden_size = int(metadata.require("llama.embedding_length"))
    rope_theta = _shortest(metadata.get("llama.rope.freq_base") or 10000.0)
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "attention_dropout": 0.0,
        **{f"{n}_token_id": metadata.get(f"tokenizer.ggml.{k}_token_id") for n, k in _TOKEN_KEYS.items()},
        "dtype": "bfloat16",
        "head_dim": int(metadata.get("llama.attention.key_length") or hidden_size // num_heads),
        "hidden_act": "silu",
        "hidden_size": hidden_size,
        "initializer_range": 0.02,
        "intermediate_size": int(metadata.require("llama.feed_forward_length")),
        "max_position_embeddings": int(metadata.require("llama.context_length")),
        "mlp_bias": False,
        "num_attention_heads": num_heads,
        "num_hidden_layers": int(metadata.require("llama.block_count")),
        "num_key_value_heads": int(metadata.get("llama.attention.head_count_kv") or num_heads),
        "rms_norm_eps": _shortest(metadata.require("llama.attention.layer_norm_rms_epsilon")),
        # Transformers 5 reads the mapping, older loaders and converters the plain key.
        "rope_parameters": {"rope_theta": rope_theta, "rope_type": "default"},
        "rope_theta": rope_theta,
        "tie_word_embeddings": tied_head,
        "use_cache": True,
        "vocab_size": len(metadata.require("tokenizer.ggml.tokens")),
    }


def _shortest(value: float) -> float:
    """The shortest decimal that means the same float32: GGUF stores 1e-05 as 9.999999747378752e-06."""
    return float(str(np.float32(value)))


def _part(name: str) -> str:
    return name.split(".")[2] if name.startswith("blk.") else name


def _hf_name(file: Path, name: str) -> str:
    if name in _TOP_LEVEL:
        return _TOP_LEVEL[name]
    pieces = name.split(".")
    if len(pieces) == 4 and pieces[0] == "blk" and pieces[2] in _PER_LAYER and pieces[3] == "weight":
        return f"model.layers.{pieces[1]}.{_PER_LAYER[pieces[2]]}.weight"
    raise ModelSourceError(
        f"{file.name}: tensor {name!r} has no place in a plain Llama checkpoint. {_REMEDY}"
    )


def _bfloat16(tensor: Any, num_heads: int | None) -> Tensor:
    """Dequantise one tensor and undo the rotary reordering of query and key rows.

    Args:
        tensor: an entry of `GGUFReader.tensors`.
        num_heads: heads whose rows GGUF stores in pairs for interleaved rotation; `None` for other tensors.

    Returns:
        [out, in] or [hidden] bfloat16 in the layout of Transformers' Llama.
    """
    import torch
    from gguf import dequantize

    weights = np.asarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
    if num_heads is not None:
        rows, columns = weights.shape
        paired = weights.reshape(num_heads, rows // num_heads // 2, 2, columns)
        weights = paired.swapaxes(1, 2).reshape(rows, columns)
    return torch.from_numpy(np.array(weights, order="C")).to(torch.bfloat16)


def _write_json(file: Path, value: dict[str, Any]) -> None:
    file.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
