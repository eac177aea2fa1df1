"""What a vLLM engine is started with, and what it must say it runs with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.backends.base import DecodingSettings, EngineSettings
from harness.backends.placement import available_cores
from harness.config.schema import VllmConfig
from harness.errors import ConfigError, UnsupportedError
from harness.models.checkpoint import ResolvedModel
from harness.records import Variant

UNQUANTIZED = "none"
LARGEST_K = 64
_CONTEXT_MULTIPLE = 64
# What the harness decides for vLLM, and where it is configured instead.
OWNED = {
    "model": "pair.target",
    "tokenizer": "pair.target",
    "skip_tokenizer_init": "pair.target",
    "speculative_config": "method",
    "spec_method": "method.name",
    "spec_model": "method.drafter",
    "spec_tokens": "method.k",
    "dtype": "backend.dtype",
    "quantization": "quantization.target",
    "device": "backend.device",
    "max_num_seqs": "batch_size",
    "max_model_len": "workload.max_output_tokens",
    "seed": "measure.seed",
    "enforce_eager": "vllm.enforce_eager",
    "enable_prefix_caching": "vllm.enable_prefix_caching",
    "tensor_parallel_size": "vllm.tensor_parallel_size",
    "pipeline_parallel_size": "vllm.pipeline_parallel_size",
    "distributed_executor_backend": "vllm.distributed_executor_backend",
    "gpu_memory_utilization": "vllm.gpu_memory_utilization",
    "kv_cache_memory_bytes": "vllm.kv_cache_gib",
    "disable_log_stats": "nothing: it supplies the metrics",
    "per_request_spec_decode_metrics": "nothing: it supplies the metrics",
    "generation_config": "sampling",
    "trust_remote_code": "nothing: code from checkpoints is never run",
}


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One engine.

    Attributes:
        arguments: of `vllm.LLM`.
        environment: variables of its process.
        expected: settings as the engine must read them back.
    """

    arguments: Mapping[str, Any]
    environment: Mapping[str, str]
    expected: Mapping[str, Any]


def check_engine_args(extra: Mapping[str, Any]) -> None:
    """Refuse free-form options that contradict what the harness decides.

    Raises:
        ConfigError: names the option and where it is configured.
    """
    for name, value in extra.items():
        if name in OWNED:
            raise ConfigError(
                f"vllm.engine_args.{name}", f"is decided by {OWNED[name]}", value, "Leave it out."
            )


def engine_request(
    variant: Variant, drafter: ResolvedModel | None, *, settings: EngineSettings, decoding: DecodingSettings
) -> EngineRequest:
    """Arguments, environment and expected read-back of a variant's engine.

    Raises:
        UnsupportedError: the backend can't ask vLLM for this.
    """
    options = settings.vllm or VllmConfig()
    on_cpu = settings.device == "cpu"
    quantization = _quantization(settings.target_quantization)
    arguments: dict[str, Any] = {
        **options.engine_args,
        "model": str(settings.target.path),
        "skip_tokenizer_init": True,
        "generation_config": "vllm",
        "dtype": settings.dtype,
        "quantization": quantization,
        "max_num_seqs": decoding.batch_size,
        "max_model_len": _context_tokens(settings.target, decoding),
        "enable_prefix_caching": options.enable_prefix_caching,
        "tensor_parallel_size": options.tensor_parallel_size,
        "pipeline_parallel_size": options.pipeline_parallel_size,
        "disable_log_stats": False,
    }
    eager = on_cpu if options.enforce_eager is None else options.enforce_eager
    arguments["enforce_eager"] = eager
    for name in ("distributed_executor_backend", "gpu_memory_utilization"):
        if getattr(options, name) is not None:
            arguments[name] = getattr(options, name)
    expected: dict[str, Any] = {
        "dtype": settings.dtype,
        "quantization": settings.target_quantization,
        "max_num_seqs": decoding.batch_size,
        "enforce_eager": eager,
        "prefix_caching": options.enable_prefix_caching,
        "tensor_parallel_size": options.tensor_parallel_size,
        "pipeline_parallel_size": options.pipeline_parallel_size,
        "method": None if variant.is_baseline else variant.method,
        "k": variant.k,
    }
    if not variant.is_baseline:
        speculative, promised = _speculative(variant, drafter, settings=settings, options=options)
        arguments |= {"speculative_config": speculative, "per_request_spec_decode_metrics": "detailed"}
        expected |= promised
    return EngineRequest(arguments, _environment(settings, options, on_cpu=on_cpu), expected)


