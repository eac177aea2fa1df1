"""`python -m harness train`: make training data from a target, and distil a drafter from it."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import ConfigError
from harness.models.catalogue import DEFAULT_TARGET

if TYPE_CHECKING:
    from harness.models.checkpoint import CheckpointFacts
    from harness.training.distil import DistilSettings


def main(arguments: list[str]) -> int:
    """Run `corpus` or `draft`; see their `--help`."""
    parser = argparse.ArgumentParser(prog="python -m harness train", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    _add_corpus(commands.add_parser("corpus", help="let the target answer prompts, and keep what it thought"))
    _add_draft(commands.add_parser("draft", help="distil an independent draft model from a corpus"))
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


def _add_draft(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", default=DEFAULT_TARGET, help="model reference (default: %(default)s)")
    parser.add_argument(
        "--corpus", type=Path, nargs="+", required=True, help="folders made by `train corpus`"
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="folder of checkpoints; a restarted run goes on"
    )
    parser.add_argument(
        "--asset", type=Path, help="export the trained layers here, as the package ships them"
    )
    parser.add_argument("--layers", type=int, nargs="+", default=[0, 29], help="target layers to start from")
    parser.add_argument("--draft-vocab", type=int, default=8192, help="tokens of the reduced head")
    parser.add_argument("--epochs", type=float, default=5.0)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument(
        "--max-prompt-tokens", type=int, default=320, help="longer prompts lose their beginning"
    )
    parser.add_argument("--overlap-weight", type=float, default=0.5)
    parser.add_argument("--held-out", type=int, default=150, help="answers kept for evaluation")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.set_defaults(run=_draft)


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
    from harness.models.tokenizer import load_tokenizer
    from harness.training.distil import Distiller
    from harness.training.held_out import split_answers
    from harness.training.student import save_checkpoint

    target = resolve_model(options.target)
    train, held_out = split_answers(options.corpus, count=options.held_out)
    settings = _distil_settings(options, target.facts)
    distiller = Distiller(
        target.path,
        options.out,
        train=train,
        held_out=held_out,
        settings=settings,
        eos_ids=load_tokenizer(target.path).eos_ids,
        vocab_size=target.facts.vocab_size,
    )
    progress = distiller.run()
    checkpoint = options.out / "model"
    save_checkpoint(distiller.student, target.path, checkpoint, draft_vocab=distiller.draft_vocab)
    facts = {
        "settings": asdict(settings),
        "training": {
            "steps": progress.step,
            "seconds": round(progress.seconds),
            "positions": progress.positions,
        },
        "corpus": {"answers": len(train), "answer_tokens": sum(len(a.answer_tokens) for a in train)},
        "held_out": {"answers": len(held_out), **progress.history[-1]},
    }
    (options.out / "facts.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    print(f"checkpoint: {checkpoint}")
    if options.asset:
        export_drafter_asset(checkpoint, options.asset, base=target, card=facts)
        print(f"asset: {options.asset}")
    return 0


def _distil_settings(options: argparse.Namespace, target: CheckpointFacts) -> DistilSettings:
    from harness.training.distil import DistilSettings

    settings = DistilSettings(
        layer_indices=tuple(options.layers),
        draft_vocab_size=options.draft_vocab,
        epochs=options.epochs,
        learning_rate=options.learning_rate,
        max_prompt_tokens=options.max_prompt_tokens,
        overlap_weight=options.overlap_weight,
        seed=options.seed,
        num_threads=options.threads,
    )
    if any(not 0 <= layer < target.num_layers for layer in settings.layer_indices):
        raise ConfigError("--layers", f"must be from 0 to {target.num_layers - 1}", options.layers)
    if not 1 <= settings.draft_vocab_size <= target.vocab_size:
        raise ConfigError(
            "--draft-vocab", f"must be from 1 to {target.vocab_size}", settings.draft_vocab_size
        )
    return settings
