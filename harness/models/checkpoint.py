"""A Hugging Face checkpoint folder: its config, its weight files and what they say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import ModelSourceError

CONFIG_FILE = "config.json"
WEIGHT_INDEX_FILE = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """What `config.json` and the sizes of the weight files tell without loading any weight."""

    model_type: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int | None
    num_kv_heads: int | None
    max_context_tokens: int | None
    tied_head: bool
    dtype: str | None
    weight_bytes: int
    intermediate_size: int | None = None
    head_dim: int | None = None


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model reference turned into a checkpoint folder on this machine.

    Attributes:
        ref: the reference as it was given.
        path: folder with `config.json`, `*.safetensors` and, for a stand-alone model, its tokenizer.
        revision: SHA-256 of the configuration and the weights (see `checkpoint_revision`).
        weights_sha256: SHA-256 of the weights alone (see `weights_identity`).
        setup_s: seconds spent fetching, converting or waiting for it; 0 when it was in the cache.
        facts: shape and size.
        notes: where the weights come from and under which licence, empty when unknown.
    """

    ref: str
    path: Path
    revision: str
    weights_sha256: str
    setup_s: float
    facts: CheckpointFacts
    notes: str = ""


def read_json_object(file: Path) -> dict[str, Any]:
    """Read a JSON file that holds one object.

    Raises:
        ModelSourceError: the file is missing, unreadable, not JSON or not an object.
    """
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelSourceError(
            f"{file}: can't be read ({error.strerror or error}). Is the checkpoint folder complete?"
        ) from error
    except ValueError as error:
        raise ModelSourceError(f"{file}: isn't valid JSON ({error}). Copy the checkpoint again.") from error
    if not isinstance(value, dict):
        raise ModelSourceError(f"{file}: must hold a JSON object, got {type(value).__name__}.")
    return value


def read_config(path: Path) -> dict[str, Any]:
    """The `config.json` of a checkpoint folder.

    Raises:
        ModelSourceError: the folder has none, or it can't be read.
    """
    file = path / CONFIG_FILE
    if not file.is_file():
        raise ModelSourceError(
            f"{path}: has no {CONFIG_FILE}, so it isn't a Hugging Face checkpoint folder. "
            "Give the folder that `save_pretrained` wrote."
        )
    return read_json_object(file)


def weight_files(path: Path) -> list[Path]:
    """The safetensors files of a checkpoint folder, in name order.

    Raises:
        ModelSourceError: there are none, or the shard index names files that aren't there.
    """
    index = path / WEIGHT_INDEX_FILE
    if index.is_file():
        shards = sorted({str(name) for name in read_json_object(index).get("weight_map", {}).values()})
        files = [path / shard for shard in shards]
    else:
        # `consolidated*` is the same model once more in another naming, as some publishers add it.
        files = sorted(f for f in path.glob("*.safetensors") if not f.name.startswith("consolidated"))
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise ModelSourceError(
            f"{path}: lacks {', '.join(missing)}, named by {WEIGHT_INDEX_FILE}. Fetch it again."
        )
    if not files:
        raise ModelSourceError(
            f"{path}: holds no .safetensors file; pickled weights (.bin, .pt) are refused because loading "
            "them can run code. Save the model again with `save_pretrained(..., safe_serialization=True)`."
        )
    return files


def has_weights(path: Path) -> bool:
    """Whether a folder holds safetensors files."""
    return any(path.glob("*.safetensors"))


def read_facts(path: Path, *, needs_weights: bool = True) -> CheckpointFacts:
    """The facts of a checkpoint folder.

    Args:
        path: of the folder.
        needs_weights: refuse a folder without weight files; else their size is 0.

    Raises:
        ModelSourceError: the configuration or the weights are missing, or a size isn't stated.
    """
    outer = read_config(path)
    text = outer.get("text_config")
    config: Mapping[str, Any] = {**outer, **text} if isinstance(text, dict) else outer
    try:
        return CheckpointFacts(
            model_type=str(outer.get("model_type", "")),
            vocab_size=int(config["vocab_size"]),
            hidden_size=int(config["hidden_size"]),
            num_layers=int(config["num_hidden_layers"]),
            num_heads=_optional_int(config.get("num_attention_heads")),
            num_kv_heads=_optional_int(config.get("num_key_value_heads", config.get("num_attention_heads"))),
            max_context_tokens=_optional_int(config.get("max_position_embeddings")),
            tied_head=bool(config.get("tie_word_embeddings", False)),
            dtype=_optional_str(config.get("dtype", config.get("torch_dtype"))),
            weight_bytes=(
                sum(file.stat().st_size for file in weight_files(path))
                if needs_weights or has_weights(path)
                else 0
            ),
            intermediate_size=_optional_int(config.get("intermediate_size")),
            head_dim=_head_dim(config),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ModelSourceError(f"{path / CONFIG_FILE}: lacks a usable size ({error!r}).") from error


def _head_dim(config: Mapping[str, Any]) -> int | None:
    heads = _optional_int(config.get("num_attention_heads"))
    return _optional_int(config.get("head_dim")) or (int(config["hidden_size"]) // heads if heads else None)


def _optional_int(value: object) -> int | None:
    return None if value is None else int(str(value))


def _optional_str(value: object) -> str | None:
    return None if value is None else str(value)
