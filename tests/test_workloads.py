from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.errors import WorkloadError
from harness.paths import workloads_dir
from harness.workloads import (
    Message,
    Prompt,
    available_workloads,
    check_disjoint,
    load_workload,
    normalise,
)

TASKS = ("code", "chat", "summarization", "qa_context", "translation", "maths", "structured", "creative")
HEADER = {
    "format": "specdec-workload",
    "version": 1,
    "name": "mine",
    "description": "A test.",
    "language": "en",
}
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_lines(*lines: Any, name: str = "mine") -> Path:
        text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
        path = tmp_path / f"{name}.jsonl"
        path.write_text(text + "\n", encoding="utf-8")
        return path

    return write_lines


def entry(prompt_id: str = "a-1", content: str = "Hello there", **changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "id": prompt_id,
        "task": "chat",
        "messages": [{"role": "user", "content": content}],
        **changes,
    }
    return {key: value for key, value in fields.items() if value is not ...}


def refusal(path: Path) -> str:
    with pytest.raises(WorkloadError) as caught:
        load_workload(str(path))
    return str(caught.value)


def test_available_workloads_are_the_shipped_files() -> None:
    assert available_workloads() == sorted(
        [*TASKS, "all_tasks", "chinese", "copy_creative", "mixed", "warmup"]
    )


@pytest.mark.parametrize("name", available_workloads())
def test_shipped_workload_loads_under_its_own_name(name: str) -> None:
    workload = load_workload(name)
    assert workload.name == name
    assert workload.language == ("zh" if name == "chinese" else "en")
    assert len({normalise(prompt.content) for prompt in workload.prompts}) == len(workload.prompts)


@pytest.mark.parametrize("name", TASKS)
def test_task_workload_has_enough_prompts_of_its_one_task(name: str) -> None:
    workload = load_workload(name)
    assert workload.tasks == (name,)
    assert len(workload.prompts) >= 14
    low, high = (120, 220) if name in ("summarization", "qa_context") else (14, 120)
    for prompt in workload.prompts:
        assert low <= len(prompt.content.split()) <= high, prompt.id


def test_chinese_covers_every_task() -> None:
    workload = load_workload("chinese")
    assert set(workload.tasks) == set(TASKS)
    assert len(workload.prompts) >= 14


def test_mixed_entries_equal_those_of_the_task_files() -> None:
    mixed = load_workload("mixed").prompts
    by_id = {prompt.id: prompt for task in TASKS for prompt in load_workload(task).prompts}
    assert len(mixed) == 32
    for prompt in mixed:
        assert prompt == by_id[prompt.id]


def test_all_tasks_holds_every_prompt_of_the_task_files() -> None:
    found = load_workload("all_tasks").prompts
    expected = [prompt for task in TASKS for prompt in load_workload(task).prompts]
    assert sorted(found, key=lambda prompt: prompt.id) == sorted(expected, key=lambda prompt: prompt.id)
    assert len(found) >= 4 * 32  # four batches of 32
    assert {prompt.task for prompt in found[:8]} == set(TASKS)


def test_copy_creative_alternates_prompts_of_two_task_files() -> None:
    pairs = zip(load_workload("qa_context").prompts, load_workload("creative").prompts, strict=True)
    assert load_workload("copy_creative").prompts == tuple(prompt for pair in pairs for prompt in pair)


def test_mixed_covers_all_tasks_in_any_eight_prompts_in_a_row() -> None:
    tasks = [prompt.task for prompt in load_workload("mixed").prompts]
    for start in range(len(tasks) - 7):
        assert set(tasks[start : start + 8]) == set(TASKS)


@pytest.mark.parametrize("name", [name for name in available_workloads() if name != "warmup"])
def test_warmup_is_disjoint_from_every_measured_workload(name: str) -> None:
    check_disjoint(load_workload(name), load_workload("warmup"))


def test_readme_example_is_a_valid_workload(tmp_path: Path) -> None:
    readme = (workloads_dir() / "README.md").read_text(encoding="utf-8")
    example = readme.split("```json\n")[1].split("```")[0]
    path = tmp_path / "support.jsonl"
    path.write_text(example, encoding="utf-8")
    assert [prompt.max_output_tokens for prompt in load_workload(str(path)).prompts] == [None, 64]


