from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

VOCAB_SIZE = 300
CHAT_TEMPLATE = (
    "{% for m in messages %}<s>{{ m['role'] }}\n{{ m['content'] }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)


def tiny_vocabulary() -> tuple[list[str], list[tuple[str, str]]]:
    """A byte-level BPE vocabulary of exactly VOCAB_SIZE tokens: 3 specials, 256 bytes, 41 merges."""
    from tokenizers.pre_tokenizers import ByteLevel

    letters = sorted(ByteLevel.alphabet())
    merges = [("Ċ", "Ċ"), ("Ġ", "Ġ"), *((first, second) for first in "abcdefghi" for second in "aeiou")]
    merges = merges[: VOCAB_SIZE - 3 - len(letters)]
    return ["<pad>", "<s>", "</s>", *letters, *(a + b for a, b in merges)], merges


def write_tiny_tokenizer(folder: Path) -> None:
    from tokenizers import AddedToken, Tokenizer
    from tokenizers.decoders import ByteLevel as ByteLevelDecoder
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel

    tokens, merges = tiny_vocabulary()
    tokenizer = Tokenizer(BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer, tokenizer.decoder = ByteLevel(add_prefix_space=False), ByteLevelDecoder()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in tokens[:3]])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<pad>", "bos_token": "<s>"}
    settings |= {"eos_token": "</s>", "chat_template": CHAT_TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def write_tiny_llama(folder: Path, *, seed: int = 0, num_layers: int = 2, **config: Any) -> Path:
    """A random bfloat16 Llama of hidden size 64 with its tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    facts: dict[str, Any] = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "tie_word_embeddings": True,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "rms_norm_eps": 1e-5,
    }
    torch.manual_seed(seed)
    model = LlamaForCausalLM(LlamaConfig(num_hidden_layers=num_layers, **{**facts, **config}))
    folder.mkdir(parents=True, exist_ok=True)
    model.to(torch.bfloat16).save_pretrained(folder)
    write_tiny_tokenizer(folder)
    return folder


@pytest.fixture
def make_tiny_llama(tmp_path: Path) -> Callable[..., Path]:
    """Writes a tiny random Llama into a folder of the test and returns the folder."""

    def make(name: str = "target", **options: Any) -> Path:
        return write_tiny_llama(tmp_path / name, **options)

    return make


@pytest.fixture(scope="session")
def tiny_tokens() -> tuple[list[str], list[tuple[str, str]]]:
    """Tokens in id order and merges of the tiny models' tokenizer."""
    return tiny_vocabulary()


@pytest.fixture(scope="session")
def default_target() -> Any:
    """The embedded default target, from the user's cache: converted once, then reused by later runs."""
    from harness.models.catalogue import DEFAULT_TARGET
    from harness.models.sources import resolve_model

    return resolve_model(DEFAULT_TARGET)
