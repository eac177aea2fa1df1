"""`python -m harness check [overrides]`: do target and drafter fit each other, and the memory?"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

import psutil

from harness.cli.compose import compose_cells
from harness.config.store import register_schemas
from harness.models.memory import MemoryEstimate, gib
from harness.models.pair_check import PairFacts
from harness.models.sources import inspect_model
from harness.runner.plan import CellPlan, plan_cell

_EPILOG = "exit codes: 0 everything fits, 1 memory is short, 2 bad input or a pair that doesn't match"


def main(arguments: list[str]) -> int:
    """Check every cell that a command line would measure; loads no weights and measures nothing."""
    parser = argparse.ArgumentParser(
        prog="python -m harness check", description=__doc__, epilog=_EPILOG, allow_abbrev=False
    )
    parser.add_argument("overrides", nargs="*", help="as for measuring: pair=..., +sweep=..., batch_size=8")
    parser.add_argument("--config-dir", help="a folder of further configuration")
    parser.add_argument("-m", "--multirun", action="store_true", help="check each of several values")
    options = parser.parse_intermixed_args(arguments)
    register_schemas()
    cells = compose_cells(options.overrides, config_dir=options.config_dir, multirun=options.multirun)
    plans = [plan_cell(cell, resolve=inspect_model) for cell in cells]
    shown: set[str] = set()
    for plan in plans:
        size = (plan.config.batch_size, plan.decoding.context_tokens, len(plan.variants))
        key = repr((plan.engine, sorted(plan.drafters), size))
        if key not in shown:
            print("\n".join(_lines(plan)))
            shown.add(key)
    short = [plan.memory for plan in plans if plan.memory is not None and not plan.memory.fits]
    return 1 if short else 0


def _lines(plan: CellPlan) -> Iterable[str]:
    yield f"pair {plan.config.pair.name}"
    yield f"  target {plan.engine.target.ref}"
    for ref, facts in plan.pairs.items():
        yield f"  drafter {ref}"
        yield from (f"    {line}" for line in _pair_lines(facts))
    if not plan.drafters:
        yield "  no draft model: nothing to compare with the target"
    if plan.memory is None:
        yield f"  memory: the {plan.config.backend.name} backend loads no model"
        return
    yield (
        f"  memory in GiB, estimated: {plan.engine.dtype}, batch {plan.config.batch_size}, "
        f"{plan.decoding.context_tokens} tokens of context, {len(plan.variants)} variants, quantisation "
        f"{plan.engine.target_quantization} (target) and {plan.engine.drafter_quantization} (drafter)"
    )
    yield from (f"    {line}" for line in _memory_lines(plan.memory))


def _pair_lines(facts: PairFacts) -> Iterable[str]:
    yield f"{facts.vocab_size} tokens, equal one by one"
    yield f"embedding rows: target {facts.target_padded_vocab}, drafter {facts.drafter_padded_vocab}"
    yield f"end tokens {sorted(facts.eos_ids)}, pad token {facts.pad_id}"
    yield f"context: {facts.max_context_tokens or 'not stated'} tokens"
    yield from (f"note: {note}" for note in facts.notes)


def _memory_lines(memory: MemoryEstimate) -> Iterable[str]:
    names = ("target", *("drafter" for _ in memory.drafters))
    yield f"{'':8}  weights  keys, values  activations"
    for name, model in zip(names, memory.models, strict=True):
        yield (
            f"{name:8}  {gib(model.weights_bytes):>7}  {gib(model.kv_bytes):>12}  "
            f"{gib(model.activation_bytes):>11}"
        )
    process = psutil.Process().memory_info().rss
    yield (
        f"{gib(memory.needed_bytes)} needed, {gib(memory.free_bytes)} free on {memory.device}; this process "
        f"itself takes {gib(process)} already, which isn't among the free"
    )
    if memory.fits:
        yield "fits"
        return
    yield "doesn't fit with a tenth to spare; remedies, in order:"
    yield from (f"{number}. {remedy}" for number, remedy in enumerate(memory.remedies, 1))
