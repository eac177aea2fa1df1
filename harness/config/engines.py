"""Range checks on what only some engines have."""

from __future__ import annotations

from harness.config.schema import HarnessConfig, MethodConfig
from harness.errors import ConfigError
from harness.registry import suggest

AUTO = "auto"
"""Of `quantization.drafter`: what the backend drafts best in."""
_REJECTION = ("standard", "block", "synthetic")
_EXECUTORS = ("mp", "ray", "uni")
_UNQUANTIZED = ("none",)
_OWN_FORMATS = ("none", "int8", "int4", "fp8")
_VLLM_FORMATS = (
    "none",
    "awq",
    "awq_marlin",
    "bitsandbytes",
    "compressed-tensors",
    "fp8",
    "gptq",
    "gptq_marlin",
    "modelopt",
)


def quantization_formats(backend: str) -> tuple[str, ...]:
    """Weight formats a backend can be asked for."""
    return {"vllm": _VLLM_FORMATS, "transformers": _UNQUANTIZED}.get(backend, _OWN_FORMATS)


def check_vllm(config: HarnessConfig) -> None:
    """Check what `backend=vllm` sets, and that no other backend has it.

    Raises:
        ConfigError: naming the field, what it must be, what it is and the remedy.
    """
    vllm = config.vllm
    if vllm is None:
        if config.backend.name == "vllm":
            raise ConfigError("vllm", "must be set", None, "Use backend=vllm, which sets it.")
        return
    if config.backend.name != "vllm":
        remedy = f"backend.name={config.backend.name} ignores it: use backend=vllm, or leave it out."
        raise ConfigError("vllm", "is for vLLM alone", "values", remedy)
    for name in ("tensor_parallel_size", "pipeline_parallel_size", "kv_cache_gib"):
        if getattr(vllm, name) < 1:
            raise ConfigError(f"vllm.{name}", "must be at least 1", getattr(vllm, name))
    for name in ("start_timeout_s", "decode_timeout_s"):
        if not getattr(vllm, name) > 0:
            raise ConfigError(f"vllm.{name}", "must be above 0", getattr(vllm, name))
    share = vllm.gpu_memory_utilization
    if share is not None and not 0 < share <= 1:
        raise ConfigError("vllm.gpu_memory_utilization", "must lie above 0 and up to 1", share)
    _one_of("vllm.rejection_sample_method", vllm.rejection_sample_method, _REJECTION)
    if vllm.distributed_executor_backend is not None:
        _one_of("vllm.distributed_executor_backend", vllm.distributed_executor_backend, _EXECUTORS)


def check_k_by_batch(method: MethodConfig, field: str, *, backend: str) -> None:
    """Check a number of drafted tokens by load.

    Raises:
        ConfigError: another backend than vLLM, a malformed entry, or a k above the method's own.
    """
    if method.k_by_batch is None:
        return
    name = f"{field}.k_by_batch"
    if backend != "vllm":
        raise ConfigError(name, "is for backend=vllm alone", method.k_by_batch, "Leave it out.")
    remedy = "Give ranges of running sequences and their k, such as [[1,4,5],[5,16,2]]."
    entries = method.k_by_batch if isinstance(method.k_by_batch, list | tuple) else []
    if not entries or not all(_is_entry(entry) for entry in entries):
        raise ConfigError(name, "must be a list of [from, to, k]", method.k_by_batch, remedy)
    if isinstance(method.k, list | tuple) or max(entry[2] for entry in entries) != method.k:
        raise ConfigError(f"{field}.k", "must be the largest k of k_by_batch", method.k, remedy)


def _is_entry(entry: object) -> bool:
    if not isinstance(entry, list | tuple) or len(entry) != 3:
        return False
    if not all(isinstance(number, int) and not isinstance(number, bool) for number in entry):
        return False
    first, last, k = entry
    return bool(1 <= first <= last and k >= 0)


def _one_of(field: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigError(field, "isn't known", value, suggest(value, known))
