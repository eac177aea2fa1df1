"""Random models with peaked distributions: beside Transformers' own, or for the engine alone."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import save_file

from harness.engine.linear import Linear, make_linear
from harness.engine.model import Transformer
from harness.engine.weights import load_transformer

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
    seed: int,
    *,
    vocab_size: int = 5,
    hidden_size: int = 16,
    num_layers: int = 1,
    noise: float = 0.0,
    device: str = "cpu",
) -> Transformer:
    """A float32 Llama whose distributions are peaked and hang on the whole context.

    Args:
        seed: of its weights.
        vocab_size: tokens.
        hidden_size: also of the feed-forward layer.
        num_layers: layers.
        noise: blurs the weights, for a drafter that is often right about the model of the same seed.
        device: where it runs.
    """
    weights, blur = (torch.Generator().manual_seed(seed + offset) for offset in (0, 1000))

    def matrix(rows: int, columns: int, scale: float = 1.5) -> torch.Tensor:
        kept = torch.randn(rows, columns, generator=weights)
        return (kept + noise * torch.randn(rows, columns, generator=blur)) * scale * columns**-0.5

    tensors = {"model.embed_tokens.weight": matrix(vocab_size, hidden_size, hidden_size**0.5)}
    tensors |= {
        "model.norm.weight": torch.ones(hidden_size),
        "lm_head.weight": matrix(vocab_size, hidden_size),
    }
    for index in range(num_layers):
        prefix = f"model.layers.{index}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{prefix}{name}.weight"] = torch.ones(hidden_size)
        for name in ("q", "k", "v", "o"):
            rows = hidden_size // 2 if name in "kv" else hidden_size
            tensors[f"{prefix}self_attn.{name}_proj.weight"] = matrix(rows, hidden_size)
        for name in ("gate", "up", "down"):
            tensors[f"{prefix}mlp.{name}_proj.weight"] = matrix(hidden_size, hidden_size)
    config = {**SHAPE, "model_type": "llama", "num_attention_heads": 2, "num_key_value_heads": 1}
    config |= {"vocab_size": vocab_size, "hidden_size": hidden_size, "intermediate_size": hidden_size}
    config |= {"num_hidden_layers": num_layers, "max_position_embeddings": 128}
    with TemporaryDirectory() as folder:
        save_file(tensors, Path(folder) / "model.safetensors")
        (Path(folder) / "config.json").write_text(json.dumps(config))
        return load_transformer(Path(folder), dtype=torch.float32, device=device)


def head_over(model: Transformer, vocab: torch.Tensor) -> Linear:
    """The model's head, giving the tokens of `vocab` alone."""
    return make_linear(model.head(torch.eye(model.architecture.hidden_size)).T[vocab])


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
