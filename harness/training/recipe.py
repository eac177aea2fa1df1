"""The data recipe of the shipped drafter: which prompts the target answers, and how."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from tqdm import tqdm

from harness.engine.weights import load_transformer
from harness.models.sources import resolve_model
from harness.models.tokenizer import Tokenizer, load_tokenizer
from harness.training.corpus import Answer, shards, write_shard
from harness.training.generate import BatchedGenerator, Request
from harness.training.prompts import check_disjoint_from_workloads, topic_prompts

SELF_PROMPT_TASK = "self"
SHARD_ANSWERS = 100
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


@dataclass(frozen=True, slots=True)
class CorpusRecipe:
    """What a corpus is made of.

    Attributes:
        target: model reference.
        answers: how many answers.
        self_prompts: user turns the target writes itself.
        batch: answers generated together.
        max_prompt_tokens: longer prompts are skipped.
        max_new_tokens: longest answer.
        seed: of prompts and sampling.
    """

    target: str
    answers: int
    self_prompts: int
    batch: int
    max_prompt_tokens: int
    max_new_tokens: int
    seed: int


def build_corpus(recipe: CorpusRecipe, out: Path) -> int:
    """Generate a corpus into a folder of shards.

    A run started again in the same folder keeps its shards and asks other prompts for the rest.

    Returns:
        Answer tokens written by this call.
    """
    out.mkdir(parents=True, exist_ok=True)
    target = resolve_model(recipe.target)
    tokenizer = load_tokenizer(target.path)
    model = load_transformer(target.path)
    first = len(shards(out))
    seed = recipe.seed + 1000 * first

    def generator(max_prompt: int, max_new: int) -> BatchedGenerator:
        return BatchedGenerator(
            model,
            batch=recipe.batch,
            max_prompt_tokens=max_prompt,
            max_new_tokens=max_new,
            eos_ids=tokenizer.eos_ids,
            seed=seed,
        )

    prefix = _user_turn_opening(tokenizer)
    turns = self_prompts(generator(len(prefix), 160), prefix, count=recipe.self_prompts)
    texts = [tokenizer.decode(turn) for turn in tqdm(turns, desc="self prompts", disable=None)]
    check_disjoint_from_workloads(texts)
    missing = recipe.answers - SHARD_ANSWERS * first
    requests = mixed_requests(texts, tokenizer.encode_user_text, seed=seed, count=max(0, missing))
    answers = generator(recipe.max_prompt_tokens, recipe.max_new_tokens).run(requests)
    written = 0
    for index, chunk in enumerate(_chunks(tqdm(answers, total=missing, desc="answers", disable=None))):
        write_shard(out, first + index, chunk)
        written += sum(len(answer.answer_tokens) for answer in chunk)
    return written


def _chunks(answers: Iterable[Answer]) -> Iterator[list[Answer]]:
    iterator = iter(answers)
    while chunk := list(islice(iterator, SHARD_ANSWERS)):
        yield chunk


def _user_turn_opening(tokenizer: Tokenizer) -> list[int]:
    """Ids of the chat template up to where a user's text would begin."""
    marker = "\N{BLACK SQUARE}"
    rendered = tokenizer.render_user_text(marker)
    return tokenizer.encode_text(rendered[: rendered.index(marker)])
