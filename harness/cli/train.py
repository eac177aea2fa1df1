"""`python -m harness train`: make training data from a target, and drafters from that."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from harness.errors import ConfigError
from harness.models.catalogue import DEFAULT_TARGET

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from harness.models.checkpoint import CheckpointFacts, ResolvedModel
    from harness.training.corpus import Answer
    from harness.training.distil import Distiller
    from harness.training.head_student import HeadStudent
    from harness.training.learner import Learner, TrainingSettings
    from harness.training.student import DistilSettings

    Answers = tuple[list[Answer], list[Answer]]

Trained = TypeVar("Trained", bound="Learner")
_CHECKPOINT = "model"


def main(arguments: list[str]) -> int:
    """Run `corpus`, `draft`, `medusa` or `eagle`; see their `--help`."""
    parser = argparse.ArgumentParser(prog="python -m harness train", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    _add_corpus(commands.add_parser("corpus", help="let the target answer prompts, and keep what it thought"))
    _add_draft(commands.add_parser("draft", help="distil an independent draft model from a corpus"))
    _add_medusa(commands.add_parser("medusa", help="train Medusa heads on a corpus"))
    _add_eagle(commands.add_parser("eagle", help="train an EAGLE head on a corpus"))
    options = parser.parse_args(arguments)
    return int(options.run(options))


def _add_corpus(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", default=DEFAULT_TARGET, help="model reference (default: %(default)s)")
    parser.add_argument(
        "--out", type=Path, required=True, help="folder of shards; a restarted run goes on in it"
    )
    parser.add_argument(
        "--answers", type=int, default=12000, help="answers to generate (default: %(default)s)"
    )
    parser.add_argument("--self-prompts", type=int, default=6000, help="user turns the target writes itself")
    parser.add_argument("--batch", type=int, default=96, help="answers generated together")
    parser.add_argument("--max-prompt-tokens", type=int, default=320)
    parser.add_argument("--max-new-tokens", type=int, default=144)
    parser.add_argument("--seed", type=int, default=1)
    parser.set_defaults(run=_corpus)


def _add_training(parser: argparse.ArgumentParser) -> None:
    """What every drafter's training takes."""
    parser.add_argument("--target", default=DEFAULT_TARGET, help="model reference (default: %(default)s)")
    parser.add_argument(
        "--corpus", type=Path, nargs="+", required=True, help="folders made by `train corpus`"
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="folder of checkpoints; a restarted run goes on"
    )
    parser.add_argument("--draft-vocab", type=int, default=8192, help="tokens of the reduced head")
    parser.add_argument("--epochs", type=float, default=5.0)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument(
        "--max-prompt-tokens", type=int, default=320, help="longer prompts lose their beginning"
    )
    parser.add_argument("--overlap-weight", type=float, default=0.5)
    parser.add_argument(
        "--start-from",
        type=Path,
        help="folder of a trained drafter to go on from, such as another run's model",
    )
    parser.add_argument("--tokens-per-batch", type=int, default=4096, help="padded tokens per step")
    parser.add_argument("--checkpoint-every-s", type=float, default=120.0, help="seconds between evaluations")
    parser.add_argument("--held-out", type=int, default=150, help="answers kept for evaluation")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--asset", type=Path, help="export the trained tensors here, as the package ships them"
    )


def _add_draft(parser: argparse.ArgumentParser) -> None:
    _add_training(parser)
    parser.add_argument("--layers", type=int, nargs="+", default=[0, 29], help="target layers to start from")
    parser.set_defaults(run=_draft)


def _add_head(parser: argparse.ArgumentParser) -> None:
    """What the training of a drafter on hidden states takes."""
    _add_training(parser)
    parser.add_argument(
        "--features", type=Path, help="folder of the target's hidden states (default: in --out)"
    )


def _add_medusa(parser: argparse.ArgumentParser) -> None:
    _add_head(parser)
    parser.add_argument("--heads", type=int, default=4, help="drafted tokens, one per head")
    parser.add_argument("--blocks", type=int, default=1, help="residual blocks per head")
    parser.set_defaults(run=_medusa)


def _add_eagle(parser: argparse.ArgumentParser) -> None:
    _add_head(parser)
    parser.add_argument("--steps", type=int, default=3, help="drafted tokens unrolled in training")
    parser.add_argument("--feature-weight", type=float, default=0.1, help="of the distance to hidden states")
    parser.set_defaults(run=_eagle)


def _corpus(options: argparse.Namespace) -> int:
    from harness.training.recipe import CorpusRecipe, build_corpus

    recipe = CorpusRecipe(
        target=options.target,
        answers=options.answers,
        self_prompts=options.self_prompts,
        batch=options.batch,
        max_prompt_tokens=options.max_prompt_tokens,
        max_new_tokens=options.max_new_tokens,
        seed=options.seed,
    )
    written = build_corpus(recipe, options.out)
    print(f"corpus: {options.out} ({written:,} answer tokens)")
    return 0


def _draft(options: argparse.Namespace) -> int:
    from harness.models.drafter_asset import export_drafter_asset
    from harness.models.sources import resolve_model
    from harness.training.held_out import split_answers
    from harness.training.student import Student, save_checkpoint

    target = resolve_model(options.target)
    answers = split_answers(options.corpus, count=options.held_out)
    settings = _distil_settings(options, target.facts)

    def make(vocab: NDArray[np.int32]) -> Student:
        student = Student(target.path, layer_indices=settings.layer_indices, draft_vocab=vocab)
        if options.start_from:
            student.start_from(options.start_from)
        return student

    distiller = _distilled(options, target, answers, settings, make)
    checkpoint = options.out / _CHECKPOINT
    save_checkpoint(distiller.student, target.path, checkpoint, draft_vocab=distiller.draft_vocab)
    return _written(options, distiller, answers, partial(export_drafter_asset, base=target))


