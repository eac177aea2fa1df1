"""Prompts to train drafters on: templates filled at random, disjoint from the shipped workloads.

`prompt_parts.json` holds the text: `tasks` maps each task to its templates, `lists` maps a slot's name to
what may fill it. A slot is written in braces:

- `{city}` draws from the list `city` once and keeps the value for the whole prompt;
- `{city as home}` draws another value, kept under the name `home`;
- `{+fact}` draws a fresh value at each occurrence;
- `{2..30}` is a whole number, `{50..900/25}` one in steps of 25, `{1..9 as n}` one kept under the name `n`.

An entry is drawn twice in one prompt only when its list is used up. What is drawn may itself hold slots.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from harness.errors import ConfigError, WorkloadError
from harness.workloads import available_workloads, load_workload, normalise

TASKS = ("code", "chat", "summarization", "qa_context", "translation", "maths", "structured", "creative")
"""The tasks in the order in which `topic_prompts` cycles through them."""

_PARTS_FILE = Path(__file__).with_name("prompt_parts.json")
_MAX_DUPLICATES_IN_A_ROW = 1000
_SLOT = re.compile(
    r"\{(?:(?P<low>\d+)\.\.(?P<high>\d+)(?:/(?P<step>\d+))?|(?P<fresh>\+?)(?P<source>[a-z_]+))"
    r"(?: as (?P<key>[a-z_]+))?\}"
)


@dataclass(frozen=True)
class PromptParts:
    """The text that prompts are built from.

    Attributes:
        tasks: templates of each task.
        passage_tasks: templates with the slot `{given_passage}`, which the caller's texts fill.
        lists: what may fill a slot, by the slot's name.
    """

    tasks: dict[str, list[str]]
    passage_tasks: list[str]
    lists: dict[str, list[str]]


@cache
def load_parts() -> PromptParts:
    """The templates and lists that ship with the package."""
    raw = json.loads(_PARTS_FILE.read_text(encoding="utf-8"))
    return PromptParts(**raw)


@dataclass
class _Filler:
    """Fills the slots of one prompt and remembers what it has drawn."""

    lists: dict[str, list[str]]
    rng: random.Random
    kept: dict[str, str] = field(default_factory=dict)
    drawn: dict[str, set[str]] = field(default_factory=dict)

    def fill(self, template: str) -> str:
        return _SLOT.sub(self._slot, template)

    def _slot(self, match: re.Match[str]) -> str:
        key = match["key"] or (match["source"] if not match["fresh"] else None)
        if key is not None and key in self.kept:
            return self.kept[key]
        value = self._number(match) if match["low"] else self._choice(match["source"])
        if key is not None:
            self.kept[key] = value
        return value

    def _number(self, match: re.Match[str]) -> str:
        return str(self.rng.randrange(int(match["low"]), int(match["high"]) + 1, int(match["step"] or 1)))

    def _choice(self, source: str) -> str:
        taken = self.drawn.setdefault(source, set())
        free = [entry for entry in self.lists[source] if entry not in taken]
        entry = self.rng.choice(free or self.lists[source])
        taken.add(entry)
        return self.fill(entry)


def topic_prompts(seed: int, count: int, *, exclude: Collection[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield distinct training prompts, one task after another in the order of `TASKS`.

    Args:
        seed: fixes the whole sequence; a held-out set takes another seed and `exclude`.
        count: how many prompts to yield.
        exclude: texts that must not be yielded, such as those of the training set.

    Yields:
        (task, user text); no text comes twice.

    Raises:
        ConfigError: if the templates can't yield so many distinct prompts.
    """
    parts = load_parts()
    rng = random.Random(seed)
    seen = {normalise(text) for text in exclude}
    for index in range(count):
        task = TASKS[index % len(TASKS)]
        for _ in range(_MAX_DUPLICATES_IN_A_ROW):
            text = _one_prompt(parts, task, rng)
            if normalise(text) not in seen:
                break
        else:
            raise ConfigError("count", f"the {task} templates are used up", count, "Ask for fewer prompts.")
        seen.add(normalise(text))
        yield task, text


def passage_prompts(passages: Sequence[str], *, seed: int) -> Iterator[tuple[str, str]]:
    """Yield tasks on given passages without end: each passage once per round, with another template.

    Args:
        passages: texts to work on, at least one.
        seed: fixes the sequence.

    Yields:
        (`passage`, user text).
    """
    parts = load_parts()
    rng = random.Random(seed)
    while True:
        for passage in rng.sample(passages, len(passages)):
            filler = _Filler(parts.lists, rng, kept={"given_passage": passage})
            yield "passage", filler.fill(rng.choice(parts.passage_tasks))


def _one_prompt(parts: PromptParts, task: str, rng: random.Random) -> str:
    return _Filler(parts.lists, rng).fill(rng.choice(parts.tasks[task])).strip()


def check_disjoint_from_workloads(texts: Iterable[str]) -> None:
    """Refuse training texts that equal a prompt of a shipped workload, up to case and white space.

    Args:
        texts: what a drafter would be trained on.

    Raises:
        WorkloadError: naming the workload, the prompt and the text they share.
    """
    measured = {
        normalise(prompt.content): f"{name}: {prompt.id}"
        for name in available_workloads()
        for prompt in load_workload(name).prompts
    }
    for text in texts:
        owner = measured.get(normalise(text))
        if owner is not None:
            raise WorkloadError(
                f"training text equals a measured prompt ({owner}): {text[:80]!r}. "
                "Take it out of the training set, or the drafter is measured on what it was trained on."
            )
