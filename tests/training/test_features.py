from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from training.tiny_corpus import answers_of

from harness.engine.model import Transformer
from harness.engine.weights import load_transformer
from harness.errors import StorageError
from harness.training.batches import BatchMaker
from harness.training.corpus import Answer
from harness.training.features import attach_features, kept_tokens

MAX_PROMPT = 6


@pytest.fixture
def target_dir(make_tiny_llama: Callable[..., Path]) -> Path:
    return make_tiny_llama(initializer_range=0.3)


@pytest.fixture
def target(target_dir: Path) -> Transformer:
    return load_transformer(target_dir, dtype=torch.float32)


@pytest.fixture
def answers(target_dir: Path) -> list[Answer]:
    return answers_of(target_dir, count=11, max_new_tokens=7)


def attach(answers: list[Answer], target: Transformer, folder: Path, target_id: str = "it") -> Path:
    return attach_features(
        answers, target, folder, target_id=target_id, max_prompt_tokens=MAX_PROMPT, tokens_per_batch=50
    )


def test_features_are_transformers_last_hidden_states(
    answers: list[Answer], target: Transformer, target_dir: Path, tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM

    theirs = AutoModelForCausalLM.from_pretrained(target_dir, dtype=torch.float32).model
    attach(answers, target, tmp_path)
    assert any(answer.prompt_tokens > MAX_PROMPT for answer in answers)
    for answer in answers:
        with torch.inference_mode():
            hidden = theirs(torch.from_numpy(answer.tokens[None].astype(np.int64))).last_hidden_state[0]
        kept = kept_tokens(answer, MAX_PROMPT)
        assert kept == min(answer.prompt_tokens, MAX_PROMPT) + len(answer.answer_tokens) - 1
        assert answer.features is not None
        # a cut prompt's tokens still see what was cut
        expected = hidden[-kept - 1 : -1].numpy()
        np.testing.assert_allclose(answer.features, expected, rtol=2e-3, atol=2e-3)


def test_a_batch_pads_features_like_tokens(
    answers: list[Answer], target: Transformer, tmp_path: Path
) -> None:
    vocab = np.arange(20, dtype=np.int32)
    maker = BatchMaker(vocab, vocab_size=300, max_prompt_tokens=MAX_PROMPT, tokens_per_batch=200)
    assert maker.batch(answers).features is None
    attach(answers, target, tmp_path)
    batch = maker.batch(answers)
    assert batch.features is not None
    assert batch.features.shape == (*batch.tokens.shape, 64)
    for row, answer in enumerate(answers):
        assert answer.features is not None
        size = len(answer.features)
        np.testing.assert_array_equal(batch.features[row, :size].numpy(), answer.features)
        assert not batch.features[row, size:].any()


def test_a_cut_run_goes_on_and_a_whole_one_is_reused(
    answers: list[Answer], target: Transformer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = attach(answers, target, tmp_path)
    whole = np.fromfile(file, np.float16)
    state = file.with_suffix(".json")
    state.write_text(json.dumps({"answers": 4}))
    order = sorted(range(len(answers)), key=lambda index: len(answers[index].tokens))
    for index in order[4:]:
        features = answers[index].features
        assert features is not None
        features[:] = 0
    attach(answers, target, tmp_path)
    np.testing.assert_array_equal(np.fromfile(file, np.float16), whole)
    monkeypatch.setattr(Transformer, "forward", None)
    assert attach([replace(answer, features=None) for answer in answers], target, tmp_path) == file


def test_another_target_or_corpus_is_another_file(
    answers: list[Answer], target: Transformer, tmp_path: Path
) -> None:
    files = [
        attach(answers, target, tmp_path),
        attach(answers, target, tmp_path, target_id="other"),
        attach(answers[1:], target, tmp_path),
    ]
    assert len(set(files)) == 3


def test_an_unwritable_folder_is_said(answers: list[Answer], target: Transformer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="--features"):
        attach(answers, target, tmp_path / "file")
