"""The engine in this package behind the backend interface."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version as package_version
from time import perf_counter
from typing import Any, ClassVar, NamedTuple

import psutil
import torch

from harness.backends.base import ColdStart, DecodingSettings, EngineSettings, SequenceRequest
from harness.backends.native_drafters import NativeDrafters, pace_rules
from harness.engine.cache import KVCache
from harness.engine.calibrate import measure_step_costs
from harness.engine.drafters.base import Drafter
from harness.engine.loop import Decoder
from harness.engine.model import Transformer
from harness.engine.pace import PacePlan
from harness.engine.sampling import SamplingParams
from harness.engine.sequence import Request
from harness.engine.weights import load_transformer
from harness.errors import OutOfMemoryError, UnsupportedError
from harness.models.checkpoint import ResolvedModel
from harness.records import Decoded, Variant


class NativeBackend:
    """Plain PyTorch decoding of batches of any size."""

    name: ClassVar[str] = "native"
    max_batch_size: ClassVar[int | None] = None
    is_simulated: ClassVar[bool] = False

    @classmethod
    def version(cls) -> str:
        """The PyTorch release: the engine's own code is hashed apart."""
        return f"torch {package_version('torch')}"

    @classmethod
    def open(cls, settings: EngineSettings) -> NativeSession:
        """Load the target; see `Backend.open`."""
        return NativeSession(settings)


class _CacheShape(NamedTuple):
    batch: int
    capacity: int


class NativeSession:
    """A loaded target, and the drafters and decoders of the variants prepared so far."""

    def __init__(self, settings: EngineSettings) -> None:
        """Set the threads, pick the device and load the target."""
        self._settings = settings
        self._device = _device(settings.device)
        self._dtype = _dtype(settings.dtype, self._device)
        torch.set_num_threads(settings.num_threads or available_cores())
        start = perf_counter()
        with _memory_errors("the target"):
            self._target = self._load(settings.target)
        self.cold_start: list[ColdStart] = [ColdStart("load_target", perf_counter() - start)]
        self._drafters = NativeDrafters(self._target, settings.target, load=self._load, cache=self._cache)
        self._decoders: dict[str, Decoder] = {}
        self._caches: dict[Transformer, KVCache] = {}
        self._shape = _CacheShape(0, 0)

    def clock(self) -> float:
        """Real time."""
        return perf_counter()

    def facts(self) -> Mapping[str, Any]:
        """What the engine runs on."""
        return {
            "device": str(self._device),
            "device_name": torch.cuda.get_device_name(self._device) if self._device.type == "cuda" else "cpu",
            "dtype": str(self._dtype).removeprefix("torch."),
            "kv_cache_dtype": str(self._target.cache_dtype).removeprefix("torch."),
            "num_threads": torch.get_num_threads(),
        }

    def prepare(
        self, variant: Variant, drafter: ResolvedModel | None, settings: DecodingSettings
    ) -> tuple[Mapping[str, Any], Sequence[ColdStart]]:
        """Load the drafter once per session, and allocate caches that the cell's variants share."""
        shape = _CacheShape(settings.batch_size, settings.context_tokens)
        if shape != self._shape:
            self._decoders.clear()
            self._caches.clear()
            self._shape = shape
        parts: list[ColdStart] = []
        with _memory_errors(f"the variant {variant.variant_id}"):
            is_new = drafter is not None and not self._drafters.knows(variant, drafter)
            start = perf_counter()
            proposer, applied = self._drafters.make(variant, drafter)
            if is_new:
                parts.append(ColdStart("load_drafter", perf_counter() - start, variant.variant_id))
            start = perf_counter()
            pace, costs = self._pace(variant, proposer)
            if costs:
                parts.append(ColdStart("measure_costs", perf_counter() - start, variant.variant_id))
            self._decoders[variant.variant_id] = self._decoder(proposer, pace)
        return {**applied, **costs}, parts

    def decode(
        self, variant: Variant, requests: Sequence[SequenceRequest], settings: DecodingSettings
    ) -> Sequence[Decoded]:
        """Decode the requests together."""
        with _memory_errors(f"a batch of {len(requests)} in the variant {variant.variant_id}"):
            return self._decoders[variant.variant_id].decode_batch(
                [Request(r.prompt, r.max_new_tokens, r.seed) for r in requests],
                sampling=SamplingParams(settings.temperature, settings.top_k, settings.top_p),
                eos_ids=settings.eos_ids,
            )

    def peak_memory_bytes(self) -> int | None:
        """Device memory on CUDA, else the process's highest resident memory."""
        if self._device.type == "cuda":
            return int(torch.cuda.max_memory_allocated(self._device))
        # kilobytes on Linux, bytes on macOS
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

    def close(self) -> None:
        """Drop models and caches."""
        self._decoders.clear()
        self._caches.clear()
        self._drafters.clear()
        del self._target

    def _load(self, model: ResolvedModel) -> Transformer:
        return load_transformer(model.path, dtype=self._dtype, device=self._device)

    def _cache(self, model: Transformer) -> KVCache:
        """The cache of a model: one for all variants, as only one decodes at a time."""
        if model not in self._caches:
            needed, free = model.cache_bytes(**self._shape._asdict()), free_memory_bytes(self._device)
            if needed > free:
                # a CPU hands out more memory than it has, and kills who uses it
                raise MemoryError(
                    f"keys and values of {self._shape.batch} sequences of {self._shape.capacity} tokens take "
                    f"{needed / 2**30:.2f} GiB of {free / 2**30:.2f} GiB"
                )
            self._caches[model] = model.new_cache(**self._shape._asdict())
        return self._caches[model]

    def _decoder(self, drafter: Drafter | None, pace: PacePlan) -> Decoder:
        return Decoder(self._target, cache=self._cache(self._target), drafter=drafter, pace=pace)

    def _pace(self, variant: Variant, drafter: Drafter | None) -> tuple[PacePlan, dict[str, Any]]:
        """How a variant paces its steps, and the costs measured for it where it adapts."""
        fixed = PacePlan(variant.k, rules=pace_rules(variant))
        if not variant.option("adaptive"):
            return fixed, {}
        costs = measure_step_costs(
            lambda pace: self._decoder(drafter, pace),
            k=variant.k,
            batch=self._shape.batch,
            capacity=self._shape.capacity,
        )
        measured = {"measured_draft_s": list(costs.draft_s), "measured_verify_s": list(costs.verify_s)}
        return replace(fixed, costs=costs), measured


def available_cores() -> int:
    """Cores this process may run on, which a container or `taskset` may have narrowed."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def free_memory_bytes(device: torch.device) -> int:
    """Memory that is free now: of the device, or on a CPU of the machine."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)


def _device(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise UnsupportedError(
            "backend.device=cuda was asked for, but PyTorch sees no CUDA device. Use cpu or auto."
        )
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def _dtype(name: str, device: torch.device) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, name)
    if dtype == torch.float16 and device.type == "cpu":
        raise UnsupportedError("backend.dtype=float16 is for GPUs; on a CPU use bfloat16 or float32.")
    return dtype


@contextmanager
def _memory_errors(what: str) -> Any:
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        # PyTorch's CPU allocator raises a plain RuntimeError
        if type(error) is RuntimeError and "can't allocate memory" not in str(error):
            raise
        raise OutOfMemoryError(
            f"{what} doesn't fit the free memory ({error}). Use a smaller model, a smaller batch_size or a "
            "shorter context."
        ) from error
