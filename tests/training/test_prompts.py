from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from itertools import islice

import pytest

from harness.errors import ConfigError, WorkloadError
from harness.training import prompts as prompts_module
from harness.training.prompts import (
    TASKS,
    PromptParts,
    check_disjoint_from_workloads,
    load_parts,
    passage_prompts,
    topic_prompts,
)
from harness.workloads import load_workload, normalise

InstallParts = Callable[..., None]
SLOT_LEFT = re.compile(r"\{\+?[a-z_]+( as [a-z_]+)?\}|\{\d+\.\.")


@pytest.fixture
def use_parts(monkeypatch: pytest.MonkeyPatch) -> InstallParts:
    def install(templates: list[str], **lists: list[str]) -> None:
        parts = PromptParts(tasks=dict.fromkeys(TASKS, templates), passage_tasks=templates, lists=lists)
        monkeypatch.setattr(prompts_module, "load_parts", lambda: parts)

    return install


def first_text(seed: int = 0) -> str:
    return next(topic_prompts(seed, 1))[1]


def test_same_seed_gives_the_same_prompts_and_another_seed_others() -> None:
    first = list(topic_prompts(3, 400))
    assert first == list(topic_prompts(3, 400))
    assert first[:80] == list(topic_prompts(3, 80))
    shared = {text for _, text in first} & {text for _, text in topic_prompts(4, 400)}
    assert len(shared) < 40


def test_tasks_take_turns() -> None:
    assert [task for task, _ in topic_prompts(0, 16)] == list(TASKS) * 2
    assert set(load_parts().tasks) == set(TASKS)


def test_fifty_thousand_distinct_prompts_are_reachable() -> None:
    texts = [text for _, text in topic_prompts(11, 50_000)]
    assert len({normalise(text) for text in texts}) == 50_000


def test_every_slot_is_filled_and_every_list_is_used() -> None:
    for task, text in topic_prompts(1, 8000):
        assert not SLOT_LEFT.search(text), (task, text)
        assert text == text.strip()
    parts = load_parts()
    every_text = [text for group in (parts.tasks, parts.lists) for t in group.values() for text in t]
    every_text += parts.passage_tasks
    sources = {match["source"] for text in every_text for match in prompts_module._SLOT.finditer(text)}
    assert set(load_parts().lists) <= sources


def test_forms_and_topics_are_varied() -> None:
    parts = load_parts()
    for task in TASKS:
        assert len(set(parts.tasks[task])) >= 15
    subjects = {entry for slot in parts.lists["topic"] for entry in parts.lists[slot.strip("{}")]}
    assert len(subjects) >= 150
    openings = Counter(" ".join(text.split()[:6]) for _, text in topic_prompts(5, 4000))
    assert openings.most_common(1)[0][1] < 4000 * 0.04


def test_excluded_texts_do_not_come_again() -> None:
    taken = [text.upper() for _, text in topic_prompts(2, 800)]
    fresh = {normalise(text) for _, text in topic_prompts(2, 800, exclude=taken)}
    assert fresh.isdisjoint(normalise(text) for text in taken)


def test_training_and_held_out_prompts_are_disjoint_from_the_workloads() -> None:
    for seed in (0, 1):
        check_disjoint_from_workloads(text for _, text in topic_prompts(seed, 4000))


@pytest.mark.parametrize("name", ["code", "warmup", "chinese"])
def test_a_workload_prompt_among_the_training_texts_is_refused(name: str) -> None:
    prompt = load_workload(name).prompts[3]
    with pytest.raises(WorkloadError, match=prompt.id):
        check_disjoint_from_workloads(["Something else", prompt.content.upper() + "  \n"])


def test_slots_are_kept_renamed_or_fresh(use_parts: InstallParts) -> None:
    use_parts(["{name} {name} {name as b} {b} {+name}"], name=["x", "y", "z"])
    for seed in range(20):
        kept, again, other, other_again, fresh = first_text(seed).split()
        assert kept == again
        assert other == other_again
        assert {kept, other, fresh} == {"x", "y", "z"}


def test_drawn_text_may_hold_slots(use_parts: InstallParts) -> None:
    use_parts(["{place}: {who}"], place=["home of {who}"], who=["Ada", "Bo"])
    assert first_text() in ("home of Ada: Ada", "home of Bo: Bo")


def test_number_slots_stay_in_range_and_step(use_parts: InstallParts) -> None:
    use_parts(["{10..30/10} {2..3 as n} {n} {n}"])
    seen = set()
    for seed in range(60):
        tens, *same = first_text(seed).split()
        assert len(set(same)) == 1
        seen |= {tens, same[0]}
    assert seen == {"10", "20", "30", "2", "3"}


def test_braces_of_code_are_left_alone(use_parts: InstallParts) -> None:
    use_parts(['{"port": 1} { return x; } {}'])
    assert first_text() == '{"port": 1} { return x; } {}'


def test_too_many_prompts_are_refused(use_parts: InstallParts) -> None:
    use_parts(["{letter}"], letter=["a", "b"])
    with pytest.raises(ConfigError, match="templates are used up"):
        list(topic_prompts(0, 3))


def test_each_passage_comes_once_per_round_whole_and_with_no_slot_left() -> None:
    passages = [f"Passage {{braces}} number {n}: it says {n} things." for n in range(40)]
    drawn = list(islice(passage_prompts(passages, seed=3), 80))
    assert drawn == list(islice(passage_prompts(passages, seed=3), 80))
    for texts in (drawn[:40], drawn[40:]):
        assert all(sum(passage in text for _, text in texts) == 1 for passage in passages)
    assert (
        len({text.replace(passage, "") for _, text in drawn for passage in passages if passage in text}) > 25
    )
    assert not any(SLOT_LEFT.search(text.replace("{braces}", "")) for _, text in drawn)
