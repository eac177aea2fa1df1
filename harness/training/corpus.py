"""A corpus of the target's own answers with its top probabilities, stored in shards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.errors import ResultFormatError

TURN_TASK = "turn"
"""The task of user turns that the target wrote itself."""
_SUFFIX = ".npz"


@dataclass(slots=True)
class Answer:
    """One prompt with the target's answer and what the target thought at each answer token.

    Attributes:
        task: what kind of prompt it was.
        temperature: the answer was sampled at.
        prompt_tokens: number of prompt ids at the head of `tokens`.
        tokens: [prompt + answer] int32.
        top_tokens: [answer, top] int32, the target's likeliest tokens at each answer position.
        top_logprobs: [answer, top] float16, their log-probabilities at temperature 1.
        features: [kept, hidden] float16, the target's last hidden states at the last tokens but the
            very last one; not stored in shards, see `harness.training.features`.
    """

    task: str
    temperature: float
    prompt_tokens: int
    tokens: NDArray[np.int32]
    top_tokens: NDArray[np.int32]
    top_logprobs: NDArray[np.float16]
    features: NDArray[np.float16] | None = None

    @property
    def answer_tokens(self) -> NDArray[np.int32]:
        """The answer's ids, [answer] int32."""
        return self.tokens[self.prompt_tokens :]


def write_shard(folder: Path, index: int, answers: list[Answer]) -> Path:
    """Write answers as `shard-<index>.npz`, atomically."""
    path = folder / f"shard-{index:05d}{_SUFFIX}"
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as handle:
        np.savez(
            handle,
            task=np.array([a.task for a in answers]),
            temperature=np.array([a.temperature for a in answers], dtype=np.float32),
            prompt_tokens=np.array([a.prompt_tokens for a in answers], dtype=np.int32),
            lengths=np.array([len(a.tokens) for a in answers], dtype=np.int32),
            tokens=np.concatenate([a.tokens for a in answers]),
            top_tokens=np.concatenate([a.top_tokens for a in answers]),
            top_logprobs=np.concatenate([a.top_logprobs for a in answers]),
        )
    return temporary.replace(path)


def shards(folder: Path) -> list[Path]:
    """Complete shards of a corpus folder, in order."""
    return sorted(folder.glob(f"shard-*{_SUFFIX}"))


def read_corpus(folder: Path) -> Iterator[Answer]:
    """Yield every answer of a corpus folder.

    Raises:
        ResultFormatError: the folder holds no shard.
    """
    files = shards(folder)
    if not files:
        raise ResultFormatError(
            f"{folder} holds no corpus shard. Make one with `python -m harness train corpus`."
        )
    for file in files:
        yield from _read_shard(file)


def _read_shard(file: Path) -> Iterator[Answer]:
    with np.load(file) as arrays:
        columns = {name: arrays[name] for name in arrays.files}
    token, answer = 0, 0
    rows = zip(
        columns["task"], columns["temperature"], columns["prompt_tokens"], columns["lengths"], strict=True
    )
    for task, temperature, prompt, length in rows:
        size = int(length - prompt)
        yield Answer(
            task=str(task),
            temperature=float(temperature),
            prompt_tokens=int(prompt),
            tokens=columns["tokens"][token : token + length],
            top_tokens=columns["top_tokens"][answer : answer + size],
            top_logprobs=columns["top_logprobs"][answer : answer + size],
        )
        token, answer = token + int(length), answer + size
