"""The engine in this package behind the backend interface."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version as package_version
from time import perf_counter
from typing import Any, ClassVar, NamedTuple

import numpy as np
import psutil
import torch
from torch import Tensor

from harness.backends.base import ColdStart, DecodingSettings, EngineSettings, SequenceRequest
from harness.backends.memory import ProcessMemory
from harness.backends.quality import UNQUANTIZED, quality_facts
from harness.engine.cache import KVCache
from harness.engine.drafters.base import Drafter
from harness.engine.drafters.independent import IndependentDrafter
from harness.engine.drafters.ngram import NgramDrafter
from harness.engine.linear import Linear
from harness.engine.loop import Decoder
from harness.engine.model import Transformer
from harness.engine.quantized_linear import check_scheme
from harness.engine.sampling import SamplingParams
from harness.engine.sequence import Request
from harness.engine.weights import load_head, load_transformer
from harness.errors import OutOfMemoryError, UnsupportedError
from harness.models.checkpoint import ResolvedModel
from harness.records import Decoded, Variant

DRAFT_VOCAB_FILE = "draft_vocab.npy"


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
        check_scheme(settings.target_quantization, self._device)
        check_scheme(settings.drafter_quantization, self._device)
        torch.set_num_threads(settings.num_threads or available_cores())
        start = perf_counter()
        with _memory_errors("the target"):
            self._target = self._load(settings.target, settings.target_quantization)
        self.cold_start: list[ColdStart] = [ColdStart("load_target", perf_counter() - start)]
        self._quality = self._measured_quality()
        self._memory = ProcessMemory()
        self._draft_models: dict[str, Transformer] = {}
        self._draft_heads: dict[str, tuple[Linear, Tensor]] = {}
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
        with _memory_errors(f"the variant {variant.variant_id}"):
            if drafter is not None and drafter.revision not in self._draft_models:
                start = perf_counter()
                self._draft_models[drafter.revision] = self._load(
                    drafter, self._settings.drafter_quantization
                )
                parts.append(ColdStart("load_drafter", perf_counter() - start, variant.variant_id))
            proposer, applied = self._drafter(variant, drafter)
            self._decoders[variant.variant_id] = Decoder(
                self._target, cache=self._cache(self._target), drafter=proposer, k=variant.k
            )
        return applied, parts

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
        self._draft_models.clear()
        self._draft_heads.clear()
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
        with _memory_errors("the unquantised target beside the quantised one"):
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

    def _drafter(
        self, variant: Variant, drafter: ResolvedModel | None
    ) -> tuple[Drafter | None, dict[str, Any]]:
        if variant.method == "ngram":
            smallest, largest = int(variant.option("min_ngram")), int(variant.option("max_ngram"))
            return NgramDrafter(min_ngram=smallest, max_ngram=largest), {"draft_sampling": "one-hot"}
        if variant.method == "draft_model" and drafter is not None:
            return self._independent(variant, drafter)
        if variant.is_baseline:
            return None, {}
        raise UnsupportedError(f"the native backend doesn't run method.name={variant.method!r}.")

    def _draft_head(self, drafter: ResolvedModel) -> tuple[Linear | None, Tensor | None]:
        """Head over the drafter's reduced vocabulary, and the ids of its outputs, where it has one."""
        if drafter.revision not in self._draft_heads:
            file = drafter.path / DRAFT_VOCAB_FILE
            if not file.is_file():
                return None, None
            vocab = torch.from_numpy(np.load(file).astype(np.int64)).to(self._device)
            scheme = self._settings.drafter_quantization
            head = load_head(drafter.path, vocab, dtype=self._dtype, device=self._device, scheme=scheme)
            self._draft_heads[drafter.revision] = head, vocab
        return self._draft_heads[drafter.revision]

    def _independent(self, variant: Variant, drafter: ResolvedModel) -> tuple[Drafter, dict[str, Any]]:
        sampled = variant.option("draft_sampling") == "sampled"
        head, vocab = self._draft_head(drafter) if variant.option("draft_vocab") else (None, None)
        model = self._draft_models[drafter.revision]
        cache = self._cache(model)
        proposer = IndependentDrafter(model, cache=cache, head=head, vocab=vocab, sample=sampled)
        applied = {
            "draft_sampling": "sampled" if sampled else "greedy",
            "draft_vocab_size": model.architecture.vocab_size if vocab is None else len(vocab),
            "drafter_layers": model.architecture.num_layers,
            "drafter_weight_bytes": model.weight_bytes + (0 if head is None else head.num_bytes),
        }
        return proposer, applied


def available_cores() -> int:
    """Cores this process may run on, which a container or `taskset` may have narrowed."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def free_memory_bytes(device: torch.device) -> int:
    """Memory that is free now: of the device, or on a CPU of the machine."""
    if device.type == "cuda":
        # what PyTorch holds without using it is free to the next allocation
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + held
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
