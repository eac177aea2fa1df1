"""What a checkpoint's `config.json` says about a Llama-family model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import ModelSourceError, UnsupportedError

_FAMILIES = ("llama", "mistral", "qwen2", "qwen3")


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """Llama 3's piecewise scaling of rotary frequencies (`rope_type: llama3`)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_positions: int


@dataclass(frozen=True, slots=True)
class Architecture:
    """Shape and variant facts of one decoder-only transformer of the Llama family."""

    family: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None
    max_positions: int
    tied_head: bool
    has_qkv_bias: bool
    has_output_bias: bool
    has_mlp_bias: bool
    has_qk_norm: bool

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Architecture:
        """Read a Hugging Face `config.json` mapping.

        Raises:
            UnsupportedError: another family, activation or rope scaling than this engine implements.
        """
        family = str(config.get("model_type", "?"))
        if family not in _FAMILIES:
            raise UnsupportedError(
                f"model_type {family!r} doesn't run on the native engine; these do: {', '.join(_FAMILIES)}."
            )
        if config.get("quantization_config"):
            raise UnsupportedError(
                "the checkpoint's weights are quantised; the native engine reads plain ones."
            )
        if config.get("hidden_act", "silu") != "silu":
            raise UnsupportedError(f"hidden_act {config['hidden_act']!r} isn't implemented; only 'silu' is.")
        hidden, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
        bias = bool(config.get("attention_bias", False))
        theta, scaling = _rope(config)
        return cls(
            family=family,
            vocab_size=int(config["vocab_size"]),
            hidden_size=hidden,
            intermediate_size=int(config["intermediate_size"]),
            num_layers=int(config["num_hidden_layers"]),
            num_heads=heads,
            num_kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or (128 if family == "qwen3" else hidden // heads)),
            norm_eps=float(config["rms_norm_eps"]),
            rope_theta=theta,
            rope_scaling=scaling,
            max_positions=_max_positions(config),
            tied_head=bool(config.get("tie_word_embeddings", False)),
            has_qkv_bias=bias or family == "qwen2",
            has_output_bias=bias and family in ("llama", "qwen3"),
            has_mlp_bias=bool(config.get("mlp_bias", False)),
            has_qk_norm=family == "qwen3",
        )

    @classmethod
    def from_checkpoint(cls, path: Path) -> Architecture:
        """Read `config.json` in a checkpoint folder."""
        file = path / "config.json"
        try:
            return cls.from_config(json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelSourceError(f"{file} isn't a readable model configuration: {error!r}.") from error

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of keys and values one token occupies at two bytes an element."""
        return 2 * 2 * self.num_layers * self.num_kv_heads * self.head_dim

    @property
    def num_parameters(self) -> int:
        """Weights in matrices and embeddings, the head counted once more where it isn't tied."""
        attention = self.hidden_size * self.head_dim * (2 * self.num_heads + 2 * self.num_kv_heads)
        layer = attention + 3 * self.hidden_size * self.intermediate_size + 2 * self.hidden_size
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tied_head else 2)
        return self.num_layers * layer + embeddings + self.hidden_size


def _max_positions(config: Mapping[str, Any]) -> int:
    limit = int(config.get("max_position_embeddings", 2048))
    window = config.get("sliding_window")
    windowed = config.get("use_sliding_window", config.get("model_type") == "mistral")
    # Inside the window, sliding attention and full attention are the same.
    return min(limit, int(window)) if window and windowed else limit


def _rope(config: Mapping[str, Any]) -> tuple[float, RopeScaling | None]:
    parameters = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    theta = float(parameters.get("rope_theta") or config.get("rope_theta") or 10000.0)
    kind = parameters.get("rope_type") or parameters.get("type") or "default"
    if kind == "default":
        return theta, None
    if kind != "llama3":
        raise UnsupportedError(f"rope_type {kind!r} isn't implemented; 'default' and 'llama3' are.")
    return theta, RopeScaling(
        factor=float(parameters["factor"]),
        low_freq_factor=float(parameters["low_freq_factor"]),
        high_freq_factor=float(parameters["high_freq_factor"]),
        original_max_positions=int(parameters["original_max_position_embeddings"]),
    )
