"""The requests a plan's traffic is made of: as measured, as given, or as a trace has them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from harness.capacity.calibration import ReplicaModel
from harness.capacity.requests import Shapes, measured_shapes, read_trace, trace_shapes
from harness.capacity.settings import LengthSettings, TrafficSettings
from harness.errors import ConfigError

_NUM_DRAWN = 4000


def shapes_of(traffic: TrafficSettings, model: ReplicaModel, *, seed: int) -> Shapes:
    """Kinds of requests for one configuration.

    Raises:
        ConfigError: a task was never measured, or two sources are given.
        WorkloadError: the trace can't be read.
    """
    if traffic.trace and traffic.lengths:
        raise ConfigError("traffic", "takes a trace or lengths, not both", traffic.trace)
    if traffic.trace:
        return trace_shapes(read_trace(Path(traffic.trace)))
    if traffic.lengths:
        return _drawn(traffic.lengths, seed)
    return measured_shapes(model.observations, traffic.tasks)


def beyond_measured(shapes: Shapes, model: ReplicaModel, max_batch: int) -> list[str]:
    """In words, what of a plan lies outside what was measured."""
    said, known = [], model.range
    if len(known.batches) == 1:
        size = known.batches[0]
        said.append(f"only batches of {size} were measured: how steps slow down in larger ones is unknown")
    if max_batch > known.max_batch:
        said.append(
            f"batches of {known.max_batch + 1} to {max_batch} go beyond the {known.max_batch} measured"
        )
    for what, values, most in (
        ("prompts", shapes.prompt_tokens, known.max_prompt_tokens),
        ("contexts", shapes.prompt_tokens + shapes.output_tokens, known.max_context_tokens),
    ):
        share = float(shapes.weights[values > most].sum())
        if share > 0:
            said.append(f"{100 * share:.0f}% of the {what} are longer than the {most} tokens measured")
    tasks = {str(task) for task in model.observations["task"]}
    unknown = sorted({task for task in shapes.tasks if task not in tasks and task != "any"})
    if unknown:
        said.append(
            f"acceptance of {', '.join(unknown)} is that of all measured tasks, as they weren't measured"
        )
    return said


def _drawn(kinds: Sequence[LengthSettings], seed: int) -> Shapes:
    """Log-normal lengths around each kind's means."""
    rng = np.random.default_rng([seed, 5])
    shares = np.array([kind.share for kind in kinds])
    counts = np.maximum((_NUM_DRAWN * shares / shares.sum()).round().astype(int), 1)
    prompts = [
        _lengths(rng, kind.prompt_tokens, kind.variation, n) for kind, n in zip(kinds, counts, strict=True)
    ]
    outputs = [
        _lengths(rng, kind.output_tokens, kind.variation, n) for kind, n in zip(kinds, counts, strict=True)
    ]
    weights = np.concatenate([np.full(n, s / n) for s, n in zip(shares, counts, strict=True)])
    tasks = [kind.task or "any" for kind, n in zip(kinds, counts, strict=True) for _ in range(n)]
    output = np.concatenate(outputs)
    limit = np.concatenate([np.full(len(out), out.max()) for out in outputs])
    return Shapes(np.concatenate(prompts), output, limit, tuple(tasks), weights / weights.sum())


def _lengths(
    rng: np.random.Generator, mean: float, variation: float, count: int
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    sigma = np.sqrt(np.log1p(variation**2))
    drawn = rng.lognormal(np.log(mean) - sigma**2 / 2, sigma, count)
    return np.maximum(np.rint(drawn), 1).astype(np.int64)
