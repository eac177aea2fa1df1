"""Transformers behind the backend interface: plain, assisted and prompt-lookup `generate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version as package_version
from time import perf_counter
from typing import Any, ClassVar

import torch
from transformers import AutoModelForCausalLM, GenerationConfig

from harness.backends.base import (
    ColdStart,
    DecodingSettings,
    EngineSettings,
    ScoreRequest,
    SequenceRequest,
)
from harness.backends.placement import (
    available_cores,
    device_peak_bytes,
    memory_errors,
    pick_device,
    pick_dtype,
)
from harness.backends.reference import ReferenceScorer
from harness.backends.transformers.recorder import StepRecorder
from harness.errors import UnsupportedError
from harness.models.checkpoint import ResolvedModel
from harness.records import Decoded, FinishReason, Scored, Variant

_GENERATOR_HOOK = "_get_candidate_generator"


class TransformersBackend:
    """`generate` of Hugging Face Transformers; its assisted generation takes one sequence at a time."""

    name: ClassVar[str] = "transformers"
    max_batch_size: ClassVar[int | None] = 1
    is_simulated: ClassVar[bool] = False
    switches_variants: ClassVar[bool] = True

    @classmethod
    def version(cls) -> str:
        """Transformers' release and PyTorch's."""
        return f"transformers {package_version('transformers')}, torch {package_version('torch')}"

    @classmethod
    def open(cls, settings: EngineSettings) -> TransformersSession:
        """Load the target; see `Backend.open`."""
        return TransformersSession(settings)


class TransformersSession:
    """A loaded target and the assistants of the variants prepared so far."""

    def __init__(self, settings: EngineSettings) -> None:
        """Set the threads, pick the device and load the target."""
        self._device = pick_device(settings.device)
        self._dtype = pick_dtype(settings.dtype, self._device)
        torch.set_num_threads(settings.num_threads or available_cores())
        start = perf_counter()
        self._target = self._load(settings.target)
        self.cold_start: list[ColdStart] = [ColdStart("load_target", perf_counter() - start)]
        if not hasattr(self._target, _GENERATOR_HOOK):
            raise UnsupportedError(
                f"backend.name=transformers: release {package_version('transformers')} has no "
                f"{_GENERATOR_HOOK}, where acceptance is read. Install transformers 5.x, from 5.19 on."
            )
        self._scorer = ReferenceScorer(settings)
        self._assistants: dict[str, Any] = {}
        self._drafters: dict[str, Any] = {}

    def clock(self) -> float:
        """Real time."""
        return perf_counter()

    def facts(self) -> Mapping[str, Any]:
        """What the engine runs on."""
        return {
            "device": str(self._device),
            "device_name": torch.cuda.get_device_name(self._device) if self._device.type == "cuda" else "cpu",
            "dtype": str(self._target.dtype).removeprefix("torch."),
            "num_threads": torch.get_num_threads(),
            "attention": str(self._target.config._attn_implementation),
        }

    def prepare(
        self, variant: Variant, drafter: ResolvedModel | None, settings: DecodingSettings
    ) -> tuple[Mapping[str, Any], Sequence[ColdStart]]:
        """Load the assistant once per session; what a call needs besides is made in `decode`."""
        if variant.is_baseline:
            return {}, []
        if variant.method == "ngram":
            return self._prepare_lookup(variant)
        if variant.method != "draft_model" or drafter is None:
            raise UnsupportedError(f"the transformers backend doesn't run method.name={variant.method!r}.")
        if settings.temperature > 0 and variant.option("draft_sampling") == "greedy":
            raise UnsupportedError(
                "method.draft_sampling=greedy: Transformers draws its drafts at temperatures above 0. "
                "Use sampled."
            )
        parts = []
        if drafter.revision not in self._assistants:
            start = perf_counter()
            self._assistants[drafter.revision] = self._load(drafter)
            parts.append(ColdStart("load_drafter", perf_counter() - start, variant.variant_id))
        self._drafters[variant.variant_id] = self._assistants[drafter.revision]
        applied = {
            "draft_sampling": "sampled" if settings.temperature > 0 else "greedy",
            "draft_vocab_size": self._drafters[variant.variant_id].config.vocab_size,
            **_assistant_settings(variant.k),
        }
        return applied, parts

    def decode(
        self, variant: Variant, requests: Sequence[SequenceRequest], settings: DecodingSettings
    ) -> Sequence[Decoded]:
        """Decode the requests one after another."""
        return [self._decode(variant, request, settings) for request in requests]

    def score(self, request: ScoreRequest, settings: DecodingSettings) -> Scored:
        """By the native engine's forward."""
        return self._scorer.score(request, settings)

    def peak_memory_bytes(self) -> int | None:
        """Device memory on CUDA, else the process's highest resident memory."""
        return device_peak_bytes(self._device)

    def close(self) -> None:
        """Drop the models."""
        self._assistants.clear()
        self._drafters.clear()
        del self._target

    def _load(self, model: ResolvedModel) -> Any:
        with memory_errors(model.ref):
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                model.path, dtype=self._dtype, trust_remote_code=False
            )
            loaded.to(self._device)
        # what a checkpoint recommends (a temperature, a penalty) would fill in whatever a call leaves open
        loaded.generation_config = _configuration()
        return loaded.eval()

    def _prepare_lookup(self, variant: Variant) -> tuple[Mapping[str, Any], Sequence[ColdStart]]:
        if variant.option("min_ngram") != 1:
            raise UnsupportedError(
                f"method.min_ngram: Transformers' prompt lookup goes down to matches of 1 token, got "
                f"{variant.option('min_ngram')}. Set method.min_ngram=1."
            )
        return {"draft_sampling": "one-hot", "max_matching_ngram_size": variant.option("max_ngram")}, []

    def _decode(self, variant: Variant, request: SequenceRequest, settings: DecodingSettings) -> Decoded:
        prompt = torch.tensor([list(request.prompt)], device=self._device)
        config = _generation_config(variant, request, settings)
        drafter = self._drafters.get(variant.variant_id)
        options: dict[str, Any] = {} if drafter is None else {"assistant_model": drafter}
        if drafter is not None:
            drafter.generation_config = _configuration(**_assistant_settings(variant.k))
        torch.manual_seed(request.seed)
        start = self._now()
        recorder = StepRecorder(self._now)
        self._watch_with(recorder)
        output = self._target.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            generation_config=config,
            streamer=recorder,
            **options,
        )
        return _decoded(output[0, prompt.shape[1] :].tolist(), recorder, start=start, settings=settings)

    def _watch_with(self, recorder: StepRecorder) -> None:
        make = getattr(type(self._target), _GENERATOR_HOOK)
        setattr(
            self._target,
            _GENERATOR_HOOK,
            lambda *args, **options: recorder.watch(make(self._target, *args, **options)),
        )

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return perf_counter()


