from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from engine.random_models import all_logits
from safetensors.torch import load_file
from training.tiny_corpus import answers_of

from harness.engine.weights import load_transformer
from harness.errors import ConfigError
from harness.training.batches import Batch, BatchMaker
from harness.training.student import Student, agreement, distillation_loss, save_checkpoint

DRAFT_VOCAB = np.array([2, 70, 5, 120, 33, 299, 60, 61], dtype=np.int32)


def batch_of(top_columns: list[list[int]], top_probs: list[list[float]]) -> Batch:
    size = len(top_columns)
    where = (torch.zeros(size, dtype=torch.int64), torch.arange(size))
    return Batch(
        torch.zeros(1, size, dtype=torch.int64), where, torch.tensor(top_columns), torch.tensor(top_probs)
    )


ONE = batch_of([[0, -1, 2]], [[0.6, 0.3, 0.1]])
LOGITS = torch.tensor([[0.5, 0.3, 0.2]]).log() + 3.0


def test_cross_entropy_counts_what_the_student_can_say() -> None:
    expected = -(0.6 * math.log(0.5) + 0.1 * math.log(0.2))
    assert float(distillation_loss(LOGITS, ONE, overlap_weight=0.0)) == pytest.approx(expected, rel=1e-6)


def test_the_overlap_term_is_the_rejection_rate() -> None:
    # min(0.6, 0.5) + min(0.1, 0.2): the token of 0.3 isn't in the vocabulary, so it is always rejected
    assert float(distillation_loss(LOGITS, ONE, overlap_weight=1.0)) == pytest.approx(0.4, rel=1e-6)


def test_the_terms_are_weighted_and_averaged_over_positions() -> None:
    both = batch_of([[0, -1, 2], [1, 0, -1]], [[0.6, 0.3, 0.1], [0.7, 0.2, 0.1]])
    logits = torch.cat([LOGITS, torch.tensor([[0.1, 0.8, 0.1]]).log()])
    first = 0.75 * -(0.6 * math.log(0.5) + 0.1 * math.log(0.2)) + 0.25 * 0.4
    second = 0.75 * -(0.7 * math.log(0.8) + 0.2 * math.log(0.1)) + 0.25 * (1 - 0.7 - 0.1)
    found = float(distillation_loss(logits, both, overlap_weight=0.25))
    assert found == pytest.approx((first + second) / 2, rel=1e-6)


def test_the_loss_is_least_at_the_targets_own_distribution() -> None:
    whole = batch_of([[0, 1, 2]], [[0.6, 0.3, 0.1]])
    target = torch.tensor([[0.6, 0.3, 0.1]]).log()
    for weight in (0.0, 0.5, 1.0):
        best = distillation_loss(target, whole, overlap_weight=weight)
        for shift in ([0.1, 0.0, 0.0], [0.0, -0.2, 0.1], [0.0, 0.0, 0.3]):
            assert distillation_loss(target + torch.tensor(shift), whole, overlap_weight=weight) > best


def test_agreement_is_counted_over_all_batches() -> None:
    first = batch_of([[0, 1], [-1, 0]], [[0.6, 0.4], [0.9, 0.1]])
    second = batch_of([[2, 0]], [[0.5, 0.25]])
    outputs = {
        id(first): torch.tensor([[0.7, 0.2, 0.1], [0.8, 0.1, 0.1]]).log(),
        id(second): torch.tensor([[0.2, 0.2, 0.6]]).log(),
    }
    student = cast(Student, SimpleNamespace(logits=lambda batch: outputs[id(batch)]))
    same, overlap = agreement(student, [first, second])
    # right, the likeliest token isn't in the vocabulary, right
    assert same == pytest.approx(2 / 3)
    assert overlap == pytest.approx((0.6 + 0.2 + 0.1 + 0.5 + 0.2) / 3, rel=1e-6)


@pytest.fixture(params=[True, False], ids=["tied", "untied"])
def target(request: Any, make_tiny_llama: Callable[..., Path]) -> Path:
    return make_tiny_llama(tie_word_embeddings=request.param, initializer_range=0.2)


def student_of(target: Path, *layers: int) -> Student:
    return Student(target, layer_indices=layers, draft_vocab=DRAFT_VOCAB)


