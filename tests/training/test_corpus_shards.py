from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from training.tiny_corpus import answer

from harness.errors import ConfigError, ResultFormatError
from harness.training.corpus import TURN_TASK, Answer, read_corpus, shards, write_shard
from harness.training.held_out import split_answers


def corpus(*prompts: int, seed: int = 0) -> list[Answer]:
    """One answer per prompt; equal numbers are equal prompts."""
    return [answer([prompt, 1, 2], [3 + index, 4], seed=seed) for index, prompt in enumerate(prompts)]


def ids(answers: list[Answer]) -> list[tuple[int, ...]]:
    return [tuple(one.tokens.tolist()) for one in answers]


def test_answers_come_back_as_they_were_written(tmp_path: Path) -> None:
    written = [answer([1, 2], [3, 4, 5]), answer([6], [7]), answer([8, 9, 10, 11], [12, 13])]
    written[1].task, written[1].temperature = "code", 0.7
    write_shard(tmp_path, 1, written[2:])
    write_shard(tmp_path, 0, written[:2])
    read = list(read_corpus(tmp_path))
    assert len(read) == 3
    for before, after in zip(written, read, strict=True):
        assert (after.task, after.prompt_tokens) == (before.task, before.prompt_tokens)
        assert after.temperature == pytest.approx(before.temperature)
        for name in ("tokens", "top_tokens", "top_logprobs", "answer_tokens"):
            one, other = getattr(before, name), getattr(after, name)
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


def test_a_half_written_shard_is_none(tmp_path: Path) -> None:
    write_shard(tmp_path, 0, corpus(1))
    (tmp_path / "shard-00001.tmp").write_bytes(b"half")
    assert [file.name for file in shards(tmp_path)] == ["shard-00000.npz"]


def test_an_empty_folder_says_how_to_make_a_corpus(tmp_path: Path) -> None:
    with pytest.raises(ResultFormatError, match=r"holds no corpus shard.*train corpus"):
        list(read_corpus(tmp_path))


def test_the_last_answers_are_held_out(tmp_path: Path) -> None:
    answers = corpus(1, 2, 3, 4, 5)
    write_shard(tmp_path, 0, answers)
    train, held_out = split_answers([tmp_path], count=2)
    assert (ids(train), ids(held_out)) == (ids(answers[:3]), ids(answers[3:]))


def test_no_prompt_is_on_both_sides(tmp_path: Path) -> None:
    answers = corpus(1, 5, 2, 5, 3, 5)
    write_shard(tmp_path, 0, answers)
    train, held_out = split_answers([tmp_path], count=1)
    assert ids(held_out) == ids(answers[5:])
    assert ids(train) == ids([answers[0], answers[2], answers[4]])


def test_a_longer_prompt_with_the_same_beginning_is_another_one(tmp_path: Path) -> None:
    answers = [answer([1, 2, 3], [4]), answer([1, 2], [3, 4])]
    write_shard(tmp_path, 0, answers)
    train, held_out = split_answers([tmp_path], count=1)
    assert (ids(train), ids(held_out)) == (ids(answers[:1]), ids(answers[1:]))


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_folders_share_what_is_held_out(tmp_path: Path, count: int) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for number, folder in enumerate(folders):
        folder.mkdir()
        write_shard(folder, 0, corpus(*range(10 * number + 10, 10 * number + 16), seed=number))
    train, held_out = split_answers(folders, count=count)
    assert (len(train), len(held_out)) == (12 - count, count)
    firsts = [one.tokens[0] // 10 for one in held_out]
    assert abs(firsts.count(1) - firsts.count(2)) <= 1


def test_something_must_be_left_on_both_sides(tmp_path: Path) -> None:
    write_shard(tmp_path, 0, corpus(1, 1, 1))
    with pytest.raises(ConfigError, match="must leave answers to train on"):
        split_answers([tmp_path], count=1)
    with pytest.raises(ConfigError, match="--held-out: must be at least 1, got 0"):
        split_answers([tmp_path], count=0)


def test_turns_that_share_an_opening_stay_in_training(tmp_path: Path) -> None:
    opening = [1, 7, 8]
    turns = [replace(answer(opening, [10 + n, 20 + n, 2]), task=TURN_TASK) for n in range(6)]
    write_shard(tmp_path, 0, [*turns, turns[-1]])
    train, held_out = split_answers([tmp_path], count=1)
    assert len(held_out) == 1
    # the same text twice: the copy of what is held out goes, the others stay
    assert [one.answer_tokens.tolist() for one in train] == [one.answer_tokens.tolist() for one in turns[:-1]]
