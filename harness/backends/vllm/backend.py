"""vLLM behind the backend interface: the parent's side, which imports neither vLLM nor torch."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any, ClassVar

from harness.backends.base import ColdStart, DecodingSettings, EngineSettings, ScoreRequest, SequenceRequest
from harness.backends.reference import ReferenceScorer
from harness.backends.vllm import release
from harness.backends.vllm.arguments import EngineRequest, check_engine_args, differences, engine_request
from harness.backends.vllm.process import LOG_INTRODUCTION, EngineProcess
from harness.backends.vllm.sequences import decoded_sequences
from harness.config.schema import VllmConfig
from harness.errors import EngineError, MissingBackendError, OutOfMemoryError, UnsupportedError
from harness.models.checkpoint import ResolvedModel
from harness.records import Decoded, Scored, Variant

_CHILD = "harness.backends.vllm.child"
_MEMORY_WORDS = (
    "out of memory",
    "OutOfMemory",
    "vailable memory",  # as in "No available memory" and "Available memory on node 0 ... is less than"
    "KV cache is needed",
    "can't allocate",
)
# A path of this machine: the record names the model by its reference instead.
_NOT_STORED = ("draft_model",)


class VllmBackend:
    """vLLM's offline engine; the number of drafted tokens is fixed when it starts."""

    name: ClassVar[str] = "vllm"
    max_batch_size: ClassVar[int | None] = None
    is_simulated: ClassVar[bool] = False
    switches_variants: ClassVar[bool] = False

    @classmethod
    def version(cls) -> str:
        """Distribution and release.

        Raises:
            MissingBackendError: vLLM isn't installed; the message holds the install command.
        """
        name, version = release.installed()
        return f"{name} {version}"

    @classmethod
    def open(cls, settings: EngineSettings) -> VllmSession:
        """Check the settings; engines start when variants are prepared."""
        name, version = release.installed()
        warning = release.unknown_release(version)
        if warning:
            print(f"warning: {warning}", file=sys.stderr, flush=True)
        return VllmSession(replace(settings, device=_device(settings.device, name, version)))


class VllmSession:
    """At most one running engine, that of the variant prepared last."""

    def __init__(self, settings: EngineSettings) -> None:
        """Take the settings; `device` is `cpu` or `cuda`."""
        self._settings = settings
        self._options = settings.vllm or VllmConfig()
        check_engine_args(self._options.engine_args)
        self.cold_start: Sequence[ColdStart] = []
        self._process: EngineProcess | None = None
        self._request: EngineRequest | None = None
        self._applied: dict[str, Any] = {}
        self._peak_bytes: int | None = None
        self._scorer = ReferenceScorer(settings)

    def clock(self) -> float:
        """Real time."""
        return perf_counter()

    def facts(self) -> Mapping[str, Any]:
        """What every engine of the session has in common, as read back from the last one started."""
        shared = ("device", "dtype", "num_threads", "enforce_eager", "compilation_mode", "prefix_caching")
        known = {name: self._applied[name] for name in shared if name in self._applied}
        _, version = release.installed()
        return known | {"backend_release_tried": release.unknown_release(version) is None}

    def prepare(
        self, variant: Variant, drafter: ResolvedModel | None, settings: DecodingSettings
    ) -> tuple[Mapping[str, Any], Sequence[ColdStart]]:
        """Start the variant's engine, the former one ended, unless the one that runs is the same.

        Raises:
            UnsupportedError: vLLM refuses the settings, or runs with others than asked for.
            OutOfMemoryError: the engine doesn't fit.
            EngineError: its process ended or hangs; the message has its last log lines.
        """
        request = engine_request(variant, drafter, settings=self._settings, decoding=settings)
        parts: list[ColdStart] = []
        if self._process is None or not self._process.is_running or request != self._request:
            self.close()
            seconds = self._start(request)
            parts = [ColdStart(part, spent, variant.variant_id) for part, spent in seconds.items()]
        return {name: value for name, value in self._applied.items() if name not in _NOT_STORED}, parts

    def decode(
        self, variant: Variant, requests: Sequence[SequenceRequest], settings: DecodingSettings
    ) -> Sequence[Decoded]:
        """Decode one batch on the engine prepared last."""
        if self._process is None:
            raise EngineError("no engine runs: an earlier error ended it.")
        answer = self._process.ask(
            {"do": "decode", **_batch(requests, settings)},
            timeout_s=self._options.decode_timeout_s,
            doing=f"decoding with {variant.variant_id}",
        )
        self._peak_bytes = answer["peak_bytes"]
        return decoded_sequences(answer, eos_ids=settings.eos_ids)

    def score(self, request: ScoreRequest, settings: DecodingSettings) -> Scored:
        """By the native engine's forward, as vLLM tells no logits of finished outputs.

        The engine that runs is ended first.
        """
        self.close()
        return self._scorer.score(request, settings)

    def peak_memory_bytes(self) -> int | None:
        """Of the device, or of the engine's process on a CPU, weights and reserved cache included."""
        return self._peak_bytes

    def close(self) -> None:
        """End the engine that runs, if any."""
        if self._process is not None:
            self._process.close()
        self._process, self._request, self._applied, self._peak_bytes = None, None, {}, None

    def _start(self, request: EngineRequest) -> Mapping[str, float]:
        process = EngineProcess(_CHILD, environment=request.environment)
        try:
            answer = process.ask(
                {"do": "start", "arguments": dict(request.arguments)},
                timeout_s=self._options.start_timeout_s,
                doing="starting",
            )
        except EngineError as error:
            process.kill()
            raise start_error(error) from error
        except BaseException:
            process.kill()
            raise
        differing = differences(request.expected, answer["applied"])
        if differing:
            process.close()
            raise UnsupportedError(f"vLLM doesn't run as asked: {'; '.join(differing)}.")
        self._process, self._request, self._applied = process, request, answer["applied"]
        seconds: Mapping[str, float] = answer["seconds"]
        return seconds


def _device(name: str, distribution: str, version: str) -> str:
    """What an installed vLLM runs on: it is built for one kind of device."""
    built_for = "cpu" if "cpu" in distribution or "cpu" in version else "cuda"
    if name not in ("auto", built_for):
        raise UnsupportedError(
            f"backend.device={name}: the installed {distribution} {version} is built for {built_for}. "
            "Use auto."
        )
    return built_for


def _batch(requests: Sequence[SequenceRequest], settings: DecodingSettings) -> dict[str, Any]:
    return {
        "sequences": [
            {"prompt": list(one.prompt), "max_new_tokens": one.max_new_tokens, "seed": one.seed}
            for one in requests
        ],
        "sampling": {
            "temperature": settings.temperature,
            "top_k": settings.top_k,
            "top_p": settings.top_p,
            "eos_ids": sorted(settings.eos_ids),
        },
    }


def start_error(error: EngineError) -> Exception:
    """Why an engine didn't start, as the error of its cause."""
    text = str(error)
    cause = text.partition(LOG_INTRODUCTION)[0]
    if any(name in cause for name in ("ImportError", "ModuleNotFoundError", "torchvision::")):
        if release.breaks_the_import(cause):
            return MissingBackendError(f"backend.name=vllm: {release.TORCHVISION_REMEDY}\n{text}")
        return MissingBackendError(f"backend.name=vllm: vLLM can't be imported. {text}")
    if any(word in cause for word in _MEMORY_WORDS):
        return OutOfMemoryError(
            "the engine doesn't fit the free memory. Lower vllm.gpu_memory_utilization or vllm.kv_cache_gib, "
            f"shorten the context, or take a smaller drafter. {text}"
        )
    return error
