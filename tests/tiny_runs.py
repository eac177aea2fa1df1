"""What a run on tiny models needs: a pair, a workload of its own, and the command line that names them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from harness.config.schema import (
    BackendConfig,
    HarnessConfig,
    MeasureConfig,
    MethodConfig,
    PairConfig,
    WorkloadConfig,
)
from harness.config.validate import validate

PROMPTS = ("abc abc abc", "hello there", "one two three", "x y z")


@dataclass(frozen=True)
class TinyRun:
    """Files of a tiny run.

    Attributes:
        folder: holds everything; results and reports go below it.
        target: checkpoint of two layers.
        drafter: checkpoint of one layer with the same tokenizer.
        workload: four prompts of two tasks.
        warmup: two other prompts.
    """

    folder: Path
    target: Path
    drafter: Path
    workload: Path
    warmup: Path

    def arguments(self, *more: str) -> list[str]:
        """A command line that measures the baseline and draft_model-k2 on four prompts, eight tokens each."""
        # Hydra's parser takes flags before or after the overrides, not between them
        return [
            *(flag for flag in more if flag == "-m"),
            "pair.name=tiny",
            f"pair.target=path:{self.target}",
            f"pair.drafter=path:{self.drafter}",
            f"workload.name={self.workload}",
            f"workload.warmup={self.warmup}",
            "workload.max_output_tokens=8",
            "measure=quick",
            "method.k=2",
            "backend.dtype=float32",
            "backend.num_threads=1",
            f"results_dir={self.folder / 'results'}",
            f"reports_dir={self.folder / 'reports'}",
            *(override for override in more if override != "-m"),
        ]

    def config(self, **changes: Any) -> HarnessConfig:
        """The cell that `arguments` compose, with values replaced: `sampling__top_p=0.5`."""
        made = HarnessConfig(
            backend=BackendConfig(dtype="float32", num_threads=1),
            pair=PairConfig("tiny", f"path:{self.target}", f"path:{self.drafter}"),
            method=MethodConfig(k=2),
            workload=WorkloadConfig(str(self.workload), warmup=str(self.warmup), max_output_tokens=8),
            measure=MeasureConfig(warmup_prompts=1, max_repeats=1, max_time_s=20.0),
            results_dir=str(self.folder / "results"),
            reports_dir=str(self.folder / "reports"),
        )
        for name, value in changes.items():
            *parents, leaf = name.split("__")
            setattr(attrgetter(".".join(parents))(made) if parents else made, leaf, value)
        validate(made)
        return made


def write_tiny_run(folder: Path, make_llama: Callable[..., Path]) -> TinyRun:
    """Write the models and workloads of a tiny run."""
    return TinyRun(
        folder=folder,
        target=make_llama("target"),
        drafter=make_llama("drafter", seed=3, num_layers=1),
        workload=write_workload(folder / "mine.jsonl", PROMPTS, tasks=("code", "chat")),
        warmup=write_workload(folder / "warm.jsonl", ("warm up", "again")),
    )


def write_peaked_run(folder: Path, make_llama: Callable[..., Path]) -> TinyRun:
    """A target with peaked distributions, and a drafter that is often right about it."""

    def peaked(name: str, **options: Any) -> Path:
        spread = 0.3 if name == "target" else 0.24
        return make_llama(name, initializer_range=spread, tie_word_embeddings=False)

    run = write_tiny_run(folder, peaked)
    # long enough that the caches have a row to spare for the measured prompts
    write_workload(run.warmup, ("warm up " * 4,))
    return run


def write_workload(file: Path, texts: Sequence[str], *, tasks: Sequence[str] = ("chat",)) -> Path:
    """Write a workload named after its file, with prompts `<name>-0`, `<name>-1`, ..."""
    name = file.stem
    header = {"format": "specdec-workload", "version": 1, "name": name, "description": "t", "language": "en"}
    lines: list[dict[str, object]] = [header]
    for number, text in enumerate(texts):
        messages = [{"role": "user", "content": text}]
        lines.append({"id": f"{name}-{number}", "task": tasks[number % len(tasks)], "messages": messages})
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return file
