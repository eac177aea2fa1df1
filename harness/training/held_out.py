"""Keep answers for evaluation that training never sees, not even their prompts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.errors import ConfigError
from harness.training.corpus import TURN_TASK, Answer, read_corpus


def split_answers(folders: Sequence[Path], *, count: int) -> tuple[list[Answer], list[Answer]]:
    """Take the last answers of the corpus for evaluation, and drop their prompts from the rest.

    Args:
        folders: corpus folders, read one after another.
        count: answers to keep for evaluation, taken evenly from the folders' ends.

    Returns:
        Answers to train on, and answers to evaluate on.

    Raises:
        ConfigError: nothing is left to train on, or nothing asked for to evaluate on.
    """
    if count < 1:
        raise ConfigError("--held-out", "must be at least 1", count)
    train: list[Answer] = []
    held_out: list[Answer] = []
    for place, folder in enumerate(folders):
        answers = list(read_corpus(folder))
        share = (count + place) // len(folders)
        train += answers[: len(answers) - share]
        held_out += answers[len(answers) - share :]
    kept_prompts = {_prompt(answer) for answer in held_out}
    train = [answer for answer in train if _prompt(answer) not in kept_prompts]
    if not train:
        raise ConfigError("--held-out", "must leave answers to train on", count, "Generate a larger corpus.")
    return train, held_out


def _prompt(answer: Answer) -> bytes:
    # turns that the target wrote itself all follow the same few openings: there the text is what counts
    whole = answer.task == TURN_TASK
    return answer.tokens[: None if whole else answer.prompt_tokens].tobytes()
