"""From a results folder to calibrated replicas: one per engine, hardware and sampling setting measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from harness.capacity.acceptance import Acceptance, measured_acceptance
from harness.capacity.cost_fit import FitError, fit_costs
from harness.capacity.memory import Memory, measured_memory
from harness.capacity.policy import NEVER, FixedK, Policy
from harness.capacity.replica import Bounds, Replica
from harness.capacity.step_costs import StepCosts
from harness.capacity.step_table import measured_steps
from harness.errors import ResultFormatError
from harness.records import BASELINE_METHOD
from harness.results import Results

_ENGINE_FACTS = (
    "backend",
    "backend_version",
    "pair",
    "target",
    "target_revision",
    "dtype",
    "kv_cache_dtype",
    "target_quantization",
    "drafter_quantization",
    "device",
    "device_name",
    "num_threads",
    "temperature",
    "top_k",
    "top_p",
)
MEASURE_COMMAND = "python -m harness -m batch_size=1,2,4,8 'method.k=[1,2,4,6]'"


@dataclass(frozen=True, slots=True)
class MeasuredRange:
    """What was measured; a plan beyond it is extrapolated, and says so.

    Attributes:
        batches: batch sizes, increasing.
        max_context_tokens: cached tokens of a sequence.
        max_prompt_tokens: of a prompt.
        max_output_tokens: of an output.
    """

    batches: tuple[int, ...]
    max_context_tokens: int
    max_prompt_tokens: int
    max_output_tokens: int

    @property
    def max_batch(self) -> int:
        """The largest batch that was measured."""
        return self.batches[-1]


@dataclass(frozen=True)
class MethodModel:
    """A drafting method as measured.

    Attributes:
        method: its name.
        drafter: model reference, None where it has none.
        costs: of its steps.
        acceptances: by k.
        applied: settings as read back from the engine, by k.
        lossless: whether its output is the target's, by its own account.
    """

    method: str
    drafter: str | None
    costs: StepCosts
    acceptances: Mapping[int, Acceptance]
    applied: Mapping[int, Mapping[str, Any]]
    lossless: bool = True


@dataclass(frozen=True)
class ReplicaModel:
    """One configuration: an engine on its hardware at one sampling setting, with every method measured on it.

    Attributes:
        facts: what identifies it.
        cell_ids: the cells it was calibrated from.
        baseline: costs of steps without drafts.
        methods: by name.
        range: what was measured.
        memory: per sequence, where it could be told.
        observations: counting rows of the baseline, for lengths and tasks.
        errors: how far the fitted seconds are from the measured ones.
        notes: what could not be calibrated, and why.
    """

    facts: Mapping[str, Any]
    cell_ids: tuple[str, ...]
    baseline: StepCosts
    methods: Mapping[str, MethodModel]
    range: MeasuredRange
    memory: Memory
    observations: pd.DataFrame
    errors: Mapping[str, FitError]
    notes: tuple[str, ...] = field(default=())

    def replica(
        self, bounds: Bounds, method: str | None = None, policy: Policy | int | None = None
    ) -> Replica:
        """A replica that drafts by a policy.

        Args:
            bounds: of its scheduler.
            method: the drafting method; None decodes without a drafter.
            policy: a k, or a policy; 0 is speculation switched off with the drafter loaded.

        Raises:
            ResultFormatError: the method wasn't measured, or not at that k.
        """
        if method is None:
            return Replica(self.baseline, bounds, NEVER)
        if method not in self.methods:
            raise ResultFormatError(
                f"{method}: not measured here. Measured: {', '.join(self.methods) or 'none'}."
            )
        model = self.methods[method]
        chosen: Policy = FixedK(policy or 0) if isinstance(policy, int | None) else policy
        if isinstance(chosen, FixedK) and chosen.max_k and chosen.max_k not in model.acceptances:
            ks = ", ".join(map(str, sorted(model.acceptances)))
            raise ResultFormatError(
                f"{method}: k={chosen.max_k} wasn't measured. Measured: {ks}. {MEASURE_COMMAND}"
            )
        return Replica(self.baseline, bounds, chosen, model.costs, model.acceptances)


def calibrate(results: Results, *, prompts: Sequence[str] | None = None) -> list[ReplicaModel]:
    """Calibrate every configuration of a results folder that has a baseline with step times.

    Args:
        results: as loaded.
        prompts: ids to calibrate from, so that the others can be held out; None takes all.

    Raises:
        ResultFormatError: no configuration can be calibrated; says which measurement is missing.
    """
    observations = results.measured
    if prompts is not None:
        observations = observations[observations["prompt_id"].isin(list(prompts))]
    keys = [name for name in _ENGINE_FACTS if name in observations.columns]
    models, problems = [], []
    for values, rows in observations.groupby(keys, dropna=False, sort=False):
        try:
            models.append(_calibrated(dict(zip(keys, values, strict=True)), rows, results))
        except ResultFormatError as error:
            problems.append(str(error))
    if not models:
        why = "; ".join(dict.fromkeys(problems)) or "nothing was measured"
        raise ResultFormatError(
            f"{results.path}: no replica can be calibrated: {why}. Measure: {MEASURE_COMMAND}"
        )
    return models


def _calibrated(facts: dict[str, Any], rows: pd.DataFrame, results: Results) -> ReplicaModel:
    baseline_rows = rows[rows["method"] == BASELINE_METHOD]
    if baseline_rows.empty:
        raise ResultFormatError("no baseline was measured")
    steps = measured_steps(rows)
    table = steps.batches
    if table[table["method"] == BASELINE_METHOD].empty:
        raise ResultFormatError(
            "; ".join(steps.skipped) or "the baseline's steps weren't timed, so a step's seconds are unknown"
        )
    baseline, error = fit_costs(steps, BASELINE_METHOD)
    errors, methods, notes = {BASELINE_METHOD: error}, {}, list(steps.skipped)
    for method in dict.fromkeys(rows.loc[rows["method"] != BASELINE_METHOD, "method"]):
        try:
            methods[method], errors[method] = _method(method, rows, steps, results)
        except ResultFormatError as problem:
            notes.append(f"{method}: {problem}")
    batches = tuple(int(b) for b in np.sort(table["num_sequences"].unique()))
    sizes = tuple(sorted(int(b) for b in set(table["batch_size"]) & set(batches)))
    return ReplicaModel(
        facts={name: None if pd.isna(value) else value for name, value in facts.items()},
        cell_ids=tuple(dict.fromkeys(rows["cell_id"])),
        baseline=baseline,
        methods=methods,
        range=MeasuredRange(
            batches=sizes or batches,
            max_context_tokens=int((rows["num_prompt_tokens"] + rows["num_output_tokens"]).max()),
            max_prompt_tokens=int(rows["num_prompt_tokens"].max()),
            max_output_tokens=int(rows["num_output_tokens"].max()),
        ),
        memory=measured_memory(rows),
        observations=baseline_rows.reset_index(drop=True),
        errors=errors,
        notes=tuple(notes),
    )


def _method(method: str, rows: pd.DataFrame, steps: Any, results: Results) -> tuple[MethodModel, FitError]:
    costs, error = fit_costs(steps, method)
    sequences = steps.sequences[steps.sequences["method"] == method]
    ks = sorted(int(k) for k in sequences["k"].unique() if k > 0)
    acceptances = {k: measured_acceptance(sequences[sequences["k"] == k], k) for k in ks}
    of_method = rows[rows["method"] == method]
    drafters = [drafter for drafter in of_method["drafter"].unique() if isinstance(drafter, str)]
    model = MethodModel(
        method,
        next(iter(drafters), None),
        costs,
        acceptances,
        _applied(of_method, results),
        lossless=not of_method["lossless"].eq(False).any(),
    )
    return model, error


def _applied(rows: pd.DataFrame, results: Results) -> dict[int, Mapping[str, Any]]:
    """Settings of each k as the engine applied them, from the first cell that has them."""
    found: dict[int, Mapping[str, Any]] = {}
    for cell_id, variant_id, k in (
        rows[["cell_id", "variant_id", "k"]].drop_duplicates().itertuples(index=False)
    ):
        for variant in results.records[cell_id].variants:
            if variant["variant_id"] == variant_id:
                found.setdefault(int(k), {**(variant.get("options") or {}), **(variant.get("applied") or {})})
    return found
