from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np
import pytest

from harness.models.tokenizer import Tokenizer
from harness.training.corpus import Answer
from harness.training.prompts import TASKS
from harness.training.recipe import PASSAGE_TASK, SELF_PROMPT_TASK, mixed_requests, split_turns

END = 2


class Words(Tokenizer):
    """One id per word, first come first numbered; the system turn and the role stand before the text."""

    def __init__(self) -> None:
        self.words = ["<pad>", "<s>", "<end>"]
        self.eos_ids = frozenset({END})

    def encode_text(self, text: str) -> list[int]:
        new = [word for word in dict.fromkeys(text.split()) if word not in self.words]
        self.words += new
        return [self.words.index(word) for word in text.split()]

    def render_user_text(self, text: str, *, system: str | None = None) -> str:
        return f"{system or 'default'} user {text} <end>"

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(self.words[token] for token in ids if token != END)


def turn(tokenizer: Words, text: str, *, system: str | None = None, ended: bool = True) -> Answer:
    opening = tokenizer.encode_text(tokenizer.render_user_text("", system=system).removesuffix("<end>"))
    body = tokenizer.encode_text(text) + [END] * ended
    size = len(body)
    return Answer(
        task="turn",
        temperature=1.0,
        prompt_tokens=len(opening),
        tokens=np.array(opening + body, dtype=np.int32),
        top_tokens=np.zeros((size, 1), dtype=np.int32),
        top_logprobs=np.zeros((size, 1), dtype=np.float16),
    )


def test_turns_are_sorted_into_prompts_and_passages() -> None:
    words = Words()
    long = " ".join(f"w{n}" for n in range(50)) + ". The rest has no"
    turns = [
        turn(words, "How do bees fly?"),
        turn(words, long, system="Shorten the text."),
        turn(words, long.replace("w1 ", "v1 "), ended=False),
        turn(words, "Too short.", system="Shorten the text."),
    ]
    prompts, passages = split_turns(turns, words)
    assert prompts == ["How do bees fly?"]
    whole = long.removesuffix(" The rest has no")
    assert passages == [whole, whole.replace("w1 ", "v1 ")]


def encode(text: str) -> list[int]:
    return [len(text)]


def test_three_kinds_of_prompts_take_turns_until_the_turns_run_out() -> None:
    passages = ["One passage that says something.", "Another one that says more."]
    requests = list(mixed_requests(["Why?", "When?"], passages, encode, seed=1, count=12))
    tasks = [request.task for request in requests]
    assert tasks[0] == tasks[3] == SELF_PROMPT_TASK
    assert [requests[0].tokens, requests[3].tokens] == [[4], [5]]
    assert tasks[1:12:3] == list(TASKS[:4])
    assert tasks[2:12:3] == [PASSAGE_TASK] * 4
    assert tasks[6:12:3] == [PASSAGE_TASK] * 2  # no turn is left
    assert {request.temperature for request in requests} <= {0.0, 0.7, 1.0}
    assert requests == list(mixed_requests(["Why?", "When?"], passages, encode, seed=1, count=12))


@pytest.mark.parametrize("turns", [[], ["Why?"]])
def test_without_passages_topics_fill_in(turns: list[str]) -> None:
    requests = list(islice(mixed_requests(turns, [], encode, seed=1, count=9), 9))
    assert len(requests) == 9
    assert [r.task for r in requests if r.task in TASKS] == list(TASKS[: 9 - len(turns)])[:8] + (
        [TASKS[0]] if not turns else []
    )