def test_readme_table_states_the_number_of_prompts() -> None:
    readme = (workloads_dir() / "README.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in readme.splitlines() if line.startswith("| `")]
    stated = {row[1].split("`")[1]: row[2].strip() for row in rows if row[2].strip().isdigit()}
    assert stated == {name: str(len(load_workload(name).prompts)) for name in available_workloads()}


def test_fields_of_an_own_file(write: Write) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why\u2028?"}]
    path = write(
        json.dumps(HEADER),
        "",
        json.dumps(entry("p1", messages=messages, max_output_tokens=5, tags=["x", "y"]), ensure_ascii=False),
        entry("p2", messages=..., prompt="Once upon a time", task="raw"),
    )
    workload = load_workload(str(path))
    assert workload.prompts == (
        Prompt(
            "p1", "chat", (Message("system", "Be brief."), Message("user", "Why\u2028?")), None, 5, ("x", "y")
        ),
        Prompt("p2", "raw", None, "Once upon a time", None, ()),
    )
    assert (workload.name, workload.description, workload.language) == ("mine", "A test.", "en")
    assert workload.path == path
    assert workload.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert workload.tasks == ("chat", "raw")
    assert workload.prompts[0].content == "Be brief.\nWhy\u2028?"


def test_take_returns_a_prefix_or_refuses(write: Write) -> None:
    workload = load_workload(str(write(HEADER, entry("a", "one"), entry("b", "two"), entry("c", "three"))))
    assert [prompt.id for prompt in workload.take(2)] == ["a", "b"]
    assert workload.take(None) == workload.prompts
    for number in (0, -1, 4):
        with pytest.raises(WorkloadError, match=f"between 1 and 3, got {number}"):
            workload.take(number)


def test_unknown_name_suggests_the_nearest_and_lists_all() -> None:
    with pytest.raises(WorkloadError, match=r"Did you mean 'summarization'\?.*chat, chinese, code"):
        load_workload("summarisation")


def test_missing_file_is_named(tmp_path: Path) -> None:
    assert f"{tmp_path / 'gone.jsonl'}: no such workload file" in refusal(tmp_path / "gone.jsonl")


def test_bytes_that_are_not_utf8_are_refused_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "latin.jsonl"
    path.write_bytes(json.dumps(HEADER).encode() + b'\n{"id": "caf\xe9"}\n')
    assert f"{path}, line 2: not UTF-8 (byte 12 of the line)" in refusal(path)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"id": "x",', "line 2, column 12: not valid JSON"),
        ("[1]", "line 2: must be a JSON object"),
        (entry(id=...), "line 2, field 'id': missing"),
        (entry(id=7), "line 2, field 'id': must be text that is not empty, got 7"),
        (entry(task=" "), "line 2, field 'task': must be text that is not empty"),
        (entry(task=...), "line 2, field 'task': missing"),
        (entry(prompt="x"), "line 2, field 'messages': give exactly one of messages and prompt, got both"),
        (
            entry(messages=...),
            "line 2, field 'messages': give exactly one of messages and prompt, got neither",
        ),
        (entry(messages=..., prompt=""), "line 2, field 'prompt': must be text that is not empty"),
        (entry(messages=[]), "line 2, field 'messages': must be a list that is not empty"),
        (entry(messages=["Hi"]), "line 2, field 'messages[0]': must be an object"),
        (
            entry(messages=[{"role": "human", "content": "Hi"}]),
            "field 'messages[0].role': unknown role 'human'. Use one of system, user, assistant",
        ),
        (entry(content="\n"), "line 2, field 'messages[0].content': must be text that is not empty"),
        (
            entry(messages=[{"role": "user", "contents": "Hi"}]),
            "field 'messages[0].contents': unknown key. Did you mean 'content'?",
        ),
        (entry(message="x"), "line 2, field 'message': unknown key. Did you mean 'messages'?"),
        (entry(zzz=1), "line 2, field 'zzz': unknown key. Known keys: id, task, messages"),
        (
            entry(max_output_tokens=0),
            "field 'max_output_tokens': must be a whole number of at least 1, got 0",
        ),
        (entry(max_output_tokens=1.5), "must be a whole number of at least 1, got 1.5"),
        (entry(max_output_tokens=True), "must be a whole number of at least 1, got True"),
        (entry(tags="x"), "line 2, field 'tags': must be a list of words"),
    ],
)
def test_defective_prompt_is_refused(write: Write, line: Any, expected: str) -> None:
    path = write(HEADER, line)
    message = refusal(path)
    assert message.startswith(str(path))
    assert expected in message


def test_duplicate_id_names_both_lines(write: Write) -> None:
    message = refusal(write(HEADER, entry("a", "one"), entry("b", "two"), entry("a", "three")))
    assert "line 4, field 'id': 'a' is already used in line 2" in message


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (entry(), "line 1, field 'format': the first object must be a header"),
        ({**HEADER, "version": 2}, "line 1, field 'version': must be 1, got 2"),
        ({**HEADER, "version": True}, "line 1, field 'version': must be 1, got True"),
        ({**HEADER, "lang": "en"}, "line 1, field 'lang': unknown key. Did you mean 'language'?"),
        ({**HEADER, "name": ""}, "line 1, field 'name': must be text that is not empty"),
        (
            {key: HEADER[key] for key in HEADER if key != "language"},
            "line 1, field 'language': missing. Write \"language\"",
        ),
    ],
)
def test_defective_header_is_refused(write: Write, header: Any, expected: str) -> None:
    assert expected in refusal(write(header, entry()))


def test_workload_without_prompts_is_refused(write: Write) -> None:
    assert "no prompts after the header" in refusal(write(HEADER))
    assert "the file is empty" in refusal(write(""))


def test_check_disjoint_ignores_case_and_white_space(write: Write) -> None:
    measured = load_workload(str(write(HEADER, entry("m1", "Say  Hello\nnow"), name="measured")))
    shared = load_workload(
        str(write(HEADER, entry("w1", "Other"), entry("w2", "say hello NOW"), name="warm"))
    )
    other = load_workload(str(write(HEADER, entry("w1", "Say hello later"), name="other")))
    check_disjoint(measured, other)
    with pytest.raises(WorkloadError, match=r"warm-up prompt 'w2' equals 'm1' of .*measured\.jsonl"):
        check_disjoint(measured, shared)
