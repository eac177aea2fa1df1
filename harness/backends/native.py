"""The engine in this package behind the backend interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version as package_version
from time import perf_counter
from typing import Any, ClassVar, NamedTuple

import psutil
import torch

from harness.backends.base import ColdStart, DecodingSettings, EngineSettings, ScoreRequest, SequenceRequest
from harness.backends.memory import ProcessMemory
from harness.backends.native_drafters import NativeDrafters, pace_rules, typical_acceptance
from harness.backends.placement import (
    available_cores,
    memory_errors,
    pick_device,
    pick_dtype,
)
from harness.backends.quality import UNQUANTIZED, quality_facts
from harness.engine.cache import KVCache
from harness.engine.calibrate import measure_step_costs
from harness.engine.drafters.base import Drafter
from harness.engine.linear import packs_bfloat16
from harness.engine.loop import Decoder
from harness.engine.model import Transformer
from harness.engine.pace import PacePlan
from harness.engine.quantized_linear import check_scheme
from harness.engine.sampling import SamplingParams
from harness.engine.scoring import score_tokens
from harness.engine.sequence import Request
from harness.engine.typical import TypicalAcceptance
from harness.engine.weights import load_transformer, runs_compiled
from harness.models.checkpoint import ResolvedModel
from harness.models.memory import MemoryLayout
from harness.records import Decoded, Scored, Variant


class NativeBackend:
    """Plain PyTorch decoding of batches of any size."""

    name: ClassVar[str] = "native"
    max_batch_size: ClassVar[int | None] = None
    is_simulated: ClassVar[bool] = False
    switches_variants: ClassVar[bool] = True

    @classmethod
    def version(cls) -> str:
        """The PyTorch release: the engine's own code is hashed apart."""
        return f"torch {package_version('torch')}"

    @classmethod
    def memory_layout(cls, settings: EngineSettings, variants: Sequence[Variant]) -> MemoryLayout:
        """Variants share a model's cache; laying the head out for a CPU copies it."""
        device = pick_device(settings.device)
        dtype = pick_dtype(settings.dtype, device)
        on_cpu = device.type == "cpu"
        compiled = runs_compiled(settings.target.path, dtype=dtype, device=device)
        return MemoryLayout(
            dtype=settings.dtype,
            kv_dtype="float32" if on_cpu and not compiled else settings.dtype,
            copies_tied_head=on_cpu and settings.dtype == "bfloat16" and packs_bfloat16(),
        )

    @classmethod
    def drafter_format(cls, settings: EngineSettings) -> str:
        """Few bits where the compiled kernels run, fewer where drafting weighs more: before a short step."""
        device = pick_device(settings.device)
        dtype = pick_dtype(settings.dtype, device)
        if not runs_compiled(settings.target.path, dtype=dtype, device=device):
            return "none"
        return "int4" if settings.target_quantization == "int4" else "int8"

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
        self._device = pick_device(settings.device)
        self._dtype = pick_dtype(settings.dtype, self._device)
        check_scheme(settings.target_quantization, self._device)
        check_scheme(settings.drafter_quantization, self._device)
        torch.set_num_threads(settings.num_threads or available_cores())
        start = perf_counter()
        with memory_errors("the target"):
            self._target = self._load(settings.target, settings.target_quantization)
        self.cold_start: list[ColdStart] = [ColdStart("load_target", perf_counter() - start)]
        self._quality = self._measured_quality()
        self._memory = ProcessMemory()
        self._drafters = NativeDrafters(
            self._target,
            settings.target,
            load=lambda drafter: self._load(drafter, settings.drafter_quantization),
            cache=self._cache,
            scheme=settings.drafter_quantization,
        )
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
            "kernels": self._target.kernels + (" with CUDA graphs" if self._target.has_graphs else ""),
            "target_weight_bytes": self._target.weight_bytes,
            "peak_memory_scope": "since the last trial" if self._on_cuda else self._memory.scope,
            "quality": self._quality,
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
        with memory_errors(f"the variant {variant.variant_id}"):
            is_new = drafter is not None and not self._drafters.knows(variant, drafter)
            start = perf_counter()
            proposer, applied = self._drafters.make(variant, drafter)
            if is_new:
                parts.append(ColdStart("load_drafter", perf_counter() - start, variant.variant_id))
            start = perf_counter()
            pace, costs = self._pace(variant, proposer)
            if costs:
                parts.append(ColdStart("measure_costs", perf_counter() - start, variant.variant_id))
            typical = typical_acceptance(variant)
            self._decoders[variant.variant_id] = self._decoder(proposer, pace, typical)
        verification = {} if typical is None else {"verification": "typical", **asdict(typical)}
        return {**applied, **costs, **verification}, parts

    def decode(
        self, variant: Variant, requests: Sequence[SequenceRequest], settings: DecodingSettings
    ) -> Sequence[Decoded]:
        """Decode the requests together."""
        with memory_errors(f"a batch of {len(requests)} in the variant {variant.variant_id}"):
            return self._decoders[variant.variant_id].decode_batch(
                [Request(r.prompt, r.max_new_tokens, r.seed) for r in requests],
                sampling=SamplingParams(settings.temperature, settings.top_k, settings.top_p),
                eos_ids=settings.eos_ids,
            )

    def score(self, request: ScoreRequest, settings: DecodingSettings) -> Scored:
        """Prompt and output in one forward over a cache of its own."""
        sampling = SamplingParams(settings.temperature, settings.top_k, settings.top_p)
        return score_tokens(
            self._target,
            request.prompt,
            request.tokens,
            alternatives=request.alternatives,
            sampling=sampling,
        )

    def peak_memory_bytes(self) -> int | None:
        """Highest use since the last call: of the device on CUDA, else the process's resident memory."""
        if not self._on_cuda:
            return self._memory.peak_bytes()
        peak = int(torch.cuda.max_memory_allocated(self._device))
        torch.cuda.reset_peak_memory_stats(self._device)
        return peak

    def close(self) -> None:
        """Drop models and caches."""
        self._decoders.clear()
        self._caches.clear()
        self._drafters.clear()
        del self._target

    @property
    def _on_cuda(self) -> bool:
        return self._device.type == "cuda"

    def _load(self, model: ResolvedModel, scheme: str) -> Transformer:
        return load_transformer(model.path, dtype=self._dtype, device=self._device, scheme=scheme)

    def _measured_quality(self) -> dict[str, Any]:
        """What quantising the target costs; nothing where it isn't quantised."""
        model, scheme = self._settings.target, self._settings.target_quantization
        if scheme == UNQUANTIZED:
            return {}
        start = perf_counter()
        with memory_errors("the unquantised target beside the quantised one"):
            facts = quality_facts(model, self._target, scheme, lambda: self._load(model, UNQUANTIZED))
        self.cold_start.append(ColdStart("measure_quality", perf_counter() - start))
        return facts

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

    def _decoder(
        self, drafter: Drafter | None, pace: PacePlan, typical: TypicalAcceptance | None = None
    ) -> Decoder:
        cache = self._cache(self._target)
        return Decoder(self._target, cache=cache, drafter=drafter, pace=pace, typical=typical)

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


def free_memory_bytes(device: torch.device) -> int:
    """Memory that is free now: of the device, or on a CPU of the machine."""
    if device.type == "cuda":
        # what PyTorch holds without using it is free to the next allocation
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + held
    return int(psutil.virtual_memory().available)