def _configuration(**options: Any) -> GenerationConfig:
    return GenerationConfig(**options)  # type: ignore[no-untyped-call]


def _assistant_settings(k: int) -> dict[str, Any]:
    """Exactly k drafts a step; Transformers reads these from the assistant's own configuration."""
    return {
        "num_assistant_tokens": k,
        "num_assistant_tokens_schedule": "constant",
        "assistant_confidence_threshold": 0.0,
    }


def _generation_config(
    variant: Variant, request: SequenceRequest, settings: DecodingSettings
) -> GenerationConfig:
    eos_ids = sorted(settings.eos_ids)
    options: dict[str, Any] = {
        "max_new_tokens": request.max_new_tokens,
        "do_sample": settings.temperature > 0,
        "eos_token_id": eos_ids or None,
        "pad_token_id": eos_ids[0] if eos_ids else 0,
    }
    if settings.temperature > 0:
        options |= {"temperature": settings.temperature, "top_k": settings.top_k, "top_p": settings.top_p}
    if variant.method == "ngram":
        options |= {
            "prompt_lookup_num_tokens": variant.k,
            "max_matching_ngram_size": variant.option("max_ngram"),
        }
    return _configuration(**options)


def _decoded(
    tokens: list[int], recorder: StepRecorder, *, start: float, settings: DecodingSettings
) -> Decoded:
    first, last = recorder.arrivals_s[0], recorder.arrivals_s[-1]
    return Decoded(
        tokens=tokens,
        finish_reason=FinishReason.EOS if tokens[-1] in settings.eos_ids else FinishReason.LENGTH,
        ttft_s=first - start,
        decode_s=last - first,
        total_s=last - start,
        num_target_forwards=len(recorder.arrivals_s),
        steps=recorder.steps,
        last_step_truncated=recorder.last_step_truncated,
    )
