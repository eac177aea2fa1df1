"""Requests: when they arrive, how long their prompts and outputs are, and of which task they are."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from harness.capacity.fitting import FloatArray
from harness.errors import ConfigError, WorkloadError

IntArray = npt.NDArray[np.int64]

SECONDS_PER_DAY = 86_400.0
_TRACE_COLUMNS = ("arrival_s", "prompt_tokens", "output_tokens")


@dataclass(frozen=True, slots=True)
class Shapes:
    """Kinds of requests and how often each comes.

    Attributes:
        prompt_tokens: of each kind.
        output_tokens: of each kind; what is really written, at least 1.
        limit_tokens: the output limit a scheduler reserves for, at least `output_tokens`.
        tasks: of each kind.
        weights: how often each kind comes; they sum to 1.
    """

    prompt_tokens: IntArray
    output_tokens: IntArray
    limit_tokens: IntArray
    tasks: tuple[str, ...]
    weights: FloatArray

    def longer_outputs(self, factor: float) -> Shapes:
        """The same with outputs and their limits longer by a factor."""
        longer = np.maximum(np.rint(self.output_tokens * factor), 1).astype(np.int64)
        limits = np.rint(self.limit_tokens * factor).astype(np.int64)
        return replace(self, output_tokens=longer, limit_tokens=np.maximum(limits, longer))

    @property
    def mean_output_tokens(self) -> float:
        """Of a request."""
        return float(self.weights @ self.output_tokens)

    @property
    def mean_prompt_tokens(self) -> float:
        """Of a request."""
        return float(self.weights @ self.prompt_tokens)


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests in the order they arrive.

    Attributes:
        arrival_s: [num_requests] increasing.
        prompt_tokens: [num_requests].
        output_tokens: [num_requests].
        limit_tokens: [num_requests].
        tasks: [num_requests].
    """

    arrival_s: FloatArray
    prompt_tokens: IntArray
    output_tokens: IntArray
    limit_tokens: IntArray
    tasks: npt.NDArray[np.str_]

    def __len__(self) -> int:
        """How many there are."""
        return len(self.arrival_s)


def measured_shapes(observations: pd.DataFrame, tasks: Mapping[str, float]) -> Shapes:
    """Lengths and tasks as a run measured them, in the run's own mix or another.

    Args:
        observations: counting rows of the baseline.
        tasks: share of each task; empty keeps the mix of the prompts.

    Raises:
        ConfigError: a task was never measured.
    """
    counts = observations.groupby("task")["task"].transform("size").to_numpy(dtype=np.float64)
    known = sorted(set(observations["task"]))
    for task in tasks:
        if task not in known:
            raise ConfigError(
                "traffic.tasks", "must be tasks of the results", task, f"Known: {', '.join(known)}."
            )
    wanted = observations["task"].map(dict(tasks)).fillna(0.0).to_numpy(dtype=np.float64)
    weights = wanted / counts if tasks else np.ones(len(observations))
    output = np.maximum(observations["num_output_tokens"].to_numpy(dtype=np.int64), 1)
    limit = observations["max_output_tokens"].to_numpy(dtype=np.int64)
    is_cut = (observations["finish_reason"] == "length").to_numpy()
    return Shapes(
        prompt_tokens=observations["num_prompt_tokens"].to_numpy(dtype=np.int64),
        output_tokens=output,
        limit_tokens=np.where(is_cut, output, np.maximum(limit, output)),
        tasks=tuple(observations["task"].astype(str)),
        weights=weights / weights.sum(),
    )


def poisson_requests(shapes: Shapes, rate_per_s: float, num_requests: int, seed: int) -> Requests:
    """Independent arrivals at a steady rate."""
    rng = np.random.default_rng([seed, 1])
    arrivals = np.cumsum(rng.exponential(1 / rate_per_s, num_requests))
    return _of_shapes(shapes, arrivals, seed)


def daily_requests(
    shapes: Shapes,
    peak_per_s: float,
    shares: Sequence[float],
    *,
    start_s: float,
    duration_s: float,
    seed: int,
) -> Requests:
    """Independent arrivals whose rate follows a day, by thinning.

    Args:
        shapes: of the requests.
        peak_per_s: rate where the share is 1.
        shares: of the peak, equally long parts of a day.
        start_s: time of day of the first second.
        duration_s: seconds simulated.
        seed: of arrivals and shapes.

    Source: Lewis and Shedler, "Simulation of nonhomogeneous Poisson processes by thinning" (1979).
    """
    rng = np.random.default_rng([seed, 1])
    count = rng.poisson(peak_per_s * duration_s)
    arrivals = np.sort(rng.uniform(0.0, duration_s, count))
    part = ((start_s + arrivals) % SECONDS_PER_DAY / SECONDS_PER_DAY * len(shares)).astype(int)
    kept = rng.random(count) < np.asarray(shares, dtype=np.float64)[part]
    return _of_shapes(shapes, arrivals[kept], seed)


def _of_shapes(shapes: Shapes, arrivals: FloatArray, seed: int) -> Requests:
    rng = np.random.default_rng([seed, 2])
    drawn = rng.choice(len(shapes.weights), size=len(arrivals), p=shapes.weights)
    return Requests(
        arrivals,
        shapes.prompt_tokens[drawn],
        shapes.output_tokens[drawn],
        shapes.limit_tokens[drawn],
        np.asarray(shapes.tasks)[drawn],
    )


def read_trace(path: Path) -> Requests:
    """Requests of a CSV file with a header: `arrival_s, prompt_tokens, output_tokens`, and `task` if known.

    Raises:
        WorkloadError: it can't be read, or a line is malformed; names file, line and column.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise WorkloadError(f"{path}: can't be read as CSV ({error}). Check the path.") from error
    if not rows:
        raise WorkloadError(
            f"{path}: no requests. Write a header {','.join(_TRACE_COLUMNS)},task and a line each."
        )
    at = np.array([_cell(path, n, row, "arrival_s", float, 0) for n, row in enumerate(rows, start=2)])
    prompt = np.array([_cell(path, n, row, "prompt_tokens", int, 1) for n, row in enumerate(rows, start=2)])
    output = np.array([_cell(path, n, row, "output_tokens", int, 1) for n, row in enumerate(rows, start=2)])
    tasks = np.array([row.get("task") or "any" for row in rows])
    order = np.argsort(at, kind="stable")
    return Requests(
        at[order] - at.min(),
        prompt[order].astype(np.int64),
        output[order].astype(np.int64),
        output[order].astype(np.int64),
        tasks[order],
    )


def trace_shapes(trace: Requests) -> Shapes:
    """The kinds of requests of a trace, each as often as it came."""
    weights = np.full(len(trace), 1 / len(trace))
    tasks = tuple(str(task) for task in trace.tasks)
    return Shapes(trace.prompt_tokens, trace.output_tokens, trace.limit_tokens, tasks, weights)


def _cell(
    path: Path,
    line: int,
    row: Mapping[str, str | None],
    column: str,
    kind: Callable[[str], float],
    least: float,
) -> float:
    text = row.get(column)
    try:
        value = kind(text or "")
    except ValueError:
        value = np.nan
    if not (np.isfinite(value) and value >= least):
        raise WorkloadError(
            f"{path}, line {line}, column {column!r}: needs a number of at least {least:g}, got {text!r}. "
            f"Columns: {', '.join(_TRACE_COLUMNS)}, and task if known."
        )
    return float(value)
