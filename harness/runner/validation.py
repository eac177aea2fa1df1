"""Does the capacity model predict an engine under load? Prompts and rates that didn't calibrate it say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from omegaconf import DictConfig, OmegaConf

from harness.backends.base import SequenceRequest, Session
from harness.capacity.calibration import ReplicaModel, calibrate
from harness.capacity.outcome import Limits, Outcome, over_seeds
from harness.capacity.replica import Bounds, Replica
from harness.capacity.requests import Requests
from harness.capacity.simulation import simulate
from harness.capacity.validation_table import ValidationRow, ValidationTable
from harness.config.schema import HarnessConfig
from harness.config.store import to_config
from harness.errors import ConfigError, ResultFormatError
from harness.records import Variant
from harness.results import Results
from harness.runner.open_loop import poisson_arrivals, serve
from harness.runner.plan import CellPlan, EncodedPrompt, plan_cell
from harness.runner.trial import warmup_blocks

FIGURES = ("ttft_p50_s", "ttft_p95_s", "tpot_p50_s", "tpot_p95_s", "total_p50_s", "total_p95_s")


@dataclass(frozen=True, slots=True)
class ValidationSettings:
    """How an engine is driven.

    Attributes:
        loads: shares of what the engine serves when some requests always wait.
        num_requests: per load.
        num_seeds: simulated per load.
        hold_out_prompts: drive with prompts that calibrate nothing, as well as at loads that don't. A few
            prompts differ much from a few others, so errors then hold what the choice of prompts does.
        seed: of arrivals and prompts.
        variants: to drive; empty takes the baseline and the first method at its best measured k.
        overrides: `key=value` on the cell's stored configuration, such as a path it doesn't keep.
    """

    loads: tuple[float, ...] = (0.3, 0.55, 0.8)
    num_requests: int = 60
    num_seeds: int = 20
    hold_out_prompts: bool = False
    seed: int = 0
    variants: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()


def validate_model(
    results: Results, settings: ValidationSettings, say: Callable[[str], None] = lambda _: None
) -> ValidationTable:
    """Drive the engine at loads that calibrated nothing, and simulate the same arrivals.

    The simulation is given what arrived: times, prompts' lengths and outputs' lengths. What it must find out
    is how long everything takes.

    Args:
        results: of a cell with batch size 1.
        settings: how to drive.
        say: hears what is being measured.

    Raises:
        ConfigError: the settings don't fit the results.
        ResultFormatError: no cell can be driven.
    """
    cell_id = _cell(results)
    plan = plan_cell(_config(results.records[cell_id].config, settings.overrides))
    calibrating, driven = _halves(plan.prompts) if settings.hold_out_prompts else (plan.prompts, plan.prompts)
    model = _model(results, cell_id, [prompt.prompt_id for prompt in calibrating])
    session = plan.backend.open(plan.engine)
    try:
        rows: list[ValidationRow] = []
        for variant in _variants(plan, model, settings.variants):
            _get_ready(session, plan, variant)
            rows += _drive(session, plan, variant, model, driven, settings, say)
    finally:
        session.close()
    name = f"{plan.config.backend.name} ({plan.backend.version()})"
    ids = tuple(prompt.prompt_id for prompt in driven)
    return ValidationTable(name, settings.num_requests, ids, settings.hold_out_prompts, tuple(rows))


def _cell(results: Results) -> str:
    """The cell at batch 1 with the lowest temperature."""
    cells = results.cells[results.cells["batch_size"] == 1]
    if cells.empty:
        raise ResultFormatError(
            f"{results.path}: requests are driven one at a time: measure a cell of batch_size=1."
        )
    return str(cells.sort_values("temperature")["cell_id"].iloc[0])


def _config(stored: dict[str, Any], overrides: Sequence[str]) -> HarnessConfig:
    merged = OmegaConf.merge(OmegaConf.create(stored), OmegaConf.from_dotlist(list(overrides)))
    return to_config(cast("DictConfig", merged))


def _halves(prompts: Sequence[EncodedPrompt]) -> tuple[Sequence[EncodedPrompt], Sequence[EncodedPrompt]]:
    """Every other prompt of each task."""
    sides: tuple[list[EncodedPrompt], list[EncodedPrompt]] = ([], [])
    seen: dict[str, int] = {}
    for prompt in prompts:
        sides[seen.get(prompt.task, 0) % 2].append(prompt)
        seen[prompt.task] = seen.get(prompt.task, 0) + 1
    if not sides[1]:
        raise ConfigError("workload", "needs two prompts of a task, to hold one out", len(prompts))
    return sides


def _model(results: Results, cell_id: str, prompts: Sequence[str]) -> ReplicaModel:
    for model in calibrate(results, prompts=prompts):
        if cell_id in model.cell_ids:
            return model
    raise ResultFormatError(f"{results.path}: cell {cell_id} can't be calibrated. Measure it again.")


def _variants(plan: CellPlan, model: ReplicaModel, wanted: Sequence[str]) -> list[Variant]:
    by_id = {variant.variant_id: variant for variant in plan.variants}
    for name in wanted:
        if name not in by_id:
            raise ConfigError(
                "--variant", "must be a variant of the cell", name, f"Known: {', '.join(by_id)}."
            )
    if wanted:
        return [by_id[name] for name in wanted]
    chosen = [variant for variant in plan.variants if variant.is_baseline]
    for method in list(model.methods)[:1]:
        drafting = [variant for variant in plan.variants if variant.method == method]
        chosen.append(max(drafting, key=lambda variant: _tok_per_s(model, variant)))
    return chosen


def _tok_per_s(model: ReplicaModel, variant: Variant) -> float:
    found = model.methods[variant.method]
    table = found.acceptances.get(variant.k)
    if table is None:
        return 0.0
    drafted = float(table.drafted.sum(axis=1).mean())
    seconds = found.costs.step_s(num_sequences=1, proposed=drafted, depth=drafted, context=100)
    return table.mean_emitted() / float(seconds)


def _get_ready(session: Session, plan: CellPlan, variant: Variant) -> None:
    session.prepare(variant, plan.drafters.get(variant.drafter or ""), plan.decoding)
    for block in warmup_blocks(plan, [variant]):
        prompt = block.prompts[0]
        request = SequenceRequest(prompt.tokens, prompt.max_new_tokens, 0, prompt.task)
        session.decode(variant, [request], plan.decoding)


def _drive(
    session: Session,
    plan: CellPlan,
    variant: Variant,
    model: ReplicaModel,
    prompts: Sequence[EncodedPrompt],
    settings: ValidationSettings,
    say: Callable[[str], None],
) -> list[ValidationRow]:
    replica = model.replica(Bounds(), None if variant.is_baseline else variant.method, variant.k)
    most = _saturated(replica, model, settings)
    rows = []
    for number, share in enumerate(settings.loads):
        rate, count = share * most, settings.num_requests
        say(f"{variant.variant_id}: {rate:.3g} requests/s, {count} requests, {count / rate / 60:.1f} min")
        arrivals = poisson_arrivals(prompts, rate, count, settings.seed + number)
        rows += _rows(variant.variant_id, rate, serve(session, plan, variant, arrivals), replica, settings)
    return rows


def _saturated(replica: Replica, model: ReplicaModel, settings: ValidationSettings) -> float:
    """Requests per second when some always wait."""
    rows = model.observations
    output = rows["num_output_tokens"].to_numpy(np.int64)
    requests = Requests(
        np.zeros(len(rows)),
        rows["num_prompt_tokens"].to_numpy(np.int64),
        output,
        np.maximum(rows["max_output_tokens"].to_numpy(np.int64), output),
        rows["task"].to_numpy(str),
    )
    return len(rows) / simulate(replica, requests, seed=settings.seed).end_s


def _rows(
    variant_id: str, rate: float, measured: Outcome, replica: Replica, settings: ValidationSettings
) -> list[ValidationRow]:
    runs = [simulate(replica, measured.requests, seed=settings.seed + n) for n in range(settings.num_seeds)]
    predicted = over_seeds([run.figures(Limits()) for run in runs])
    found = measured.figures(Limits())
    return [
        ValidationRow(variant_id, rate, name, one.mean, one.low, one.high, found[name])
        for name in FIGURES
        for one in (predicted[name],)
    ]
