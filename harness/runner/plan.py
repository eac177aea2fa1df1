"""Everything about a cell that is known before an engine starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Protocol

from harness.backends.base import Backend, DecodingSettings, EngineSettings, PicksDrafterFormat
from harness.config.engines import AUTO
from harness.config.identity import cell_id
from harness.config.schema import HarnessConfig
from harness.config.variants import variants_of
from harness.errors import ConfigError, UnsupportedError, WorkloadError
from harness.models.checkpoint import ResolvedModel
from harness.models.memory import Load, MemoryEstimate
from harness.models.pair_check import PairFacts, check_head_pair, check_pair
from harness.models.sources import resolve_model
from harness.models.stand_in import StandInTokenizer, stand_in_model
from harness.models.tokenizer import Tokenizer, load_tokenizer
from harness.records import Variant
from harness.registry import METHODS, load_backend, suggest
from harness.runner.filling import filled_up
from harness.runner.memory import cell_memory
from harness.workloads import Prompt, Workload, available_workloads, check_disjoint, load_workload


class Resolve(Protocol):
    """Turns a model reference into a checkpoint folder."""

    def __call__(self, ref: str, *, base_ref: str | None) -> ResolvedModel:
        """See `harness.models.sources.resolve_model`."""


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """A prompt as the models read it."""

    prompt_id: str
    task: str
    tokens: tuple[int, ...]
    max_new_tokens: int


@dataclass(frozen=True, slots=True)
class CellPlan:
    """A cell ready to be measured.

    Attributes:
        cell_id: content hash; see `harness.config.identity.cell_id`.
        config: the resolved configuration.
        variants: the baseline first.
        backend: the engine's class.
        engine: what its session is opened with.
        decoding: settings equal for every sequence.
        drafters: checkpoint of each draft model, by its reference.
        prompts: to measure, in order.
        warmup: prompts that warm up, disjoint from `prompts`.
        facts: for the stored record.
        pairs: what target and draft model have in common, by the draft model's reference.
        memory: what the models will need; None where none is loaded.
    """

    cell_id: str
    config: HarnessConfig
    variants: tuple[Variant, ...]
    backend: type[Backend]
    engine: EngineSettings
    decoding: DecodingSettings
    drafters: Mapping[str, ResolvedModel]
    prompts: tuple[EncodedPrompt, ...]
    warmup: tuple[EncodedPrompt, ...]
    facts: Mapping[str, Any]
    pairs: Mapping[str, PairFacts]
    memory: MemoryEstimate | None


def plan_cell(config: HarnessConfig, *, resolve: Resolve = resolve_model) -> CellPlan:
    """Resolve models and workloads, check that they fit each other, and name the cell.

    Args:
        config: of the cell.
        resolve: finds a model by its reference, given the target's for a drafter.

    Raises:
        HarnessError: whatever keeps the cell from being measured, before any weight is loaded.
    """
    backend: type[Backend] = load_backend(config.backend.name)
    variants = tuple(variants_of(config))
    _check_backend(config, backend, variants)
    measured, warmup = load_workload(config.workload.name), load_workload(config.workload.warmup)
    check_disjoint(measured, warmup)
    _check_simulated_names(config, variants, measured)
    target, drafters = _models(config, backend, variants, resolve)
    config = _with_drafter_format(config, backend, target)
    pairs = _check_pairs(backend, variants, target, drafters)
    tokenizer = StandInTokenizer() if backend.is_simulated else load_tokenizer(target.path)
    prompts = _measured_prompts(config, measured, tokenizer)
    warmup_prompts = _warmup_prompts(config, warmup, tokenizer)
    context = _context_tokens((*prompts, *warmup_prompts), [target, *drafters.values()], measured)
    engine = _engine_settings(config, target)
    load = Load(
        context_tokens=context,
        prompt_tokens=max(len(prompt.tokens) for prompt in (*prompts, *warmup_prompts)),
        batch_size=config.batch_size,
        width=1 + max(variant.k for variant in variants),
    )
    return CellPlan(
        cell_id=cell_id(config, _revisions(config, backend, target, drafters, measured, warmup)),
        config=config,
        variants=variants,
        backend=backend,
        engine=engine,
        decoding=_decoding_settings(config, tokenizer, context),
        drafters=drafters,
        prompts=prompts,
        warmup=warmup_prompts,
        facts=_facts(config, backend, target, measured, len(prompts)),
        pairs=pairs,
        memory=cell_memory(backend, engine, variants, drafters, load),
    )


def _measured_prompts(
    config: HarnessConfig, workload: Workload, tokenizer: Tokenizer | StandInTokenizer
) -> tuple[EncodedPrompt, ...]:
    taken = _filled(workload.take(config.workload.num_prompts), tokenizer, config)
    prompts = _encode(taken, tokenizer, config)
    if config.batch_size > len(prompts):
        raise WorkloadError(
            f"batch_size: {config.batch_size} sequences are to be decoded together, but {len(prompts)} "
            "prompts are measured. Lower batch_size, raise workload.num_prompts or choose a larger workload."
        )
    return prompts


def _warmup_prompts(
    config: HarnessConfig, workload: Workload, tokenizer: Tokenizer | StandInTokenizer
) -> tuple[EncodedPrompt, ...]:
    count = config.measure.warmup_prompts
    return _encode(workload.take(count), tokenizer, config) if count else ()


def _revisions(
    config: HarnessConfig,
    backend: type[Backend],
    target: ResolvedModel,
    drafters: Mapping[str, ResolvedModel],
    measured: Workload,
    warmup: Workload,
) -> dict[str, str]:
    """Content hashes and versions of all that a measurement hangs on, by role."""
    revisions = {"target": target.revision, "workload": measured.sha256, "warmup": warmup.sha256}
    if config.workload.prompt_tokens is not None:
        revisions["filler"] = load_workload(config.workload.filler).sha256
    revisions |= {f"drafter {ref}": model.revision for ref, model in drafters.items()}
    return revisions | {"backend": backend.version()}


def _engine_settings(config: HarnessConfig, target: ResolvedModel) -> EngineSettings:
    return EngineSettings(
        target=target,
        device=config.backend.device,
        dtype=config.backend.dtype,
        num_threads=config.backend.num_threads,
        target_quantization=config.quantization.target,
        drafter_quantization=config.quantization.drafter,
        simulator=config.simulator,
        vllm=config.vllm,
    )


def _decoding_settings(
    config: HarnessConfig, tokenizer: Tokenizer | StandInTokenizer, context_tokens: int
) -> DecodingSettings:
    return DecodingSettings(
        temperature=config.sampling.temperature,
        top_k=config.sampling.top_k,
        top_p=config.sampling.top_p,
        eos_ids=frozenset() if config.workload.ignore_eos else tokenizer.eos_ids,
        context_tokens=context_tokens,
        batch_size=config.batch_size,
    )


def _with_drafter_format(
    config: HarnessConfig, backend: type[Backend], target: ResolvedModel
) -> HarnessConfig:
    """Say what `quantization.drafter=auto` stands for here, before the cell is named."""
    if config.quantization.drafter != AUTO:
        return config
    chosen = "none"
    if isinstance(backend, PicksDrafterFormat):
        chosen = backend.drafter_format(_engine_settings(config, target))
    return replace(config, quantization=replace(config.quantization, drafter=chosen))


def _check_backend(config: HarnessConfig, backend: type[Backend], variants: tuple[Variant, ...]) -> None:
    limit = backend.max_batch_size
    if limit is not None and config.batch_size > limit:
        raise UnsupportedError(
            f"batch_size: backend.name={backend.name} decodes at most {limit} sequence(s) together, got "
            f"{config.batch_size}. Set batch_size={limit}."
        )
    formats = {config.quantization.target, config.quantization.drafter}
    if backend.is_simulated and formats - {"none", AUTO}:
        raise UnsupportedError(
            f"quantization: the {backend.name} backend has no weights to quantise. Set quantization=none."
        )
    shipped = {name for method in METHODS.values() for name in method.backends}
    for variant in variants:
        if backend.name in shipped and backend.name not in METHODS[variant.method].backends:
            raise UnsupportedError(
                f"method.name: {variant.method} doesn't run on the {backend.name} backend."
            )


def _check_simulated_names(config: HarnessConfig, variants: tuple[Variant, ...], workload: Workload) -> None:
    """Refuse variants and tasks that the simulator would look for in vain."""
    if config.simulator is None:
        return
    names = [variant.variant_id for variant in variants]
    for index, failure in enumerate(config.simulator.failures):
        if failure.variant is not None and failure.variant not in names:
            field = f"simulator.failures[{index}].variant"
            raise ConfigError(
                field, "must be a variant of the cell", failure.variant, suggest(failure.variant, names)
            )
    if config.simulator.tasks:
        # a sweep over workloads has cells without some of the tasks
        shipped = (load_workload(name).tasks for name in available_workloads())
        tasks = {*workload.tasks, *chain.from_iterable(shipped)}
        for index, task in enumerate(config.simulator.tasks):
            if task.name not in tasks:
                field = f"simulator.tasks[{index}].name"
                raise ConfigError(
                    field, "must be a task of the workload", task.name, suggest(task.name, tasks)
                )


def _models(
    config: HarnessConfig, backend: type[Backend], variants: tuple[Variant, ...], resolve: Resolve
) -> tuple[ResolvedModel, dict[str, ResolvedModel]]:
    """The target, and the draft models and heads by their reference."""
    refs = [variant.drafter for variant in variants if variant.drafter is not None]
    if backend.is_simulated:
        return stand_in_model(config.pair.target), {ref: stand_in_model(ref) for ref in refs}
    target = resolve(config.pair.target, base_ref=None)
    return target, {ref: resolve(ref, base_ref=config.pair.target) for ref in dict.fromkeys(refs)}


def _check_pairs(
    backend: type[Backend],
    variants: tuple[Variant, ...],
    target: ResolvedModel,
    drafters: Mapping[str, ResolvedModel],
) -> dict[str, PairFacts]:
    """What target and draft models have in common; heads are checked too, and have no tokens of their own."""
    if backend.is_simulated:
        return {}
    pairs: dict[str, PairFacts] = {}
    for variant in variants:
        if variant.drafter is None or variant.drafter in pairs:
            continue
        if not METHODS[variant.method].drafter_is_head:
            pairs[variant.drafter] = check_pair(target, drafters[variant.drafter])
        elif backend.name == "native":
            # other engines read heads in formats of their own, and check them
            check_head_pair(target, drafters[variant.drafter])
    return pairs


def _filled(
    prompts: tuple[Prompt, ...], tokenizer: Tokenizer | StandInTokenizer, config: HarnessConfig
) -> tuple[Prompt, ...]:
    length = config.workload.prompt_tokens
    if length is None:
        return prompts
    if not isinstance(tokenizer, Tokenizer):
        raise UnsupportedError("workload.prompt_tokens: the simulator has no tokenizer. Leave it null.")
    filler = load_workload(config.workload.filler)
    return tuple(filled_up(prompt, length, tokenizer=tokenizer, filler=filler) for prompt in prompts)


def _encode(
    prompts: tuple[Prompt, ...], tokenizer: Tokenizer | StandInTokenizer, config: HarnessConfig
) -> tuple[EncodedPrompt, ...]:
    limit = config.workload.max_output_tokens
    return tuple(
        EncodedPrompt(
            prompt_id=prompt.id,
            task=prompt.task,
            tokens=tuple(tokenizer.encode_prompt(prompt)),
            max_new_tokens=min(limit, prompt.max_output_tokens or limit),
        )
        for prompt in prompts
    )


def _context_tokens(
    prompts: tuple[EncodedPrompt, ...], models: list[ResolvedModel], workload: Workload
) -> int:
    limits = [model.facts.max_context_tokens for model in models if model.facts.max_context_tokens]
    longest = max(prompts, key=lambda prompt: len(prompt.tokens) + prompt.max_new_tokens)
    needed = len(longest.tokens) + longest.max_new_tokens
    if limits and needed > min(limits):
        raise WorkloadError(
            f"{workload.name}, prompt {longest.prompt_id!r}: {len(longest.tokens)} prompt tokens and "
            f"{longest.max_new_tokens} output tokens exceed the pair's context of {min(limits)} tokens. "
            "Shorten the prompt or lower workload.max_output_tokens."
        )
    return needed


def _facts(
    config: HarnessConfig, backend: type[Backend], target: ResolvedModel, workload: Workload, num_prompts: int
) -> dict[str, Any]:
    filled = config.workload.prompt_tokens
    return {
        "backend": config.backend.name,
        "backend_version": backend.version(),
        "pair": config.pair.name,
        "target": target.ref,
        "target_revision": target.revision,
        "dtype": config.backend.dtype,
        "target_quantization": config.quantization.target,
        "drafter_quantization": config.quantization.drafter,
        "device": config.backend.device,
        "batch_size": config.batch_size,
        "temperature": config.sampling.temperature,
        "top_k": config.sampling.top_k,
        "top_p": config.sampling.top_p,
        "workload": workload.name,
        "workload_sha256": workload.sha256,
        "num_prompts": num_prompts,
        "max_output_tokens": config.workload.max_output_tokens,
        "ignore_eos": config.workload.ignore_eos,
        **({} if filled is None else {"prompt_tokens": filled}),
    }
