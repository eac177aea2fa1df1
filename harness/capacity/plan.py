"""The plan: for every configuration measured, what each way to draft carries, needs and costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from harness.capacity.calibration import ReplicaModel, calibrate
from harness.capacity.crossover import Band, ClosedForm, best_k_bands, closed_form, switch_off_load
from harness.capacity.fleet import Fleet, fleet_for
from harness.capacity.policy import AdaptiveK, ByBatch, FixedK, Policy, best_bands
from harness.capacity.replica import Bounds, Replica
from harness.capacity.requests import Shapes
from harness.capacity.settings import PlanSettings, ReplicaSettings
from harness.capacity.shapes import beyond_measured, shapes_of
from harness.capacity.sizing import Sizing, largest_batch, size_replica
from harness.errors import ConfigError
from harness.records import BASELINE_METHOD
from harness.results import Results

GIB = 2**30
ACCEPTANCE_POINTS = -0.10


@dataclass(frozen=True)
class Option:
    """One way to run a configuration.

    Attributes:
        method: `autoregressive` without a drafter.
        policy: `never`, `off` (k = 0 with the drafter loaded), `fixed`, `by_batch` or `adaptive`.
        k: the fixed k, or the largest.
        bands: (first, last, k) by batch, for `by_batch`.
        sizing: what a replica carries.
        fleets: per growth step; empty where no load keeps the limits.
        lossless: whether the output is the target's; else it is shown, and never recommended.
    """

    method: str
    policy: str
    k: int
    bands: tuple[tuple[int, int, int], ...]
    sizing: Sizing
    fleets: tuple[Fleet, ...]
    lossless: bool = True

    @property
    def now(self) -> Fleet | None:
        """The fleet of today's peak."""
        return self.fleets[0] if self.fleets else None


@dataclass(frozen=True)
class Sensitivity:
    """What becomes of today's fleet if an assumption is off.

    Attributes:
        name: `acceptance`, `traffic` or `outputs`.
        recommended: the recommended option's fleet then; None where the limits can't be kept.
        plain: the fleet without speculation then.
    """

    name: str
    recommended: Fleet | None
    plain: Fleet | None


@dataclass(frozen=True)
class MethodAdvice:
    """When a method is worth it, by load per replica.

    Attributes:
        method: its name.
        off_from_requests_per_s: simulated; None if it pays up to the load plain decoding carries.
        closed_form: the same from mean costs, as a cross-check.
        best_k: bands of load with the k that serves them fastest.
    """

    method: str
    off_from_requests_per_s: float | None
    closed_form: ClosedForm
    best_k: tuple[Band, ...]


@dataclass(frozen=True)
class ConfigurationPlan:
    """One configuration's options and what to choose.

    Attributes:
        model: the calibrated replica.
        bounds: of its scheduler.
        shapes: of the requests.
        largest_batch: sequences that fit.
        options: the plain one first.
        recommended: the lossless one with the fewest replicas; None where none keeps the limits.
        advice: per method.
        sensitivities: of the recommended option.
        extrapolated: what lies beyond what was measured, in words.
    """

    model: ReplicaModel
    bounds: Bounds
    shapes: Shapes
    largest_batch: int
    options: tuple[Option, ...]
    recommended: Option | None
    advice: tuple[MethodAdvice, ...]
    sensitivities: tuple[Sensitivity, ...]
    extrapolated: tuple[str, ...]

    @property
    def plain(self) -> Option:
        """Without speculation."""
        return self.options[0]


@dataclass(frozen=True)
class Plan:
    """Everything a report says.

    Attributes:
        name: of the results.
        settings: what was asked.
        configurations: one per engine and sampling setting.
    """

    name: str
    settings: PlanSettings
    configurations: tuple[ConfigurationPlan, ...]


def make_plan(results: Results, settings: PlanSettings) -> Plan:
    """Plan every configuration of a results folder.

    Raises:
        ResultFormatError: nothing can be calibrated; names the measurement that is missing.
        ConfigError: a setting doesn't fit the results.
    """
    models = calibrate(results)
    return Plan(
        results.path.resolve().name, settings, tuple(_configuration(model, settings) for model in models)
    )


def bounds_of(model: ReplicaModel, replica: ReplicaSettings) -> Bounds:
    """The scheduler's bounds: as given, else as far as was measured.

    Raises:
        ConfigError: `memory_gib` is given, but the results don't tell a sequence's memory, or it holds none.
    """
    kv, with_drafter = replica.kv_tokens, replica.kv_tokens_with_drafter
    if kv is None and replica.memory_gib is not None:
        capacity = replica.memory_gib * GIB
        kv = model.memory.tokens_in(capacity, with_drafter=False)
        with_drafter = with_drafter or model.memory.tokens_in(capacity, with_drafter=True)
        if kv is None:
            remedy = f"{model.memory.reason}. Give replica.kv_tokens, or measure two batch sizes or more."
            raise ConfigError(
                "replica.memory_gib", "needs the memory of a sequence", replica.memory_gib, remedy
            )
        if not kv:
            raise ConfigError("replica.memory_gib", "must hold the weights", replica.memory_gib)
    return Bounds(
        max_batch=replica.max_batch or model.range.max_batch,
        kv_tokens=kv,
        kv_tokens_with_drafter=with_drafter,
        chunk_tokens=replica.chunk_tokens,
        step_tokens=replica.step_tokens,
        max_waiting=replica.max_waiting,
        patience_s=replica.patience_s,
    )


