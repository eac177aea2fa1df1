"""Everything about a cell that is known before an engine starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from harness.backends.base import Backend, DecodingSettings, EngineSettings
from harness.config.identity import cell_id
from harness.config.schema import HarnessConfig
from harness.config.variants import variants_of
from harness.errors import UnsupportedError, WorkloadError
from harness.models.checkpoint import ResolvedModel
from harness.models.memory import Load, MemoryEstimate
from harness.models.pair_check import PairFacts, check_pair
from harness.models.sources import resolve_model
from harness.models.stand_in import StandInTokenizer, stand_in_model
from harness.models.tokenizer import Tokenizer, load_tokenizer
from harness.records import Variant
from harness.registry import METHODS, load_backend
from harness.runner.memory import cell_memory
from harness.workloads import Prompt, Workload, check_disjoint, load_workload


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
    target, drafters = _models(config, backend, variants, resolve)
    pairs: dict[str, PairFacts] = {}
    if not backend.is_simulated:
        pairs = {ref: check_pair(target, drafter) for ref, drafter in drafters.items()}
    tokenizer = StandInTokenizer() if backend.is_simulated else load_tokenizer(target.path)
    prompts = _encode(measured.take(config.workload.num_prompts), tokenizer, config)
    warmup_prompts = (
        _encode(warmup.take(config.measure.warmup_prompts), tokenizer, config)
        if config.measure.warmup_prompts
        else ()
    )
    context = _context_tokens((*prompts, *warmup_prompts), [target, *drafters.values()], measured)
    revisions = {"target": target.revision, "workload": measured.sha256, "warmup": warmup.sha256}
    revisions |= {f"drafter {ref}": model.revision for ref, model in drafters.items()}
    engine = EngineSettings(
        target=target,
        device=config.backend.device,
        dtype=config.backend.dtype,
        num_threads=config.backend.num_threads,
        target_quantization=config.quantization.target,
        drafter_quantization=config.quantization.drafter,
        simulator=config.simulator,
    )
    load = Load(
        context_tokens=context,
        prompt_tokens=max(len(prompt.tokens) for prompt in (*prompts, *warmup_prompts)),
        batch_size=config.batch_size,
        width=1 + max(variant.k for variant in variants),
    )
    return CellPlan(
        cell_id=cell_id(config, revisions | {"backend": backend.version()}),
        config=config,
        variants=variants,
        backend=backend,
        engine=engine,
        decoding=DecodingSettings(
            temperature=config.sampling.temperature,
            top_k=config.sampling.top_k,
            top_p=config.sampling.top_p,
            eos_ids=frozenset() if config.workload.ignore_eos else tokenizer.eos_ids,
            context_tokens=context,
        ),
        drafters=drafters,
        prompts=prompts,
        warmup=warmup_prompts,
        facts=_facts(config, backend, target, measured, len(prompts)),
        pairs=pairs,
        memory=cell_memory(backend, engine, variants, drafters, load),
    )


def _check_backend(config: HarnessConfig, backend: type[Backend], variants: tuple[Variant, ...]) -> None:
    limit = backend.max_batch_size
    if limit is not None and config.batch_size > limit:
        raise UnsupportedError(
            f"batch_size: backend.name={backend.name} decodes at most {limit} sequence(s) together, got "
            f"{config.batch_size}. Set batch_size={limit}."
        )
    shipped = {name for method in METHODS.values() for name in method.backends}
    for variant in variants:
        if backend.name in shipped and backend.name not in METHODS[variant.method].backends:
            raise UnsupportedError(
                f"method.name: {variant.method} doesn't run on the {backend.name} backend."
            )


def _models(
    config: HarnessConfig, backend: type[Backend], variants: tuple[Variant, ...], resolve: Resolve
) -> tuple[ResolvedModel, dict[str, ResolvedModel]]:
    """The target, and the draft models by their reference."""
    refs = [variant.drafter for variant in variants if variant.drafter is not None]
    if backend.is_simulated:
        return stand_in_model(config.pair.target), {ref: stand_in_model(ref) for ref in refs}
    target = resolve(config.pair.target, base_ref=None)
    return target, {ref: resolve(ref, base_ref=config.pair.target) for ref in dict.fromkeys(refs)}


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
    }
