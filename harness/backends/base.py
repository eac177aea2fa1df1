"""What the runner asks of an engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from harness.config.schema import VllmConfig
from harness.config.simulated import SimulatorConfig
from harness.models.checkpoint import ResolvedModel
from harness.models.memory import MemoryLayout
from harness.records import Decoded, Scored, Variant


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What an engine session is opened with; sessions are shared by cells with equal settings.

    Attributes:
        target: the target's checkpoint.
        device: `cpu`, `cuda` or `auto`.
        dtype: of weights and activations.
        num_threads: CPU threads; None takes the cores this process may use.
        target_quantization: weight format of the target.
        drafter_quantization: weight format of drafters.
        simulator: what the simulator simulates; None for every other backend.
        vllm: how vLLM's engines are started; None for every other backend.
    """

    target: ResolvedModel
    device: str
    dtype: str
    num_threads: int | None
    target_quantization: str
    drafter_quantization: str
    simulator: SimulatorConfig | None = None
    vllm: VllmConfig | None = None


@dataclass(frozen=True, slots=True)
class ColdStart:
    """One timed part of getting ready, such as `load_target`."""

    part: str
    seconds: float
    variant_id: str | None = None


@dataclass(frozen=True, slots=True)
class SequenceRequest:
    """One sequence to decode.

    Attributes:
        prompt: token ids.
        max_new_tokens: output limit.
        seed: of the sequence's random numbers.
        task: the workload's task of the prompt; a real engine has no use for it.
    """

    prompt: Sequence[int]
    max_new_tokens: int
    seed: int
    task: str = ""


@dataclass(frozen=True, slots=True)
class DecodingSettings:
    """What is equal for every sequence of a cell.

    Attributes:
        temperature: 0 is greedy.
        top_k: 0 keeps all.
        top_p: 1 keeps all.
        eos_ids: ids that end a sequence; empty ignores EOS.
        context_tokens: longest prompt and output together.
        batch_size: most requests of one decode call.
    """

    temperature: float
    top_k: int
    top_p: float
    eos_ids: frozenset[int]
    context_tokens: int
    batch_size: int = 1


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """A sequence whose output the target is asked about.

    Attributes:
        prompt: token ids.
        tokens: output token ids, at least one.
        alternatives: (place in `tokens`, token id) of further tokens whose logits are wanted.
    """

    prompt: Sequence[int]
    tokens: Sequence[int]
    alternatives: Sequence[tuple[int, int]] = ()


class Session(Protocol):
    """A started engine with its target loaded."""

    cold_start: Sequence[ColdStart]
    """How long starting took, by part."""

    def clock(self) -> float:
        """Reading, in seconds, of the clock that times trials: `perf_counter()` wherever time is real."""

    def facts(self) -> Mapping[str, Any]:
        """Device, dtype, threads and the like, as read back from the engine."""

    def prepare(
        self, variant: Variant, drafter: ResolvedModel | None, settings: DecodingSettings
    ) -> tuple[Mapping[str, Any], Sequence[ColdStart]]:
        """Load and allocate what a variant needs.

        Returns:
            The settings as applied, and how long each part took.

        Raises:
            UnsupportedError: the engine can't run this variant.
            OutOfMemoryError: it doesn't fit.
        """

    def decode(
        self, variant: Variant, requests: Sequence[SequenceRequest], settings: DecodingSettings
    ) -> Sequence[Decoded]:
        """Decode one batch with a prepared variant; nothing but decoding happens inside."""

    def peak_memory_bytes(self) -> int | None:
        """Highest memory use since the last call, or ever: of the device, or of the process on a CPU."""

    def close(self) -> None:
        """Free everything."""


@runtime_checkable
class Scorer(Protocol):
    """What a session may also offer: the lossless check then says whether a difference is a defect."""

    def score(self, request: ScoreRequest, settings: DecodingSettings) -> Scored:
        """Run prompt and output through the target in one forward.

        Raises:
            UnsupportedError: why this engine can't.
        """


@runtime_checkable
class LaidOut(Protocol):
    """What a backend may also offer: how it lays models out, for the memory estimate."""

    @classmethod
    def memory_layout(cls, settings: EngineSettings, variants: Sequence[Variant]) -> MemoryLayout:
        """The layout of a cell with these variants."""


@runtime_checkable
class PicksDrafterFormat(Protocol):
    """What a backend may also offer: the weight format it drafts best in."""

    @classmethod
    def drafter_format(cls, settings: EngineSettings) -> str:
        """What `quantization.drafter=auto` stands for."""


class Backend(Protocol):
    """An engine that can be started."""

    name: ClassVar[str]
    max_batch_size: ClassVar[int | None]
    """Largest batch it decodes together; None sets no limit."""
    is_simulated: ClassVar[bool]
    """Whether it only simulates: no model is looked up, and trials, being cheap, are stored cell by cell."""
    switches_variants: ClassVar[bool]
    """Whether prepared variants can take turns call by call. Where each needs an engine of its own, they are
    measured one after another, between two runs of the baseline."""

    @classmethod
    def version(cls) -> str:
        """Of the engine, part of a cell's identity. Imports nothing heavy where it can."""

    @classmethod
    def open(cls, settings: EngineSettings) -> Session:
        """Start the engine and load the target.

        Raises:
            MissingBackendError: its package isn't installed.
            UnsupportedError: it can't run the model, device or dtype.
            OutOfMemoryError: the target doesn't fit.
        """