def _configuration(model: ReplicaModel, settings: PlanSettings) -> ConfigurationPlan:
    shapes = shapes_of(settings.traffic, model, seed=settings.simulation.seed)
    bounds = bounds_of(model, settings.replica)
    plain = model.replica(bounds)
    extrapolated = beyond_measured(shapes, model, bounds.max_batch)
    if bounds.kv_tokens is None:
        extrapolated.append(
            "memory sets no bound here: give replica.kv_tokens or replica.memory_gib to set one"
        )
    options = [_option(plain, BASELINE_METHOD, "never", shapes, settings)]
    advice = []
    for method in model.methods:
        mine = _method_options(model, method, bounds, shapes, settings)
        advice.append(_advice(method, mine, options[0], model.replica(bounds, method, 0), shapes))
        options += mine
    recommended = _recommended(options)
    return ConfigurationPlan(
        model=model,
        bounds=bounds,
        shapes=shapes,
        largest_batch=largest_batch(plain, shapes),
        options=tuple(options),
        recommended=recommended,
        advice=tuple(advice),
        sensitivities=_sensitivities(model, recommended, options[0], bounds, shapes, settings),
        extrapolated=tuple(extrapolated),
    )


def _method_options(
    model: ReplicaModel, method: str, bounds: Bounds, shapes: Shapes, settings: PlanSettings
) -> list[Option]:
    found = model.methods[method]
    policies: list[tuple[str, Policy]] = [
        ("off", FixedK(0)),
        *(("fixed", FixedK(k)) for k in found.acceptances),
    ]
    bands = best_bands(
        found.costs,
        model.baseline,
        found.acceptances,
        max_batch=largest_batch(model.replica(bounds), shapes),
        context_per_sequence=shapes.mean_prompt_tokens + shapes.mean_output_tokens / 2,
    )
    if len(bands) > 1:
        policies.append(("by_batch", ByBatch(bands)))
    if settings.simulation.adaptive:
        policies.append(("adaptive", AdaptiveK(found.costs, model.baseline, found.acceptances)))
    made = [
        _option(model.replica(bounds, method, policy), method, name, shapes, settings)
        for name, policy in policies
    ]
    return [replace(option, lossless=found.lossless or option.k == 0) for option in made]


def _option(replica: Replica, method: str, policy: str, shapes: Shapes, settings: PlanSettings) -> Option:
    sizing = size_replica(replica, shapes, settings.slo, settings.simulation)
    peaks = [settings.traffic.requests_per_s * growth for growth in settings.traffic.growth]
    fleets = [fleet_for(sizing, shapes, peak, settings) for peak in peaks]
    return Option(
        method=method,
        policy=policy,
        k=replica.policy.max_k,
        bands=replica.policy.bands if isinstance(replica.policy, ByBatch) else (),
        sizing=sizing,
        fleets=tuple(fleet for fleet in fleets if fleet is not None),
    )


def _advice(
    method: str, options: list[Option], plain: Option, drafting: Replica, shapes: Shapes
) -> MethodAdvice:
    fixed: Mapping[int, Sizing] = {option.k: option.sizing for option in options if option.policy == "fixed"}
    return MethodAdvice(
        method=method,
        off_from_requests_per_s=switch_off_load(list(fixed.values()), plain.sizing),
        closed_form=closed_form(drafting, Replica(drafting.baseline, drafting.bounds), shapes),
        best_k=tuple(best_k_bands({0: plain.sizing, **fixed})),
    )


def _recommended(options: list[Option]) -> Option | None:
    """The lossless one whose replicas carry most; among equals within 2 % plain decoding, then small k."""
    able = [o for o in options if o.lossless and o.sizing.max_requests_per_s is not None]
    if not able:
        return None
    bar = 0.98 * max(option.sizing.max_requests_per_s or 0.0 for option in able)
    simplicity = {"never": 0, "fixed": 1, "by_batch": 2, "adaptive": 3, "off": 4}
    good = [option for option in able if (option.sizing.max_requests_per_s or 0.0) >= bar]
    return min(good, key=lambda option: (simplicity[option.policy], option.k))


def _sensitivities(
    model: ReplicaModel,
    recommended: Option | None,
    plain: Option,
    bounds: Bounds,
    shapes: Shapes,
    settings: PlanSettings,
) -> tuple[Sensitivity, ...]:
    if recommended is None:
        return ()
    peak = settings.traffic.requests_per_s
    longer = shapes.longer_outputs(2.0)

    def fleet(option: Option, *, shape: Shapes, points: float = 0.0) -> Fleet | None:
        replica = _replica_of(model, option, bounds, points)
        return fleet_for(
            size_replica(replica, shape, settings.slo, settings.simulation), shape, peak, settings
        )

    return (
        Sensitivity(
            "acceptance",
            fleet(recommended, shape=shapes, points=ACCEPTANCE_POINTS)
            if recommended is not plain
            else plain.now,
            plain.now,
        ),
        Sensitivity(
            "traffic",
            fleet_for(recommended.sizing, shapes, 2 * peak, settings),
            fleet_for(plain.sizing, shapes, 2 * peak, settings),
        ),
        Sensitivity("outputs", fleet(recommended, shape=longer), fleet(plain, shape=longer)),
    )


def _replica_of(model: ReplicaModel, option: Option, bounds: Bounds, points: float) -> Replica:
    if option.policy == "never":
        return model.replica(bounds)
    found = model.methods[option.method]
    policy: Policy = FixedK(option.k)
    if option.policy == "by_batch":
        policy = ByBatch(option.bands)
    if option.policy == "adaptive":
        policy = AdaptiveK(found.costs, model.baseline, found.acceptances)
    replica = model.replica(bounds, option.method, policy)
    if not points:
        return replica
    return replace(
        replica, acceptances={k: table.shifted(points) for k, table in replica.acceptances.items()}
    )


def option_facts(option: Option) -> dict[str, Any]:
    """An option as plain values."""
    return {
        "method": option.method,
        "policy": option.policy,
        "k": option.k,
        "bands": [list(b) for b in option.bands],
    }
