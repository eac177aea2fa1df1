"""How many weights a checkpoint has, from its headers or its configuration; no weight is loaded."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import ModelSourceError
from harness.models.checkpoint import has_weights, read_config, weight_files

_LENGTH_BYTES = 8
_MAX_HEADER_BYTES = 100 * 2**20


@dataclass(frozen=True, slots=True)
class ParameterCounts:
    """Weights by what becomes of them in memory.

    Attributes:
        embeddings: of the input embeddings.
        head: of an LM head of its own; 0 where it is tied to the embeddings.
        matrices: of all other matrices, which quantisation shrinks.
        vectors: of norms and biases.
    """

    embeddings: int
    head: int
    matrices: int
    vectors: int

    @property
    def total(self) -> int:
        """All weights, tied ones once."""
        return self.embeddings + self.head + self.matrices + self.vectors


def count_parameters(path: Path) -> ParameterCounts:
    """Count the weights of a checkpoint folder.

    The headers of its safetensors files say it exactly; without them the configuration does, for models
    built like Llama.

    Raises:
        ModelSourceError: a header or the configuration can't be read.
    """
    if has_weights(path):
        return _from_shapes(read_shapes(path), tied=_text_config(path).get("tie_word_embeddings", False))
    return _from_config(path)


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of all tensors of a checkpoint, by name.

    Raises:
        ModelSourceError: a file isn't in the safetensors format.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for file in weight_files(path):
        header = _read_header(file)
        shapes |= {name: tuple(entry["shape"]) for name, entry in header.items() if name != "__metadata__"}
    return shapes


def _read_header(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(_LENGTH_BYTES))
            if length > _MAX_HEADER_BYTES:
                raise ValueError(f"a header of {length} bytes")
            header: dict[str, Any] = json.loads(stream.read(length))
        return header
    except (OSError, ValueError, struct.error) as error:
        raise ModelSourceError(
            f"{file}: its safetensors header can't be read ({error}). Fetch it again."
        ) from error


def _from_shapes(shapes: Mapping[str, tuple[int, ...]], *, tied: bool) -> ParameterCounts:
    counts = dict.fromkeys(("embeddings", "head", "matrices", "vectors"), 0)
    for name, shape in shapes.items():
        if "embed_tokens" in name:
            kind = "embeddings"
        elif "lm_head" in name:
            kind = "head"
        else:
            kind = "matrices" if len(shape) > 1 else "vectors"
        counts[kind] += math.prod(shape)
    # some checkpoints store a tied head once more; it is loaded once
    return ParameterCounts(**(counts | {"head": 0} if tied else counts))


def _from_config(path: Path) -> ParameterCounts:
    config = _text_config(path)
    try:
        hidden, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
        layers, vocab = int(config["num_hidden_layers"]), int(config["vocab_size"])
        kv_heads = int(config.get("num_key_value_heads") or heads)
        head_dim = int(config.get("head_dim") or hidden // heads)
        attention = 2 * hidden * head_dim * (heads + kv_heads)
        feed_forward = 3 * hidden * int(config["intermediate_size"])
    except (KeyError, TypeError, ValueError) as error:
        raise ModelSourceError(
            f"{path}: has no weights, and config.json lacks a size to count them by ({error!r})."
        ) from error
    embeddings = vocab * hidden
    return ParameterCounts(
        embeddings=embeddings,
        head=0 if config.get("tie_word_embeddings", False) else embeddings,
        matrices=layers * (attention + feed_forward),
        vectors=(2 * layers + 1) * hidden,
    )


def _text_config(path: Path) -> dict[str, Any]:
    outer = read_config(path)
    text = outer.get("text_config")
    return {**outer, **text} if isinstance(text, dict) else outer
