"""Train a drafter on the target's own answers, with checkpoints to resume from."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from harness.errors import ConfigError
from harness.training.batches import Batch, BatchMaker, frequent_tokens
from harness.training.corpus import Answer
from harness.training.learner import Learner, TrainingSettings

Student = TypeVar("Student", bound=Learner)

_CHECKPOINT = "checkpoint.pt"


@dataclass(slots=True)
class Progress:
    """Where training stands; stored in each checkpoint."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    seconds: float = 0.0
    positions: int = 0
    history: list[dict[str, float]] = field(default_factory=list)


class Distiller(Generic[Student]):
    """One training run in one folder; started again in the same folder, it goes on from its checkpoint."""

    def __init__(
        self,
        out: Path,
        *,
        make_student: Callable[[NDArray[np.int32]], Student],
        train: Sequence[Answer],
        held_out: Sequence[Answer],
        settings: TrainingSettings,
        eos_ids: frozenset[int],
        vocab_size: int,
    ) -> None:
        """Build the student, and load the folder's checkpoint where there is one.

        Args:
            out: folder of the checkpoint.
            make_student: builds what is trained, given the [draft_vocab_size] ids of its head.
            train: answers to train on.
            held_out: answers to evaluate on.
            settings: compared with those of the folder's checkpoint.
            eos_ids: the target's end tokens, part of the reduced vocabulary in any case.
            vocab_size: of the target.

        Raises:
            ConfigError: the folder's checkpoint was made with other settings.
        """
        torch.set_num_threads(settings.num_threads)
        torch.manual_seed(settings.seed)
        self.settings, self._train, self._out = settings, list(train), out
        self.draft_vocab: NDArray[np.int32] = frequent_tokens(
            train, size=settings.draft_vocab_size, always=eos_ids, vocab_size=vocab_size
        )
        self._maker = BatchMaker(
            self.draft_vocab,
            vocab_size=vocab_size,
            max_prompt_tokens=settings.max_prompt_tokens,
            tokens_per_batch=settings.tokens_per_batch,
        )
        self._held_out = list(self._maker.epoch(list(held_out), seed=0))
        self.student: Student = make_student(self.draft_vocab)
        self._optimizer = torch.optim.AdamW(
            self.student.parameters(), lr=settings.learning_rate, betas=(0.9, 0.95), weight_decay=0.01
        )
        steps_per_epoch = sum(1 for _ in self._maker.epoch(self._train, seed=settings.seed))
        self.num_steps = max(1, round(settings.epochs * steps_per_epoch))
        self.progress = Progress()
        out.mkdir(parents=True, exist_ok=True)
        self._resume()

    def run(self) -> Progress:
        """Train to the end, evaluating on held-out answers as it goes."""
        last_save = time.monotonic()
        bar = tqdm(total=self.num_steps, initial=self.progress.step, unit="step", disable=None)
        for batch in self._batches():
            start = time.monotonic()
            loss = self._step(batch)
            self.progress.step += 1
            self.progress.positions += len(batch.where[0])
            self.progress.seconds += time.monotonic() - start
            bar.update()
            bar.set_postfix(loss=f"{loss:.3f}")
            if time.monotonic() - last_save > self.settings.checkpoint_every_s:
                self.evaluate()
                self._save()
                last_save = time.monotonic()
        bar.close()
        self.evaluate()
        self._save()
        return self.progress

    def evaluate(self) -> dict[str, float]:
        """Measure held-out quality, and add it to the history."""
        scores = self.student.evaluate(self._held_out)
        row = {"step": self.progress.step, "seconds": round(self.progress.seconds, 1), **scores}
        self.progress.history.append(row)
        tqdm.write(" ".join(f"{key}={value:.4g}" for key, value in row.items()))
        return scores

    def _batches(self) -> Iterator[Batch]:
        progress = self.progress
        while True:
            for index, batch in enumerate(
                self._maker.epoch(self._train, seed=self.settings.seed + progress.epoch)
            ):
                if progress.step >= self.num_steps:
                    return
                if index >= progress.batch:
                    progress.batch = index + 1
                    yield batch
            progress.epoch, progress.batch = progress.epoch + 1, 0

    def _step(self, batch: Batch) -> float:
        share = self.progress.step / self.num_steps
        for group in self._optimizer.param_groups:
            group["lr"] = self.settings.learning_rate * _schedule(share)
        weight = self.settings.overlap_weight if share > 0.5 else 0.0
        loss = self.student.loss(batch, overlap_weight=weight)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.student.parameters(), 1.0)
        self._optimizer.step()
        return float(loss.detach())

    def _save(self) -> None:
        state = {
            "settings": asdict(self.settings),
            "progress": asdict(self.progress),
            "student": self.student.state_dict(),
            "optimizer": self._optimizer.state_dict(),
        }
        temporary = self._out / (_CHECKPOINT + ".tmp")
        torch.save(state, temporary)
        temporary.replace(self._out / _CHECKPOINT)

    def _resume(self) -> None:
        file = self._out / _CHECKPOINT
        if not file.is_file():
            return
        # weights_only: a checkpoint is data, it must not run code
        state: dict[str, Any] = torch.load(file, weights_only=True)
        if state["settings"] != asdict(self.settings):
            raise ConfigError(
                "--out",
                "holds a checkpoint made with other settings",
                str(self._out),
                "Choose another folder.",
            )
        self.student.load_state_dict(state["student"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.progress = Progress(**state["progress"])


def _schedule(share: float) -> float:
    warmup = 0.02
    if share < warmup:
        return max(share, 1e-3) / warmup
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (share - warmup) / (1 - warmup)))