def a_batch(target: Path) -> tuple[Batch, list[list[int]]]:
    answers = answers_of(target, count=6)
    maker = BatchMaker(DRAFT_VOCAB, vocab_size=300, max_prompt_tokens=20, tokens_per_batch=500)
    return maker.batch(answers), [one.tokens[:-1].tolist() for one in answers]


def test_a_student_with_all_layers_is_the_target(target: Path) -> None:
    batch, sequences = a_batch(target)
    model = load_transformer(target, dtype=torch.float32)
    logits = student_of(target, 0, 1).logits(batch).float().detach()
    expected = [all_logits(model, torch.tensor([tokens]))[0] for tokens in sequences]
    rows = torch.stack(
        [expected[row][column] for row, column in zip(*(w.tolist() for w in batch.where), strict=True)]
    )[:, torch.from_numpy(DRAFT_VOCAB.astype(np.int64))]
    # the student computes in bfloat16
    assert float((logits - rows).abs().max()) < 0.05 * float(rows.abs().max())


def test_layers_start_as_the_chosen_ones_of_the_target(target: Path) -> None:
    tensors = load_file(target / "model.safetensors")
    mine = student_of(target, 1).layer_tensors()
    assert not any("embed" in name or "lm_head" in name for name in mine)
    for name, tensor in mine.items():
        torch.testing.assert_close(tensor, tensors[name.replace("layers.0", "layers.1")], rtol=0, atol=0)


def test_embeddings_and_head_are_not_trained(target: Path) -> None:
    student = student_of(target, 0)
    batch, _ = a_batch(target)
    embeddings, head = student.embeddings.clone(), student.head.clone()  # type: ignore[operator]
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    distillation_loss(student.logits(batch), batch, overlap_weight=0.5).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    assert torch.equal(student.embeddings, embeddings)  # type: ignore[arg-type]
    assert torch.equal(student.head, head)  # type: ignore[arg-type]
    assert all(parameter.grad is not None for parameter in student.parameters())


def test_a_saved_student_loads_everywhere_with_equal_logits(target: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    student = student_of(target, 1)
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    folder = tmp_path / "saved/model"
    save_checkpoint(student, target, folder, draft_vocab=DRAFT_VOCAB)
    tokens = torch.tensor([[5, 60, 61, 62, 70, 120]])
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        expected = theirs(tokens).logits
    ours = all_logits(load_transformer(folder, dtype=torch.float32), tokens)
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)

    batch, sequences = a_batch(target)
    row = all_logits(load_transformer(folder, dtype=torch.float32), torch.tensor([sequences[0]]))[0]
    columns = batch.where[1][batch.where[0] == 0]
    reduced = row[columns][:, torch.from_numpy(DRAFT_VOCAB.astype(np.int64))]
    trained = student.logits(batch).float().detach()[: len(columns)]
    assert float((trained - reduced).abs().max()) < 0.05 * float(reduced.abs().max())

    assert json.loads((folder / "config.json").read_text())["num_hidden_layers"] == 1
    np.testing.assert_array_equal(np.load(folder / "draft_vocab.npy"), DRAFT_VOCAB)
    mine, its = AutoTokenizer.from_pretrained(folder), AutoTokenizer.from_pretrained(target)
    assert mine.get_vocab() == its.get_vocab()
    assert mine.chat_template == its.chat_template


def test_training_goes_on_from_a_trained_drafter(target: Path, tmp_path: Path) -> None:
    trained = student_of(target, 1)
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter.copy_(torch.randn_like(parameter).to(torch.bfloat16))
    save_checkpoint(trained, target, tmp_path, draft_vocab=DRAFT_VOCAB)
    fresh = student_of(target, 0)
    fresh.start_from(tmp_path)
    torch.testing.assert_close(fresh.state_dict(), trained.state_dict())


def test_a_drafter_of_fewer_layers_is_no_start(target: Path, tmp_path: Path) -> None:
    save_checkpoint(student_of(target, 1), target, tmp_path, draft_vocab=DRAFT_VOCAB)
    with pytest.raises(ConfigError, match=r"--start-from: .*'model.layers.1.* none there.*--layers"):
        student_of(target, 0, 1).start_from(tmp_path)