def _speculative(
    variant: Variant, drafter: ResolvedModel | None, *, settings: EngineSettings, options: VllmConfig
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The `speculative_config`, and what of it is read back."""
    asked: dict[str, Any] = {"method": variant.method, "num_speculative_tokens": variant.k}
    promised: dict[str, Any] = {}
    if options.rejection_sample_method != "standard":
        _check_rejection(options.rejection_sample_method, device=settings.device)
        asked["rejection_sample_method"] = options.rejection_sample_method
        asked |= options.rejection_args
    promised["rejection_sample_method"] = options.rejection_sample_method
    schedule = variant.option("k_by_batch")
    if schedule:
        asked["num_speculative_tokens_per_batch_size"] = [list(entry) for entry in schedule]
    if variant.method == "ngram":
        lengths = {f"prompt_lookup_{end}": variant.option(f"{end}_ngram") for end in ("min", "max")}
        return asked | lengths, promised | lengths
    if variant.method == "suffix":
        # its tree would remember the answers of earlier repeats
        return asked | {"suffix_decoding_max_cached_requests": 0}, promised
    if drafter is not None:
        asked["model"] = str(drafter.path)
        quantization = _quantization(settings.drafter_quantization)
        if quantization:
            asked["quantization"] = quantization
        sampling = "probabilistic" if variant.option("draft_sampling") == "sampled" else "greedy"
        asked["draft_sample_method"] = sampling
        if variant.method == "draft_model" and _pads_differ(settings.target, drafter, sampling=sampling):
            asked["use_heterogeneous_vocab"] = True
        if variant.method == "draft_model":
            asked["draft_tensor_parallel_size"] = options.tensor_parallel_size
        promised |= {
            "draft_sample_method": sampling,
            "draft_model": str(drafter.path),
            "draft_quantization": settings.drafter_quantization,
        }
    return asked, promised


def _pads_differ(target: ResolvedModel, drafter: ResolvedModel, *, sampling: str) -> bool:
    """Whether vLLM must be told that the two vocabularies are padded to different sizes.

    Raises:
        UnsupportedError: they are, and drafts are to be drawn.
    """
    ours, theirs = target.facts.vocab_size, drafter.facts.vocab_size
    if ours != theirs and sampling != "greedy":
        raise UnsupportedError(
            f"method.draft_sampling=sampled: the vocabularies have {ours} and {theirs} rows, and then vLLM "
            "drafts greedily only. Set method.draft_sampling=greedy."
        )
    return ours != theirs


def _check_rejection(method: str, *, device: str) -> None:
    if device == "cpu":
        raise UnsupportedError(
            f"vllm.rejection_sample_method={method}: vLLM's CPU engine always verifies in the standard way. "
            "Use standard."
        )


def _quantization(name: str) -> str | None:
    return None if name == UNQUANTIZED else name


def _context_tokens(target: ResolvedModel, decoding: DecodingSettings) -> int:
    """Room for the longest sequence and a draft behind it, so that none is shortened at the end."""
    needed = decoding.context_tokens + LARGEST_K + 1
    rounded = -(-needed // _CONTEXT_MULTIPLE) * _CONTEXT_MULTIPLE
    return min(rounded, target.facts.max_context_tokens or rounded)


def _environment(settings: EngineSettings, options: VllmConfig, *, on_cpu: bool) -> dict[str, str]:
    environment = {
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "1" if options.separate_core else "0",
        # `-m` must find this package, and nothing of the current folder
        "PYTHONSAFEPATH": "1",
    }
    if on_cpu:
        cores = settings.num_threads or available_cores()
        environment |= {
            "VLLM_CPU_KVCACHE_SPACE": str(options.kv_cache_gib),
            # by default one core is kept free, which on two cores halves the engine
            "VLLM_CPU_OMP_THREADS_BIND": _cores(cores),
            "OMP_NUM_THREADS": str(cores),
        }
    return environment


def _cores(count: int) -> str:
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(count))
    return ",".join(str(core) for core in allowed[:count])


def differences(expected: Mapping[str, Any], applied: Mapping[str, Any]) -> list[str]:
    """What the engine runs with other than asked for, in words."""
    return [
        f"{name}: asked for {wanted!r}, runs with {applied.get(name)!r}"
        for name, wanted in expected.items()
        if applied.get(name) != wanted
    ]
