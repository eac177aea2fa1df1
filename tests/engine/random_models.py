"""Random models with peaked distributions: as checkpoints beside Transformers' model, or built in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from harness.engine.architecture import Architecture
from harness.engine.linear import make_linear
from harness.engine.model import Layer, Transformer

SHAPE: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 96,
    "tie_word_embeddings": False,
    "rms_norm_eps": 1e-5,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def reference_model(family: str, **config: Any) -> Any:
    """Transformers' float32 model, every parameter random: biases and norms too, which start at 0 and 1."""
    from transformers import AutoConfig, AutoModelForCausalLM

    facts = AutoConfig.for_model(family, **{**SHAPE, **config})
    model = AutoModelForCausalLM.from_config(facts, attn_implementation="eager").float().eval()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1.0 + 0.3 * noise if "norm" in name else 0.3 * noise)
    return model


def reference_logits(model: Any, tokens: list[int]) -> torch.Tensor:
    """[len(tokens), vocab] from Transformers, without a cache."""
    with torch.inference_mode():
        return model(torch.tensor([tokens]), use_cache=False).logits[0]


def save_checkpoint(model: Any, folder: Path, **options: Any) -> Path:
    model.save_pretrained(folder, **options)
    return folder


def random_transformer(
    seed: int, *, vocab_size: int = 5, hidden_size: int = 16, num_layers: int = 1, max_positions: int = 128
) -> Transformer:
    """A float32 engine model whose distributions are peaked and hang on the whole context."""
    generator = torch.Generator().manual_seed(seed)
    config = {**SHAPE, "model_type": "llama", "num_attention_heads": 2, "num_key_value_heads": 1}
    config |= {"vocab_size": vocab_size, "hidden_size": hidden_size, "intermediate_size": hidden_size}
    config |= {"num_hidden_layers": num_layers, "max_position_embeddings": max_positions}

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator) * 1.5 * columns**-0.5

    def layer() -> Layer:
        return Layer(
            input_norm=torch.ones(hidden_size),
            qkv=make_linear(matrix(2 * hidden_size, hidden_size)),
            output=make_linear(matrix(hidden_size, hidden_size)),
            post_norm=torch.ones(hidden_size),
            gate_up=make_linear(matrix(2 * hidden_size, hidden_size)),
            down=make_linear(matrix(hidden_size, hidden_size)),
        )

    return Transformer(
        Architecture.from_config(config),
        embeddings=torch.randn(vocab_size, hidden_size, generator=generator),
        layers=[layer() for _ in range(num_layers)],
        norm=torch.ones(hidden_size),
        head=make_linear(matrix(vocab_size, hidden_size)),
    )


@torch.inference_mode()
def all_logits(model: Transformer, sequences: torch.Tensor) -> torch.Tensor:
    """Logits [batch, length, vocab] of whole sequences, each run once from an empty cache."""
    cache = model.new_cache(batch=sequences.shape[0], capacity=sequences.shape[1])
    return model.head(model.forward(sequences, cache))


def greedy_continuation(model: Transformer, prompt: list[int], num_tokens: int) -> list[int]:
    """The likeliest tokens one by one, all of the context run anew for each."""
    tokens = list(prompt)
    for _ in range(num_tokens):
        tokens.append(int(all_logits(model, torch.tensor([tokens]))[0, -1].argmax()))
    return tokens[len(prompt) :]
