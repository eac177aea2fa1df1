"""A target's answers small enough for a test."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from harness.engine.weights import load_transformer
from harness.training.corpus import Answer
from harness.training.generate import BatchedGenerator, Request

TOP = 4


def answer(prompt: list[int], tokens: list[int], *, seed: int = 0, vocab_size: int = 50) -> Answer:
    """An answer with made-up probabilities: the answer's own token first, then three others."""
    rng = np.random.default_rng((seed, len(prompt), *tokens))
    others = np.stack([rng.permutation(vocab_size)[:TOP] for _ in tokens]).astype(np.int32)
    others[:, 0] = tokens
    return Answer(
        task="chat",
        temperature=0.0,
        prompt_tokens=len(prompt),
        tokens=np.array(prompt + tokens, dtype=np.int32),
        top_tokens=others,
        top_logprobs=np.log(np.tile([0.6, 0.2, 0.1, 0.05], (len(tokens), 1))).astype(np.float16),
    )


def answers_of(target: Path, *, count: int, max_new_tokens: int = 12, seed: int = 0) -> list[Answer]:
    """What a tiny target says to random prompts."""
    rng = np.random.default_rng(seed)
    generator = BatchedGenerator(
        load_transformer(target, dtype=torch.float32),
        batch=8,
        max_prompt_tokens=16,
        max_new_tokens=max_new_tokens,
        eos_ids=frozenset({2}),
        seed=seed,
    )
    prompts = [rng.integers(3, 300, size=rng.integers(3, 12)).tolist() for _ in range(count)]
    return list(generator.run(Request("chat", prompt, 1.0) for prompt in prompts))
