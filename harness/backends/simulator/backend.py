"""The simulator behind the backend interface: a virtual clock instead of an engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from hashlib import blake2b
from random import Random
from typing import Any, ClassVar

from harness.backends.base import ColdStart, DecodingSettings, EngineSettings, ScoreRequest, SequenceRequest
from harness.backends.simulator.acceptance import position_alphas
from harness.backends.simulator.costs import Costs
from harness.backends.simulator.sequence import SimulatedSequence, written
from harness.config.simulated import DraftingConfig, SimulatorConfig
from harness.errors import OutOfMemoryError, UnsupportedError
from harness.models.checkpoint import ResolvedModel
from harness.records import Decoded, Scored, Variant

_NOTHING_DRAFTED = DraftingConfig(cost=0.0, alpha=0.0)


class SimulatorBackend:
    """A seeded model of costs and acceptance: no model, no device, any batch."""

    name: ClassVar[str] = "simulator"
    max_batch_size: ClassVar[int | None] = None
    is_simulated: ClassVar[bool] = True
    switches_variants: ClassVar[bool] = True

    @classmethod
    def version(cls) -> str:
        """Of the model; the code is hashed apart."""
        return "simulator 1"

    @classmethod
    def open(cls, settings: EngineSettings) -> SimulatorSession:
        """Take over the settings; see `Backend.open`."""
        if settings.simulator is None:
            raise UnsupportedError("backend.name=simulator needs simulator settings. Use backend=simulator.")
        return SimulatorSession(settings.simulator)


class SimulatorSession:
    """A virtual clock and the variants prepared so far."""

    def __init__(self, settings: SimulatorConfig) -> None:
        """Start the clock; loading the target takes simulated time, or fails on demand."""
        self._settings = settings
        self._now_s = settings.load_s
        self._num_calls: dict[str, int] = {}
        self._read: set[str] = set()
        self._decoded: set[tuple[str, str]] = set()
        self._fail_on_demand(None, None)
        self.cold_start: list[ColdStart] = [ColdStart("load_target", settings.load_s)]

    def clock(self) -> float:
        """Simulated time: it passes inside `decode` alone."""
        return self._now_s

    def facts(self) -> Mapping[str, Any]:
        """That nothing ran, and what was simulated."""
        return {"device": "no device", "dtype": "no weights", "simulator": asdict(self._settings)}

    def prepare(
        self, variant: Variant, drafter: ResolvedModel | None, settings: DecodingSettings
    ) -> tuple[Mapping[str, Any], Sequence[ColdStart]]:
        """Note the variant; its calls are counted from here."""
        drafting = self._drafting(variant)
        self._num_calls[variant.variant_id] = 0
        self._fail_on_demand(variant.variant_id, None)
        return {} if variant.is_baseline else asdict(drafting), []

    def decode(
        self, variant: Variant, requests: Sequence[SequenceRequest], settings: DecodingSettings
    ) -> Sequence[Decoded]:
        """Simulate one batch; its sequences wait for each other in every step."""
        call = self._num_calls[variant.variant_id]
        self._num_calls[variant.variant_id] += 1
        self._fail_on_demand(variant.variant_id, call)
        drafting = self._drafting(variant)
        sequences = [self._sequence(variant, drafting, request, settings) for request in requests]
        costs = Costs(
            self._settings, draft_cost=drafting.cost, seed=f"{requests[0].seed} costs", num_calls_before=call
        )
        ttft_s = costs.prefill_s(sum(map(self._tokens_to_read, requests)), now_s=self._now_s)
        ttft_s += 0 if call else self._settings.first_call_s
        self._now_s += ttft_s
        while active := [sequence for sequence in sequences if not sequence.has_ended]:
            proposed = [sequence.propose() for sequence in active]
            seconds = costs.step(proposed, now_s=self._now_s)
            self._now_s += seconds.draft_s + seconds.verify_s + seconds.overhead_s
            for sequence, num_proposed in zip(active, proposed, strict=True):
                sequence.commit(num_proposed, seconds)
        self._decoded |= {(variant.variant_id, _digest(tuple(request.prompt))) for request in requests}
        return [sequence.decoded(ttft_s) for sequence in sequences]

    def score(self, request: ScoreRequest, settings: DecodingSettings) -> Scored:
        """Refused: there are no logits."""
        raise UnsupportedError("simulated tokens come from no model, so there are no logits to judge them by")

    def peak_memory_bytes(self) -> int | None:
        """Unknown: nothing is stored."""
        return None

    def close(self) -> None:
        """Nothing to free."""

    def _drafting(self, variant: Variant) -> DraftingConfig:
        if variant.is_baseline:
            return _NOTHING_DRAFTED
        known = {"draft_model": self._settings.draft_model, "ngram": self._settings.ngram}
        if variant.method not in known:
            raise UnsupportedError(f"the simulator has no settings for method.name={variant.method!r}.")
        return known[variant.method]

    def _tokens_to_read(self, request: SequenceRequest) -> float:
        digest = _digest(tuple(request.prompt))
        saved = self._settings.prefix_cache if digest in self._read else 0.0
        self._read.add(digest)
        return len(request.prompt) * (1 - saved)

    def _alpha_offset(self, variant: Variant, request: SequenceRequest) -> float:
        """What task, time and memory add to alpha."""
        settings = self._settings
        offset = sum(task.alpha_offset for task in settings.tasks if task.name == request.task)
        offset += settings.alpha_drift_per_hour * self._now_s / 3600
        knows_it = (variant.variant_id, _digest(tuple(request.prompt))) in self._decoded
        return offset + (settings.carry_over if knows_it else 0.0)

    def _sequence(
        self,
        variant: Variant,
        drafting: DraftingConfig,
        request: SequenceRequest,
        settings: DecodingSettings,
    ) -> SimulatedSequence:
        prompt = f"{self._settings.seed} {_digest(tuple(request.prompt))}"
        output, ends = written(
            prompt if settings.temperature == 0 else f"{request.seed} written",
            request.max_new_tokens,
            eos_probability=self._settings.eos_probability,
            eos_ids=settings.eos_ids,
        )
        alphas = position_alphas(
            drafting,
            variant.k,
            temperature=settings.temperature,
            offset=self._alpha_offset(variant, request),
            spread=self._settings.prompt_spread,
            # every k of a method finds the same prompts easy
            quantile=Random(f"{prompt} {variant.method}").random(),
        )
        return SimulatedSequence(
            output,
            limit=request.max_new_tokens,
            ends=ends,
            alphas=alphas,
            empty=drafting.empty,
            seed=f"{request.seed} accepted",
        )

    def _fail_on_demand(self, variant_id: str | None, call: int | None) -> None:
        for failure in self._settings.failures:
            if (failure.variant, failure.call) == (variant_id, call):
                if failure.out_of_memory:
                    raise OutOfMemoryError("simulated: out of memory, as simulator.failures asks for.")
                raise RuntimeError("simulated crash, as simulator.failures asks for")


@lru_cache(maxsize=4096)
def _digest(tokens: tuple[int, ...]) -> str:
    return blake2b(",".join(map(str, tokens)).encode(), digest_size=8).hexdigest()
