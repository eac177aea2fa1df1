"""The target's last hidden states over a corpus, computed once and kept on disk."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from harness.engine.model import Transformer
from harness.errors import StorageError
from harness.training.corpus import Answer

_SAVE_EVERY_S = 60.0


def kept_tokens(answer: Answer, max_prompt_tokens: int) -> int:
    """How many tokens of an answer are trained on: those of a cut prompt and all but the last."""
    return len(answer.tokens) - 1 - max(0, answer.prompt_tokens - max_prompt_tokens)


def attach_features(
    answers: Sequence[Answer],
    target: Transformer,
    folder: Path,
    *,
    target_id: str,
    max_prompt_tokens: int,
    tokens_per_batch: int,
) -> Path:
    """Give each answer the target's hidden states at its kept tokens, as views of one file.

    The hidden states see the whole prompt, also what of it isn't kept. The file is named after
    what it was made from; a run that was cut short goes on in it.

    Args:
        answers: of the corpus; their `features` are set.
        target: the model that wrote them.
        folder: of the file, two bytes per number.
        target_id: names the target's weights.
        max_prompt_tokens: longer prompts lose their beginning.
        tokens_per_batch: padded tokens the target runs at once.

    Returns:
        The file.

    Raises:
        StorageError: the file can't be written.
    """
    hidden = target.architecture.hidden_size
    offsets = np.cumsum([0, *(kept_tokens(answer, max_prompt_tokens) for answer in answers)])
    name = f"features-{_digest(answers, target_id, max_prompt_tokens)}"
    file, state = folder / f"{name}.f16", folder / f"{name}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        rows = np.memmap(file, np.float16, "r+" if file.is_file() else "w+", shape=(int(offsets[-1]), hidden))
    except (OSError, ValueError) as error:
        raise StorageError(f"{file}: can't be written ({error}). Give another --features folder.") from error
    _compute(answers, target, rows, offsets, state, tokens_per_batch=tokens_per_batch)
    for index, answer in enumerate(answers):
        answer.features = rows[offsets[index] : offsets[index + 1]]
    return file


def _compute(
    answers: Sequence[Answer],
    target: Transformer,
    rows: np.memmap[tuple[int, int], np.dtype[np.float16]],
    offsets: NDArray[np.int64],
    state: Path,
    *,
    tokens_per_batch: int,
) -> None:
    done = int(json.loads(state.read_text(encoding="utf-8"))["answers"]) if state.is_file() else 0
    order = sorted(range(len(answers)), key=lambda index: len(answers[index].tokens))
    bar = tqdm(total=len(answers), initial=done, unit="answer", desc="hidden states", disable=None)
    saved = time.monotonic()
    for group in _groups(order[done:], answers, tokens_per_batch):
        for index, features in zip(group, _features(target, [answers[i] for i in group]), strict=True):
            size = int(offsets[index + 1] - offsets[index])
            rows[offsets[index] : offsets[index + 1]] = features[len(features) - size :]
        done += len(group)
        bar.update(len(group))
        if time.monotonic() - saved > _SAVE_EVERY_S:
            _save(rows, state, done)
            tqdm.write(f"hidden states of {done} of {len(answers)} answers")
            saved = time.monotonic()
    bar.close()
    _save(rows, state, done)


def _save(rows: np.memmap[tuple[int, int], np.dtype[np.float16]], state: Path, done: int) -> None:
    rows.flush()
    state.write_text(json.dumps({"answers": done}) + "\n", encoding="utf-8")


def _groups(order: Sequence[int], answers: Sequence[Answer], tokens_per_batch: int) -> Iterator[list[int]]:
    group: list[int] = []
    for index in order:
        # sorted by length: the newest is the longest
        if group and (len(group) + 1) * len(answers[index].tokens) > tokens_per_batch:
            yield group
            group = []
        group.append(index)
    if group:
        yield group


@torch.inference_mode()
def _features(target: Transformer, answers: Sequence[Answer]) -> list[NDArray[np.float16]]:
    longest = max(len(answer.tokens) for answer in answers) - 1
    tokens = torch.zeros((len(answers), longest), dtype=torch.int64)
    for row, answer in enumerate(answers):
        tokens[row, : len(answer.tokens) - 1] = torch.from_numpy(answer.tokens[:-1].astype(np.int64))
    cache = target.new_cache(batch=len(answers), capacity=longest)
    hidden = target.forward(tokens.to(target.device), cache)
    # float16 keeps three digits more than bfloat16; hidden states after the last norm stay far below its end
    stored = hidden.float().clamp(-65504.0, 65504.0).half().cpu().numpy()
    return [stored[row, : len(answer.tokens) - 1] for row, answer in enumerate(answers)]


def _digest(answers: Sequence[Answer], target_id: str, max_prompt_tokens: int) -> str:
    digest = hashlib.sha256(f"{target_id} {max_prompt_tokens}".encode())
    for answer in answers:
        digest.update(np.array([answer.prompt_tokens, len(answer.tokens)]).tobytes())
        digest.update(answer.tokens.tobytes())
    return digest.hexdigest()[:16]
