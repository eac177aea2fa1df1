"""A backend that fails, and keeps time, exactly as it is told; it runs no model."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, ClassVar

import pytest

from harness import registry
from harness.backends.base import ColdStart, DecodingSettings, EngineSettings, SequenceRequest
from harness.models.checkpoint import ResolvedModel
from harness.records import Decoded, FinishReason, Steps, Variant

TOKEN_S = 0.01


@dataclass
class Script:
    """What goes wrong, and what happened.

    Attributes:
        open_error: raised when the session is opened.
        prepare_errors: raised when a variant is prepared, by variant_id.
        decode_errors: raised once, in a variant's n-th decode call (0-based, warmup included), by
            (variant_id, n).
        answer: replaces what a decode call returns, by variant_id.
        seconds_per_token: of decoding, by variant_id; `TOKEN_S` where not given.
        opened: sessions opened so far.
        closed: sessions closed so far.
        prepared: variants prepared, in order.
        decoded: (variant_id, number of prompts, seeds, whether gc ran) of each decode call, in order.
    """

    open_error: Exception | None = None
    prepare_errors: dict[str, Exception] = field(default_factory=dict)
    decode_errors: dict[tuple[str, int], BaseException] = field(default_factory=dict)
    answer: dict[str, Callable[[Sequence[SequenceRequest]], list[Decoded]]] = field(default_factory=dict)
    seconds_per_token: dict[str, float] = field(default_factory=dict)
    opened: int = 0
    closed: int = 0
    prepared: list[str] = field(default_factory=list)
    decoded: list[tuple[str, int, tuple[int, ...], bool]] = field(default_factory=list)

    def calls(self, variant_id: str) -> int:
        """Decode calls of one variant so far."""
        return sum(name == variant_id for name, *_ in self.decoded)


class ScriptedBackend:
    name: ClassVar[str] = "scripted"
    max_batch_size: ClassVar[int | None] = 2
    is_simulated: ClassVar[bool] = False
    switches_variants: ClassVar[bool] = True
    script: ClassVar[Script] = Script()
    release: ClassVar[str] = "1"

    @classmethod
    def version(cls) -> str:
        return f"scripted {cls.release}"

    @classmethod
    def open(cls, settings: EngineSettings) -> ScriptedSession:
        if cls.script.open_error is not None:
            raise cls.script.open_error
        cls.script.opened += 1
        return ScriptedSession(cls.script)


class ScriptedSession:
    def __init__(self, script: Script) -> None:
        self._script = script
        self.cold_start: Sequence[ColdStart] = (ColdStart("load_target", 1.5),)

    def clock(self) -> float:
        return perf_counter()

    def facts(self) -> Mapping[str, Any]:
        return {"device": "imaginary", "num_threads": 7}

    def prepare(
        self, variant: Variant, drafter: ResolvedModel | None, settings: DecodingSettings
    ) -> tuple[Mapping[str, Any], Sequence[ColdStart]]:
        if variant.variant_id in self._script.prepare_errors:
            raise self._script.prepare_errors[variant.variant_id]
        self._script.prepared.append(variant.variant_id)
        parts = [] if drafter is None else [ColdStart("load_drafter", 0.5, variant.variant_id)]
        return {"k": variant.k}, parts

    def decode(
        self, variant: Variant, requests: Sequence[SequenceRequest], settings: DecodingSettings
    ) -> Sequence[Decoded]:
        name = variant.variant_id
        error = self._script.decode_errors.pop((name, self._script.calls(name)), None)
        if error is not None:
            raise error
        seeds = tuple(request.seed for request in requests)
        self._script.decoded.append((name, len(requests), seeds, gc.isenabled()))
        if name in self._script.answer:
            return self._script.answer[name](requests)
        seconds = self._script.seconds_per_token.get(name, TOKEN_S)
        return [decoded(request.max_new_tokens, k=variant.k, token_s=seconds) for request in requests]

    def peak_memory_bytes(self) -> int | None:
        return 123

    def close(self) -> None:
        self._script.closed += 1


class OneVariantBackend(ScriptedBackend):
    """Each variant needs an engine of its own."""

    name: ClassVar[str] = "one_variant"
    switches_variants: ClassVar[bool] = False


def install(monkeypatch: pytest.MonkeyPatch) -> Script:
    """Make `backend.name=scripted` and `backend.name=one_variant` known, with a fresh script."""
    script = Script()
    monkeypatch.setattr(ScriptedBackend, "script", script)
    monkeypatch.setitem(registry._BACKENDS, "scripted", f"{__name__}:{ScriptedBackend.__name__}")
    monkeypatch.setitem(registry._BACKENDS, "one_variant", f"{__name__}:{OneVariantBackend.__name__}")
    return script


def decoded(num_tokens: int, *, k: int, token_s: float) -> Decoded:
    """A sequence in which every draft is rejected."""
    steps = Steps()
    for left in range(num_tokens - 1, 0, -1):
        steps.add(proposed=min(k, left - 1), accepted=0, emitted=1, draft_s=token_s / 4, verify_s=token_s / 2)
    return Decoded(
        tokens=list(range(num_tokens)),
        finish_reason=FinishReason.LENGTH,
        ttft_s=token_s,
        decode_s=token_s * (num_tokens - 1),
        total_s=token_s * num_tokens,
        num_target_forwards=num_tokens,
        steps=steps,
    )
