"""The data recipe of the shipped drafter: which prompts the target answers, and how."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator

from harness.training.generate import BatchedGenerator, Request
from harness.training.prompts import topic_prompts

SELF_PROMPT_TASK = "self"
# Half of the answers greedy, as drafters are used most at temperature 0; the rest as users sample.
TEMPERATURES = (0.0, 0.7, 0.0, 1.0)


def self_prompts(generator: BatchedGenerator, prefix: list[int], *, count: int) -> Iterator[list[int]]:
    """Let the target write user turns: it continues the chat template's opening of one.

    Args:
        generator: of the target; its end tokens close the turn.
        prefix: ids of the template up to where a user's text would stand.
        count: turns to sample, before duplicates and fragments are dropped.

    Yields:
        Ids of one user turn, without prefix and end token.

    Source: Xu et al. 2024, "Magpie: Alignment Data Synthesis from Scratch".
    """
    seen: set[tuple[int, ...]] = set()
    asked = (Request(SELF_PROMPT_TASK, prefix, 1.0) for _ in range(count))
    for answer in generator.run(asked):
        turn = tuple(answer.answer_tokens[:-1].tolist())
        if len(turn) >= 4 and turn not in seen:
            seen.add(turn)
            yield list(turn)


def mixed_requests(
    user_turns: Iterable[str], encode: Callable[[str], list[int]], *, seed: int, count: int
) -> Iterator[Request]:
    """Mix self-written user turns with topic prompts, one of the former to two of the latter.

    Args:
        user_turns: the target's own user turns; when they run out, topic prompts go on alone.
        encode: user text to prompt ids, chat template applied.
        seed: of the topic prompts and of the order of temperatures.
        count: requests in all.
    """
    shuffled = random.Random(seed)
    topics = topic_prompts(seed, count)
    own = iter(user_turns)
    for index in range(count):
        text = next(own, None) if index % 3 == 2 else None
        task = SELF_PROMPT_TASK
        if text is None:
            task, text = next(topics)
        yield Request(task, encode(text), shuffled.choice(TEMPERATURES))