def _medusa(options: argparse.Namespace) -> int:
    from harness.training.medusa import MedusaSettings, MedusaStudent

    settings = MedusaSettings(**_common_settings(options), num_heads=options.heads, num_blocks=options.blocks)
    _at_least_one(options, "heads", "blocks")
    return _train_head(
        options, settings, lambda path, vocab: MedusaStudent(path, settings, draft_vocab=vocab)
    )


def _eagle(options: argparse.Namespace) -> int:
    from harness.training.eagle import EagleSettings, EagleStudent

    settings = EagleSettings(
        **_common_settings(options),
        num_steps=options.steps,
        feature_weight=options.feature_weight,
    )
    _at_least_one(options, "steps")
    return _train_head(options, settings, lambda path, vocab: EagleStudent(path, settings, draft_vocab=vocab))


def _train_head(options: argparse.Namespace, settings: TrainingSettings, make: Any) -> int:
    def student(vocab: NDArray[np.int32]) -> HeadStudent:
        head: HeadStudent = make(target.path, vocab)
        if options.start_from:
            head.start_from(options.start_from)
        return head

    from harness.models.head_asset import export_head_asset
    from harness.models.sources import resolve_model
    from harness.training.held_out import split_answers

    target = resolve_model(options.target)
    _check_draft_vocab(options.draft_vocab, target.facts)
    answers = split_answers(options.corpus, count=options.held_out)
    _attach_features(options, target, [*answers[0], *answers[1]])
    distiller = _distilled(options, target, answers, settings, student)
    distiller.student.save(target.path, options.out / _CHECKPOINT)
    return _written(
        options, distiller, answers, partial(export_head_asset, kind=options.command, base=target)
    )


def _distilled(
    options: argparse.Namespace,
    target: ResolvedModel,
    answers: Answers,
    settings: TrainingSettings,
    make_student: Callable[[NDArray[np.int32]], Trained],
) -> Distiller[Trained]:
    """Train a drafter to the end.

    Args:
        options: of the command line.
        target: whose answers it learns.
        answers: to train on, and held out.
        settings: of the training.
        make_student: builds what is trained, given the ids of its head.
    """
    from harness.models.tokenizer import load_tokenizer
    from harness.training.distil import Distiller

    distiller = Distiller(
        options.out,
        make_student=make_student,
        train=answers[0],
        held_out=answers[1],
        settings=settings,
        eos_ids=load_tokenizer(target.path).eos_ids,
        vocab_size=target.facts.vocab_size,
    )
    distiller.run()
    return distiller


def _written(
    options: argparse.Namespace, distiller: Distiller[Any], answers: Answers, export: Callable[..., object]
) -> int:
    """Write down how a saved drafter came about, and export it as an asset if asked to."""
    checkpoint = options.out / _CHECKPOINT
    facts = _write_facts(options.out, distiller, *answers)
    print(f"checkpoint: {checkpoint}")
    if options.asset:
        export(checkpoint, options.asset, card=facts)
        print(f"asset: {options.asset}")
    return 0


def _attach_features(options: argparse.Namespace, target: ResolvedModel, answers: list[Answer]) -> None:
    import torch

    from harness.engine.weights import load_transformer
    from harness.training.features import attach_features

    torch.set_num_threads(options.threads)
    attach_features(
        answers,
        load_transformer(target.path),
        options.features or options.out,
        target_id=target.weights_sha256,
        max_prompt_tokens=options.max_prompt_tokens,
        tokens_per_batch=options.tokens_per_batch,
    )


def _write_facts(
    out: Path, distiller: Distiller[Any], train: list[Answer], held_out: list[Answer]
) -> dict[str, Any]:
    progress = distiller.progress
    facts = {
        "settings": asdict(distiller.settings),
        "training": {
            "steps": progress.step,
            "seconds": round(progress.seconds),
            "positions": progress.positions,
        },
        "corpus": {"answers": len(train), "answer_tokens": sum(len(a.answer_tokens) for a in train)},
        "held_out": {"answers": len(held_out), **progress.history[-1]},
    }
    (out / "facts.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return facts


def _common_settings(options: argparse.Namespace) -> dict[str, Any]:
    from harness.models.fingerprint import weights_identity

    return {
        "draft_vocab_size": options.draft_vocab,
        "epochs": options.epochs,
        "learning_rate": options.learning_rate,
        "tokens_per_batch": options.tokens_per_batch,
        "max_prompt_tokens": options.max_prompt_tokens,
        "overlap_weight": options.overlap_weight,
        "seed": options.seed,
        "checkpoint_every_s": options.checkpoint_every_s,
        "num_threads": options.threads,
        "start_revision": weights_identity(options.start_from) if options.start_from else None,
    }


def _distil_settings(options: argparse.Namespace, target: CheckpointFacts) -> DistilSettings:
    from harness.training.student import DistilSettings

    settings = DistilSettings(**_common_settings(options), layer_indices=tuple(options.layers))
    if any(not 0 <= layer < target.num_layers for layer in settings.layer_indices):
        raise ConfigError("--layers", f"must be from 0 to {target.num_layers - 1}", options.layers)
    _check_draft_vocab(settings.draft_vocab_size, target)
    return settings


def _check_draft_vocab(size: int, target: CheckpointFacts) -> None:
    if not 1 <= size <= target.vocab_size:
        raise ConfigError("--draft-vocab", f"must be from 1 to {target.vocab_size}", size)


def _at_least_one(options: argparse.Namespace, *names: str) -> None:
    for name in names:
        if getattr(options, name) < 1:
            raise ConfigError(f"--{name}", "must be at least 1", getattr(options, name))
