"""The data recipe of the shipped drafter: which prompts the target answers, and how."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from tqdm import tqdm

from harness.engine.weights import load_transformer
from harness.models.sources import resolve_model
from harness.models.tokenizer import Tokenizer, load_tokenizer
from harness.training.corpus import TURN_TASK, Answer, read_corpus, shards, write_shard
from harness.training.generate import BatchedGenerator, Request
from harness.training.prompts import check_disjoint_from_workloads, passage_prompts, topic_prompts

TURNS_FOLDER = "turns"
SELF_PROMPT_TASK = "self"
PASSAGE_TASK = "passage"
SHARD_ANSWERS = 100
# Half of the answers greedy, as drafters are used most at temperature 0; the rest as users sample.
TEMPERATURES = (0.0, 0.7, 0.0, 1.0)
# Most turns follow the model's own opening: questions and tasks. After the others the user's turn is a text
# to work on: a passage that is as long and as varied as what users paste.
SYSTEM_TURNS: tuple[tuple[str | None, int], ...] = (
    (None, 11),
    ("Provide a short and objective summary of the text that the user sends.", 4),
    ("Name the main point of the user's text in one short sentence, with dates and places.", 3),
    ("You are an editor. Rewrite the user's text so that it says the same in fewer words.", 2),
)
_PASSAGE_TOKENS = range(40, 221)


def user_turns(
    generator: BatchedGenerator, openings: Sequence[tuple[list[int], int]], *, count: int, seed: int
) -> Iterator[Answer]:
    """Let the target write user turns: it continues the chat template's opening of one.

    Args:
        generator: of the target; its end tokens close the turn.
        openings: ids of the template up to where a user's text would stand, with a weight each.
        count: turns to sample, before duplicates and fragments are dropped.
        seed: of the order of openings.

    Yields:
        Turns as answers: what stands before a turn is its prompt. They are text to train on themselves.

    Source: Xu et al. 2024, "Magpie: Alignment Data Synthesis from Scratch".
    """
    seen: set[bytes] = set()
    picks = random.Random(seed).choices(openings, [weight for _, weight in openings], k=count)
    for turn in generator.run(Request(TURN_TASK, opening, 1.0) for opening, _ in picks):
        key = turn.answer_tokens.tobytes()
        if len(turn.answer_tokens) > 4 and key not in seen:
            seen.add(key)
            yield turn


def mixed_requests(
    turns: Sequence[str],
    passages: Sequence[str],
    encode: Callable[[str], list[int]],
    *,
    seed: int,
    count: int,
) -> Iterator[Request]:
    """Mix in turn: a self-written user turn, a topic prompt, and a task on a self-written passage.

    Args:
        turns: the target's own user turns; when they run out, the other two kinds go on alone.
        passages: texts to summarise, quote, answer from, translate, edit; without any, topics fill in.
        encode: user text to prompt ids, chat template applied.
        seed: of the prompts and of the order of temperatures.
        count: requests in all.
    """
    shuffled = random.Random(seed)
    topics = topic_prompts(seed, count)
    on_passages = passage_prompts(passages, seed=seed) if passages else topics
    own = iter(turns)
    for index in range(count):
        text = next(own, None) if index % 3 == 0 else None
        task = SELF_PROMPT_TASK
        if text is None:
            task, text = next(topics if index % 3 == 1 else on_passages)
        yield Request(task, encode(text), shuffled.choice(TEMPERATURES))


def split_turns(turns: Iterable[Answer], tokenizer: Tokenizer) -> tuple[list[str], list[str]]:
    """Sort self-written turns into prompts, and passages of some length to work on.

    A turn that follows another system turn than the model's own, or that was cut at its limit, is no
    prompt. A passage ends with its last whole sentence.

    Returns:
        User texts, and passages.
    """
    plain = _user_turn_opening(tokenizer, None)
    prompts, passages = [], []
    for turn in turns:
        text = tokenizer.decode(turn.answer_tokens.tolist()).strip()
        ended = int(turn.tokens[-1]) in tokenizer.eos_ids
        if ended and turn.tokens[: turn.prompt_tokens].tolist() == plain:
            prompts.append(text)
        elif len(turn.answer_tokens) in _PASSAGE_TOKENS or not ended:
            passages.append(_whole_sentences(text))
    return prompts, [passage for passage in passages if len(passage.split()) > 15]


def _whole_sentences(text: str) -> str:
    end = max(text.rfind(mark) for mark in ".!?")
    return text[: end + 1]


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
    """Generate a corpus into a folder of shards, and the target's own user turns into `turns/` in it.

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
        """One over the same target, for prompts and answers of these lengths."""
        return BatchedGenerator(
            model,
            batch=recipe.batch,
            max_prompt_tokens=max_prompt,
            max_new_tokens=max_new,
            eos_ids=tokenizer.eos_ids,
            seed=seed,
        )

    openings = [(_user_turn_opening(tokenizer, system), weight) for system, weight in SYSTEM_TURNS]
    longest = max(len(opening) for opening, _ in openings)
    if recipe.self_prompts and not shards(out / TURNS_FOLDER):
        turns = user_turns(generator(longest, 224), openings, count=recipe.self_prompts, seed=seed)
        _write(tqdm(turns, desc="user turns", disable=None), out / TURNS_FOLDER, first=0)
    written = read_corpus(out / TURNS_FOLDER) if recipe.self_prompts else iter(())
    prompts, passages = split_turns(written, tokenizer)
    check_disjoint_from_workloads([*prompts, *passages])
    missing = max(0, recipe.answers - SHARD_ANSWERS * first)
    requests = mixed_requests(prompts, passages, tokenizer.encode_user_text, seed=seed, count=missing)
    answers = generator(recipe.max_prompt_tokens, recipe.max_new_tokens).run(requests)
    return _write(tqdm(answers, total=missing, desc="answers", disable=None), out, first=first)


def _write(answers: Iterable[Answer], out: Path, *, first: int) -> int:
    out.mkdir(parents=True, exist_ok=True)
    written = 0
    for index, chunk in enumerate(_chunks(answers)):
        write_shard(out, first + index, chunk)
        written += sum(len(answer.answer_tokens) for answer in chunk)
    return written


def _chunks(answers: Iterable[Answer]) -> Iterator[list[Answer]]:
    iterator = iter(answers)
    while chunk := list(islice(iterator, SHARD_ANSWERS)):
        yield chunk


def _user_turn_opening(tokenizer: Tokenizer, system: str | None) -> list[int]:
    """Ids of the chat template up to where a user's text would begin."""
    marker = "\N{BLACK SQUARE}"
    rendered = tokenizer.render_user_text(marker, system=system)
    return tokenizer.encode_text(rendered[: rendered.index(marker)])
