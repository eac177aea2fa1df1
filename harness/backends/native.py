"""The engine in this package behind the backend interface."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version as package_version
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from harness.backends.base import ColdStart, DecodingSettings, EngineSettings, SequenceRequest
from harness.engine.drafters.base import Drafter
from harness.engine.drafters.independent import IndependentDrafter
from harness.engine.drafters.ngram import NgramDrafter
from harness.engine.drafters.synthetic import SyntheticAcceptance
from harness.engine.linear import Linear
from harness.engine.loop import Decoder
from harness.engine.model import Transformer
from harness.engine.sampling import SamplingParams
from harness.engine.weights import load_head, load_transformer
from harness.errors import OutOfMemoryError, UnsupportedError
from harness.models.checkpoint import ResolvedModel
from harness.records import Decoded, Variant

DRAFT_VOCAB_FILE = "draft_vocab.npy"


class NativeBackend:
    """Plain PyTorch decoding, one sequence at a time."""

    name: ClassVar[str] = "native"
    max_batch_size: ClassVar[int | None] = 1
    is_simulated: ClassVar[bool] = False

    @classmethod
    def version(cls) -> str:
        """The PyTorch release: the engine's own code is hashed apart."""
        return f"torch {package_version('torch')}"

    @classmethod
    def open(cls, settings: EngineSettings) -> NativeSession:
        """Load the target; see `Backend.open`."""
        return NativeSession(settings)


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
        self._draft_models: dict[str, Transformer] = {}
        self._draft_heads: dict[str, tuple[Linear, Tensor]] = {}
        self._decoders: dict[str, Decoder] = {}
        self._context = 0

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
        """Load the drafter once per session and allocate the variant's caches."""
        if settings.context_tokens > self._context:
            self._decoders.clear()
            self._context = settings.context_tokens
        parts: list[ColdStart] = []
        with _memory_errors(f"the variant {variant.variant_id}"):
            if drafter is not None and drafter.revision not in self._draft_models:
                start = perf_counter()
                self._draft_models[drafter.revision] = self._load(drafter)
                parts.append(ColdStart("load_drafter", perf_counter() - start, variant.variant_id))
            proposer, applied = self._drafter(variant, drafter)
            self._decoders[variant.variant_id] = Decoder(
                self._target, capacity=self._context, drafter=proposer, k=variant.k
            )
        return applied, parts

    def decode(
        self, variant: Variant, requests: Sequence[SequenceRequest], settings: DecodingSettings
    ) -> Sequence[Decoded]:
        """Decode the requests one after another."""
        decoder = self._decoders[variant.variant_id]
        sampling = SamplingParams(settings.temperature, settings.top_k, settings.top_p)
        return [
            decoder.decode(
                request.prompt,
                sampling=sampling,
                max_new_tokens=request.max_new_tokens,
                eos_ids=settings.eos_ids,
                seed=request.seed,
            )
            for request in requests
        ]

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
        self._draft_models.clear()
        self._draft_heads.clear()
        del self._target

    def _load(self, model: ResolvedModel) -> Transformer:
        return load_transformer(model.path, dtype=self._dtype, device=self._device)

    def _drafter(
        self, variant: Variant, drafter: ResolvedModel | None
    ) -> tuple[Drafter | None, dict[str, Any]]:
        if variant.method == "ngram":
            smallest, largest = int(variant.option("min_ngram")), int(variant.option("max_ngram"))
            return NgramDrafter(min_ngram=smallest, max_ngram=largest), {"draft_sampling": "one-hot"}
        if variant.method == "draft_model" and drafter is not None:
            return self._independent(variant, drafter)
        if variant.method == "synthetic" and drafter is not None:
            proposer, applied = self._independent(variant, drafter)
            acceptance = variant.option("acceptance")
            return SyntheticAcceptance(proposer, acceptance), applied | {
                "synthetic_acceptance": list(acceptance)
            }
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
            head = load_head(drafter.path, vocab, dtype=self._dtype, device=self._device)
            self._draft_heads[drafter.revision] = head, vocab
        return self._draft_heads[drafter.revision]

    def _independent(self, variant: Variant, drafter: ResolvedModel) -> tuple[Drafter, dict[str, Any]]:
        sampled = variant.option("draft_sampling") == "sampled"
        head, vocab = self._draft_head(drafter) if variant.option("draft_vocab") else (None, None)
        model = self._draft_models[drafter.revision]
        proposer = IndependentDrafter(model, capacity=self._context, head=head, vocab=vocab, sample=sampled)
        applied = {
            "draft_sampling": "sampled" if sampled else "greedy",
            "draft_vocab_size": model.architecture.vocab_size if vocab is None else len(vocab),
            "drafter_layers": model.architecture.num_layers,
        }
        return proposer, applied


def available_cores() -> int:
    """Cores this process may run on, which a container or `taskset` may have narrowed."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
            f"{what} doesn't fit the free memory ({error}). Use a smaller model or a shorter context."
        ) from error
