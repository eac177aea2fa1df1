"""A randomised block design: every variant decodes each batch of prompts, in random order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from harness.records import Variant
from harness.runner.plan import EncodedPrompt


@dataclass(frozen=True, slots=True)
class Block:
    """One batch of prompts in one repeat, with the order in which the variants decode it.

    Attributes:
        number: 0-based, counted over all repeats.
        repeat: 0-based pass over the prompts.
        prompts: the batch.
        order: every variant once.
        turn: place of the variant's engine, where variants run one engine after another; None where they
            take turns inside the block.
    """

    number: int
    repeat: int
    prompts: tuple[EncodedPrompt, ...]
    order: tuple[Variant, ...]
    turn: int | None = None


def blocks(
    prompts: Sequence[EncodedPrompt], variants: Sequence[Variant], *, batch_size: int, repeats: int, seed: int
) -> Iterator[Block]:
    """Yield the blocks of every repeat; the same seed gives the same order, also after a restart.

    Args:
        prompts: to measure.
        variants: to compare.
        batch_size: prompts per block; the last block of a repeat may hold fewer.
        repeats: passes over the prompts.
        seed: of the random orders.
    """
    number = 0
    for repeat in range(repeats):
        for start in range(0, len(prompts), batch_size):
            shuffled = np.random.default_rng((seed, number)).permutation(len(variants))
            yield Block(
                number=number,
                repeat=repeat,
                prompts=tuple(prompts[start : start + batch_size]),
                order=tuple(variants[index] for index in shuffled),
            )
            number += 1


def turns(variants: Sequence[Variant], *, seed: int) -> list[Variant]:
    """The order of engines where each variant needs its own: in random order, between two of the baseline.

    Args:
        variants: the baseline first.
        seed: of the random order.
    """
    baseline, *others = variants
    shuffled = np.random.default_rng((seed, len(others))).permutation(len(others))
    return [baseline, *(others[index] for index in shuffled), *([baseline] if others else [])]


def sequence_seed(seed: int, variant: Variant, prompt: EncodedPrompt, repeat: int) -> int:
    """A seed of its own for every sequence, stable over runs and machines.

    Variants get different ones: with a shared seed, their random numbers would be shifted copies.

    Returns:
        From 0 up to below 2**63.
    """
    text = f"{seed}|{variant.variant_id}|{prompt.prompt_id}|{repeat}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
