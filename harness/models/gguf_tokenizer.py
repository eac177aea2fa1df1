"""Rebuild a byte-level BPE tokenizer from the vocabulary and merges inside a GGUF file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import ModelSourceError

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer

_CONTROL, _USER_DEFINED = 3, 4
_SPECIAL_KEYS = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}


def write_tokenizer(get: Callable[[str], Any], folder: Path, *, max_context_tokens: int) -> None:
    """Write `tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja`.

    Args:
        get: looks up a GGUF metadata key; `None` when the file lacks it.
        folder: checkpoint folder.
        max_context_tokens: stated as the tokenizer's maximum length.

    Raises:
        ModelSourceError: a tokenizer of another kind than byte-level BPE without automatic BOS.
    """
    from tokenizers import AddedToken, Tokenizer
    from tokenizers.decoders import ByteLevel
    from tokenizers.models import BPE

    if get("tokenizer.ggml.model") != "gpt2" or get("tokenizer.ggml.add_bos_token"):
        raise ModelSourceError(
            f"GGUF tokenizer {get('tokenizer.ggml.model')!r} "
            f"(add_bos_token={get('tokenizer.ggml.add_bos_token')}): only byte-level BPE ('gpt2') without "
            "automatic BOS can be converted. Use a path: model."
        )
    tokens: list[str] = get("tokenizer.ggml.tokens")
    merges = [_merge(line) for line in get("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = _pre_tokenizer(get("tokenizer.ggml.pre"))
    tokenizer.decoder = ByteLevel()
    for kind, add in ((_CONTROL, tokenizer.add_special_tokens), (_USER_DEFINED, tokenizer.add_tokens)):
        special = kind == _CONTROL
        types = get("tokenizer.ggml.token_type") or []
        add(
            [
                AddedToken(t, special=special, normalized=False)
                for t, k in zip(tokens, types, strict=False)
                if k == kind
            ]
        )
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_settings(get, folder, tokens, max_context_tokens)


def _merge(line: str) -> tuple[str, str]:
    left, right = line.split(" ")
    return left, right


def _pre_tokenizer(name: str | None) -> PreTokenizer:
    """The splitting rule behind a `tokenizer.ggml.pre` name.

    SmolLM splits off every digit before the byte-level rule sees the text. Without that step the line breaks
    before a digit become other tokens than those the model was trained on.
    """
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

    byte_level = ByteLevel(add_prefix_space=False)
    if name == "smollm":
        return Sequence([Digits(individual_digits=True), byte_level])
    if name == "gpt-2":
        return byte_level
    raise ModelSourceError(
        f"GGUF pre-tokenizer {name!r}: only 'smollm' and 'gpt-2' can be converted. Use a path: model."
    )


def _write_settings(
    get: Callable[[str], Any], folder: Path, tokens: list[str], max_context_tokens: int
) -> None:
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_context_tokens,
    }
    settings["clean_up_tokenization_spaces"] = False
    for name, key in _SPECIAL_KEYS.items():
        token_id = get(f"tokenizer.ggml.{key}_token_id")
        if token_id is not None:
            settings[name] = tokens[token_id]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    template = get("tokenizer.chat_template")
    if template is not None:
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
