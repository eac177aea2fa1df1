from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from training.tiny_corpus import answers_of

from harness.errors import ConfigError
from harness.training.corpus import Answer
from harness.training.distil import Distiller, Progress
from harness.training.student import DistilSettings, Student, distillation_loss

SETTINGS = DistilSettings(
    layer_indices=(0,),
    draft_vocab_size=100,
    epochs=2.5,
    learning_rate=2e-3,
    tokens_per_batch=200,
    max_prompt_tokens=16,
    checkpoint_every_s=0.0,
    num_threads=1,
)


@pytest.fixture
def target(make_tiny_llama: Callable[..., Path]) -> Path:
    return make_tiny_llama(initializer_range=0.3)


@pytest.fixture
def answers(target: Path) -> list[Answer]:
    return answers_of(target, count=60)


def distiller(
    target: Path, out: Path, answers: list[Answer], settings: DistilSettings = SETTINGS
) -> Distiller[Student]:
    return Distiller(
        out,
        make_student=lambda vocab: Student(target, layer_indices=settings.layer_indices, draft_vocab=vocab),
        train=answers[:50],
        held_out=answers[50:],
        settings=settings,
        eos_ids=frozenset({2}),
        vocab_size=300,
    )


def mean_loss(trained: Distiller[Student]) -> float:
    with torch.no_grad():
        batches = list(trained._maker.epoch(trained._train, seed=0))
        losses = [distillation_loss(trained.student.logits(b), b, overlap_weight=0.0) for b in batches]
    return float(torch.stack(losses).mean())


def test_training_lowers_the_loss_and_raises_the_overlap(
    target: Path, answers: list[Answer], tmp_path: Path
) -> None:
    trained = distiller(
        target, tmp_path / "run", answers, replace(SETTINGS, epochs=6, checkpoint_every_s=1e9)
    )
    loss = mean_loss(trained)
    trained.evaluate()
    progress = trained.run()
    assert mean_loss(trained) < loss - 0.2
    before, after = progress.history
    assert (before["step"], after["step"]) == (0, trained.num_steps)
    assert after["overlap"] > before["overlap"]
    assert progress.step == trained.num_steps
    assert progress.positions > 5 * sum(len(one.answer_tokens) for one in answers[:50])
    assert progress.seconds > 0


def test_a_fraction_of_an_epoch_counts(target: Path, answers: list[Answer], tmp_path: Path) -> None:
    trained = distiller(target, tmp_path / "run", answers)
    per_epoch = len(list(trained._maker.epoch(trained._train, seed=0)))
    assert trained.num_steps == round(2.5 * per_epoch)


def interrupt_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Distiller._step

    def step(self: Distiller[Student], batch: object) -> float:
        if self.progress.step == steps:
            raise KeyboardInterrupt
        return real(self, batch)  # type: ignore[arg-type]

    monkeypatch.setattr(Distiller, "_step", step)


def same_history(first: Progress, second: Progress) -> bool:
    """Equal but for the seconds that passed."""
    one, other = ([{**row, "seconds": 0} for row in p.history] for p in (first, second))
    return one == other


# the first epoch, its end, and the middle of the second
@pytest.mark.parametrize("steps", [2, 4, 6])
def test_a_restarted_run_goes_on_exactly(
    steps: int, target: Path, answers: list[Answer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = distiller(target, tmp_path / "whole", answers)
    assert whole.num_steps > 7
    straight = whole.run()
    with monkeypatch.context() as patch:
        interrupt_after(steps, patch)
        with pytest.raises(KeyboardInterrupt):
            distiller(target, tmp_path / "cut", answers).run()
    resumed = distiller(target, tmp_path / "cut", answers)
    assert resumed.progress.step == steps
    finished = resumed.run()
    assert (finished.step, finished.positions) == (straight.step, straight.positions)
    assert same_history(finished, straight)
    expected = whole.student.state_dict()
    for name, tensor in resumed.student.state_dict().items():
        assert torch.equal(tensor, expected[name]), name


def test_a_finished_run_trains_no_further(target: Path, answers: list[Answer], tmp_path: Path) -> None:
    first = distiller(target, tmp_path / "run", answers)
    first.run()
    again = distiller(target, tmp_path / "run", answers)
    progress = again.run()
    assert progress.step == first.num_steps
    for name, tensor in again.student.state_dict().items():
        assert torch.equal(tensor, first.student.state_dict()[name]), name


def test_other_settings_need_another_folder(target: Path, answers: list[Answer], tmp_path: Path) -> None:
    out = tmp_path / "run"
    distiller(target, out, answers)._save()
    with pytest.raises(ConfigError, match="holds a checkpoint made with other settings"):
        distiller(target, out, answers, replace(SETTINGS, seed=1))


def test_the_learning_rate_rises_and_falls(target: Path, answers: list[Answer], tmp_path: Path) -> None:
    trained = distiller(target, tmp_path / "run", answers, replace(SETTINGS, epochs=30.0))
    batch = next(trained._maker.epoch(trained._train, seed=0))
    rates = []
    for share in (0.0, 0.01, 0.02, 0.5, 1.0):
        trained.progress.step = round(share * trained.num_steps)
        trained._step(batch)
        rates.append(trained._optimizer.param_groups[0]["lr"])
    assert rates[0] < rates[1] <= rates[2]
    assert rates[2] == pytest.approx(2e-3, rel=0.1)
    assert rates[2] > rates[3] > rates[4]
    assert rates[4] == pytest.approx(2e-3 / 20)
