"""What a cell's models will need in memory, from its plan alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.backends.base import Backend, EngineSettings, LaidOut
from harness.models.checkpoint import ResolvedModel
from harness.models.free_memory import free_bytes
from harness.models.memory import Load, MemoryEstimate, MemoryLayout, estimate_memory
from harness.records import Variant


def cell_memory(
    backend: type[Backend],
    engine: EngineSettings,
    variants: Sequence[Variant],
    drafters: Mapping[str, ResolvedModel],
    load: Load,
) -> MemoryEstimate | None:
    """Estimate before anything is loaded, against the memory that is free now.

    Returns:
        None for a simulated backend, which loads nothing.
    """
    if backend.is_simulated:
        return None
    # an engine that doesn't say is taken to hold one cache a model, in the dtype of its weights
    layout = (
        backend.memory_layout(engine, variants)
        if isinstance(backend, LaidOut)
        else MemoryLayout(engine.dtype, engine.dtype)
    )
    free, device = free_bytes(engine.device)
    return estimate_memory(
        engine.target,
        tuple(drafters.values()),
        layout=layout,
        load=load,
        quantization={"target": engine.target_quantization, "drafter": engine.drafter_quantization},
        free_bytes=free,
        device=device,
        remedies=_remedies(backend.name, has_drafter=bool(drafters), batch_size=load.batch_size),
    )


def _remedies(backend_name: str, *, has_drafter: bool, batch_size: int) -> list[str]:
    found = ["lower gpu_memory_utilization"] if backend_name == "vllm" else []
    found.append("a shorter context (workload.max_output_tokens, shorter prompts)")
    if has_drafter:
        found += ["a smaller drafter (pair.drafter)", "a quantised drafter (quantization.drafter)"]
    if batch_size > 1:
        found.append(f"a batch smaller than {batch_size} (batch_size)")
    return [*found, "a quantised or smaller target"]
