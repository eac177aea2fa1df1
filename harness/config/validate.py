"""Range checks on a configuration; nothing is changed, only refused."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from harness.config.engines import AUTO, check_k_by_batch, check_vllm, quantization_formats
from harness.config.languages import check_language
from harness.config.pacing import check_pacing, compared, drafter_ref, pair_field
from harness.config.schema import HarnessConfig, MethodConfig
from harness.config.simulated import DraftingConfig, SimulatorConfig
from harness.errors import ConfigError
from harness.registry import backend_names, find_method, suggest

_DTYPES = ("bfloat16", "float16", "float32")
_DEVICES = ("auto", "cpu", "cuda")
_DRAFT_SAMPLING = ("sampled", "greedy")
_MAX_K = 64
_MAX_SPREAD = 0.9  # at 1 every prompt would have an alpha of 0 or 1
_NOT_NEGATIVE = (
    "verify_slope",
    "batch_slope",
    "prefill_s_per_token",
    "overhead_s",
    "load_s",
    "first_call_s",
    "step_noise",
    "trial_noise",
    "drift_per_hour",
    "warming",
    "seed",
)
_PROBABILITIES = ("eos_probability", "outlier_probability", "prefix_cache")


def validate(config: HarnessConfig) -> None:
    """Check every value of a configuration.

    Raises:
        ConfigError: naming the field, what it must be, what it is and the remedy.
    """
    if not re.fullmatch(r"[\w.-]+", config.name) or config.name.startswith("."):
        raise ConfigError(
            "name", "must be letters, digits, '_', '-' or '.'", config.name, "It names a folder."
        )
    check_language(config.report_language, field="report_language")
    _at_least("batch_size", config.batch_size, 1)
    _backend(config)
    _simulator(config)
    check_vllm(config)
    _sampling(config)
    _workload(config)
    _measure(config)
    formats = quantization_formats(config.backend.name)
    _one_of("quantization.target", config.quantization.target, formats)
    _one_of("quantization.drafter", config.quantization.drafter, (AUTO, *formats))
    for field, method in compared(config):
        _method(method, field, config)


def k_values(method: MethodConfig, *, field: str = "method") -> list[int]:
    """The numbers of drafted tokens a method is measured at, in the order given.

    Raises:
        ConfigError: not a whole number above 0, a repeated one, or none at all.
    """
    given = method.k if isinstance(method.k, list | tuple) else [method.k]
    remedy = "Give one number or a list, such as method.k=5 or 'method.k=[1,3,5]'. The baseline needs none."
    if not given:
        raise ConfigError(f"{field}.k", "needs at least one number", method.k, remedy)
    for value in given:
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MAX_K:
            raise ConfigError(f"{field}.k", f"must be whole numbers from 1 to {_MAX_K}", value, remedy)
    if len(set(given)) != len(given):
        raise ConfigError(f"{field}.k", "must not repeat a number", method.k, remedy)
    return list(given)


def _backend(config: HarnessConfig) -> None:
    backend = config.backend
    _one_of("backend.name", backend.name, backend_names())
    _one_of("backend.device", backend.device, _DEVICES)
    _one_of("backend.dtype", backend.dtype, _DTYPES)
    if backend.num_threads is not None:
        _at_least("backend.num_threads", backend.num_threads, 1)


def _simulator(config: HarnessConfig) -> None:
    simulator = config.simulator
    if simulator is None:
        if config.backend.name == "simulator":
            raise ConfigError("simulator", "must be set", None, "Use backend=simulator, which sets it.")
        return
    if config.backend.name != "simulator":
        remedy = f"backend.name={config.backend.name} ignores it: use backend=simulator, or leave it out."
        raise ConfigError("simulator", "is for the simulator alone", "values", remedy)
    for name in ("step_s", "outlier_factor"):
        _within(f"simulator.{name}", getattr(simulator, name), above=0)
    for name in _NOT_NEGATIVE:
        _within(f"simulator.{name}", getattr(simulator, name), least=0)
    for name in _PROBABILITIES:
        _within(f"simulator.{name}", getattr(simulator, name), least=0, most=1)
    _within("simulator.prompt_spread", simulator.prompt_spread, least=0, most=_MAX_SPREAD)
    _within("simulator.carry_over", simulator.carry_over, least=-1, most=1)
    _within("simulator.alpha_drift_per_hour", simulator.alpha_drift_per_hour)
    for index, task in enumerate(simulator.tasks):
        _within(f"simulator.tasks[{index}].alpha_offset", task.alpha_offset, least=-1, most=1)
    _drafting(simulator.draft_model, "simulator.draft_model")
    _drafting(simulator.ngram, "simulator.ngram")
    _failures(simulator)


def _drafting(drafting: DraftingConfig, field: str) -> None:
    _within(f"{field}.cost", drafting.cost, least=0)
    _within(f"{field}.empty", drafting.empty, least=0, most=1)
    _within(f"{field}.temperature_effect", drafting.temperature_effect)
    remedy = "Give one number, or a list with one per position."
    _probabilities(f"{field}.alpha", drafting.alpha, remedy)


def _failures(simulator: SimulatorConfig) -> None:
    for index, failure in enumerate(simulator.failures):
        field = f"simulator.failures[{index}].call"
        if failure.call is None:
            continue
        _at_least(field, failure.call, 0)
        if failure.variant is None:
            raise ConfigError(field, "needs a variant", failure.call, "Only variants decode.")


def _sampling(config: HarnessConfig) -> None:
    sampling = config.sampling
    if not math.isfinite(sampling.temperature) or sampling.temperature < 0:
        raise ConfigError(
            "sampling.temperature",
            "must be a finite number of 0 or more",
            sampling.temperature,
            "0 is greedy.",
        )
    _at_least("sampling.top_k", sampling.top_k, 0)
    if not 0 < sampling.top_p <= 1:
        raise ConfigError(
            "sampling.top_p", "must lie above 0 and up to 1", sampling.top_p, "1 keeps all tokens."
        )


def _workload(config: HarnessConfig) -> None:
    workload = config.workload
    _at_least("workload.max_output_tokens", workload.max_output_tokens, 2)
    if workload.num_prompts is not None:
        _at_least("workload.num_prompts", workload.num_prompts, 1)
    if workload.prompt_tokens is not None:
        _at_least("workload.prompt_tokens", workload.prompt_tokens, 1)


def _measure(config: HarnessConfig) -> None:
    measure = config.measure
    _at_least("measure.warmup_prompts", measure.warmup_prompts, 0)
    _at_least("measure.seed", measure.seed, 0)
    _at_least("measure.min_repeats", measure.min_repeats, 1)
    _at_least("measure.max_repeats", measure.max_repeats, measure.min_repeats)
    above_zero = {
        "target_precision": measure.target_precision,
        "max_time_s": measure.max_time_s,
        "lossless.max_time_s": measure.lossless.max_time_s,
    }
    for field, value in above_zero.items():
        if not value > 0:
            raise ConfigError(f"measure.{field}", "must be above 0", value)


def _method(method: MethodConfig, field: str, config: HarnessConfig) -> None:
    known = find_method(method.name, field=f"{field}.name")
    longest = max(k_values(method, field=field)) if known.drafts else 0
    if known.needs_drafter and not drafter_ref(method, config.pair):
        raise ConfigError(
            f"{field}.drafter",
            f"must name what {method.name} drafts with",
            None,
            f"The pair {config.pair.name!r} has none: set pair.{pair_field(method)}, or use method=ngram.",
        )
    check_pacing(method, field, backend=config.backend.name, longest=longest)
    _acceptance(method, field)
    _one_of(f"{field}.draft_sampling", method.draft_sampling, _DRAFT_SAMPLING)
    _at_least(f"{field}.min_ngram", method.min_ngram, 1)
    _at_least(f"{field}.max_ngram", method.max_ngram, method.min_ngram)
    check_k_by_batch(method, field, backend=config.backend.name)


def _acceptance(method: MethodConfig, field: str) -> None:
    if method.name == "synthetic":
        remedy = "Give one number, or a list with one per position."
        _probabilities(f"{field}.acceptance", method.acceptance, remedy)
    elif method.acceptance is not None:
        raise ConfigError(
            f"{field}.acceptance", "is for method=synthetic alone", method.acceptance, "Leave it out."
        )


def _probabilities(field: str, given: object, remedy: str) -> None:
    values = given if isinstance(given, list | tuple) else [given]
    if not values:
        raise ConfigError(field, "needs at least one number", given, remedy)
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(field, "must be numbers", value, remedy)
        _within(field, value, least=0, most=1)


def _at_least(field: str, value: int, least: int) -> None:
    if value < least:
        raise ConfigError(field, f"must be at least {least}", value)


def _within(
    field: str,
    value: float,
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    most: float = math.inf,
) -> None:
    if math.isfinite(value) and least <= value <= most and value > above:
        return
    lower = f"above {above:g}" if math.isfinite(above) else f"at least {least:g}"
    ends = [lower] if math.isfinite(max(above, least)) else []
    ends += [f"at most {most:g}"] if math.isfinite(most) else []
    raise ConfigError(field, f"must be a finite number, {' and '.join(ends)}".strip(", "), value)


def _one_of(field: str, value: str, known: Iterable[str]) -> None:
    if value not in known:
        raise ConfigError(field, "isn't known", value, suggest(value, known))
