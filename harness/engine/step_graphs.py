"""Forwards of a few tokens as CUDA graphs: captured once per shape, replayed in one launch."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from harness.engine.cache import KVCache, Placement, static_placement

LOG = logging.getLogger(__name__)
SWITCH = "HARNESS_CUDA_GRAPHS"
"""Environment variable: `0` launches every kernel by itself."""
MOST_NEW = 64
"""New tokens per sequence of a forward worth a graph; prompts are longer, and no two alike."""
_CALLS_BEFORE = 2
"""Forwards of a shape before it is captured: warm-up has them, a batch that is just ending hasn't."""

Run = Callable[[Tensor, KVCache, Placement], Tensor]


@dataclass(frozen=True, slots=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    inputs: Tensor
    lengths: Tensor
    out: Tensor


class StepGraphs:
    """Replays a model's decode steps on a GPU: launching its many small kernels takes longer than they run.

    A graph reads and writes fixed memory, so it attends to the whole cache and masks what isn't there:
    sequences of any lengths take the same graph. What can't be captured runs as ever, with a warning.

    Args:
        run: a forward from inputs [batch, new, hidden_size], cache and placement to hidden states.
    """

    def __init__(self, run: Run) -> None:
        """See the class."""
        self._run = run
        self._captured: WeakKeyDictionary[KVCache, dict[tuple[int, ...], _Captured]] = WeakKeyDictionary()
        self._calls: WeakKeyDictionary[KVCache, Counter[tuple[int, ...]]] = WeakKeyDictionary()
        self._pool: Any = None
        self._failed = False

    @property
    def is_running(self) -> bool:
        """False once a capture has failed."""
        return not self._failed

    @torch.inference_mode()
    def run(self, x: Tensor, cache: KVCache) -> Tensor | None:
        """Replay a forward whose tokens follow the committed ones.

        Args:
            x: [batch, new, hidden_size] inputs of the first layer.
            cache: of the same batch.

        Returns:
            Hidden states like `x`; None where no graph fits and the layers have to be run one by one.
        """
        if self._failed or x.shape[1] > MOST_NEW:
            return None
        shape = tuple(x.shape)
        captured = self._captured.setdefault(cache, {}).get(shape)
        if captured is None:
            calls = self._calls.setdefault(cache, Counter())
            calls[shape] += 1
            if calls[shape] <= _CALLS_BEFORE:
                return None
            captured = self._try_to_capture(x, cache)
            if captured is None:
                return None
            self._captured[cache][shape] = captured
        captured.inputs.copy_(x)
        captured.lengths.copy_(torch.tensor(cache.lengths))
        captured.graph.replay()
        # the next replay overwrites it, and hidden states outlive a step
        return captured.out.clone()

    def _try_to_capture(self, x: Tensor, cache: KVCache) -> _Captured | None:
        try:
            return self._capture(x, cache)
        except RuntimeError as error:
            self._failed = True
            LOG.warning("CUDA graphs are left out, as capturing one failed: %s", error)
            return None

    def _capture(self, x: Tensor, cache: KVCache) -> _Captured:
        inputs, lengths = x.clone(), torch.tensor(cache.lengths, device=x.device)
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        # libraries set themselves up in their first calls, which a capture doesn't allow
        side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._step(inputs, lengths, cache)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            out = self._step(inputs, lengths, cache)
        return _Captured(graph, inputs, lengths, out)

    def _step(self, inputs: Tensor, lengths: Tensor, cache: KVCache) -> Tensor:
        return self._run(inputs, cache, static_placement(cache, lengths, inputs.shape[1]))


def step_graphs(run: Run, device: torch.device) -> StepGraphs | None:
    """Graphs of a model's forward; None where there is no GPU, or `HARNESS_CUDA_GRAPHS=0`."""
    if device.type != "cuda" or os.environ.get(SWITCH, "1") == "0":
        return None
    return StepGraphs(run)
