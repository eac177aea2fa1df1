"""What a pair will need in memory, before any weight is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.errors import OutOfMemoryError
from harness.models.checkpoint import CheckpointFacts, ResolvedModel
from harness.models.drafter_asset import DRAFT_VOCAB_FILE
from harness.models.tensor_shapes import ParameterCounts, count_parameters

GIB = 2**30
HEADROOM = 1.1
"""Free memory asked for, over the estimate: temporaries of loading, fragmentation, other processes."""

_BYTES_OF_DTYPE = {"bfloat16": 2.0, "float16": 2.0, "float32": 4.0}
# int4: a scale and a zero point of two bytes each for 32 weights
_BYTES_OF_QUANTIZED = {"int8": 1.0, "fp8": 1.0, "int4": 0.5 + 4 / 32}


@dataclass(frozen=True, slots=True)
class MemoryLayout:
    """How an engine lays models out.

    Attributes:
        dtype: of weights and activations.
        kv_dtype: of keys and values.
        target_caches: key-value caches of the target it holds at a time.
        drafter_caches: of each drafter.
        copies_tied_head: whether an LM head tied to the embeddings takes memory of its own.
    """

    dtype: str
    kv_dtype: str
    target_caches: int = 1
    drafter_caches: int = 1
    copies_tied_head: bool = False


@dataclass(frozen=True, slots=True)
class Load:
    """What is decoded.

    Attributes:
        context_tokens: longest prompt and output together.
        prompt_tokens: longest prompt.
        batch_size: sequences decoded together.
        width: tokens of a sequence that one step runs through the target.
    """

    context_tokens: int
    prompt_tokens: int
    batch_size: int
    width: int


@dataclass(frozen=True, slots=True)
class ModelMemory:
    """Bytes of one model.

    Attributes:
        ref: which model.
        weights_bytes: as loaded.
        kv_bytes: all its key-value caches.
        activation_bytes: at the widest point of a prefill or a step.
    """

    ref: str
    weights_bytes: int
    kv_bytes: int
    activation_bytes: int

    @property
    def total_bytes(self) -> int:
        """The sum."""
        return self.weights_bytes + self.kv_bytes + self.activation_bytes


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """A cell's memory against what is free.

    Attributes:
        target: of the target.
        drafters: of its draft models.
        free_bytes: on the device, or in main memory, before anything was loaded.
        device: which.
        remedies: what would make it smaller, the mildest first.
    """

    target: ModelMemory
    drafters: tuple[ModelMemory, ...]
    free_bytes: int
    device: str
    remedies: tuple[str, ...]

    @property
    def models(self) -> tuple[ModelMemory, ...]:
        """The target, then its draft models."""
        return (self.target, *self.drafters)

    @property
    def needed_bytes(self) -> int:
        """All models together, without the process itself."""
        return sum(model.total_bytes for model in self.models)

    @property
    def fits(self) -> bool:
        """Whether it fits with some headroom."""
        return self.needed_bytes * HEADROOM <= self.free_bytes

    def require_fit(self) -> None:
        """Refuse what doesn't fit.

        Raises:
            OutOfMemoryError: naming the models, the sizes and the remedies in order.
        """
        if self.fits:
            return
        parts = "; ".join(
            f"{model.ref}: weights {gib(model.weights_bytes)}, keys and values {gib(model.kv_bytes)}, "
            f"activations {gib(model.activation_bytes)}"
            for model in self.models
        )
        raise OutOfMemoryError(
            f"about {gib(self.needed_bytes)} GiB are needed and {gib(self.free_bytes)} GiB are free on "
            f"{self.device}, of which a tenth should stay free. In GiB: {parts}. Remedies, in order: "
            f"{'; '.join(self.remedies)}. check_memory=false measures all the same."
        )


def estimate_memory(
    target: ResolvedModel,
    drafters: Sequence[ResolvedModel],
    *,
    layout: MemoryLayout,
    load: Load,
    quantization: Mapping[str, str],
    free_bytes: int,
    device: str,
    remedies: Sequence[str],
) -> MemoryEstimate:
    """Add up weights, keys and values, and activations.

    Args:
        target: its folder needs `config.json`; headers of weight files make the count exact.
        drafters: likewise.
        layout: of the engine.
        load: what is decoded.
        quantization: weight format of `target` and `drafter`: `none`, `int8`, `int4` or `fp8`.
        free_bytes: see `MemoryEstimate`.
        device: see `MemoryEstimate`.
        remedies: see `MemoryEstimate`.
    """
    drafter_load = Load(load.context_tokens, load.prompt_tokens, load.batch_size, 1)
    return MemoryEstimate(
        target=_model_memory(target, layout, layout.target_caches, load, quantization["target"]),
        drafters=tuple(
            _model_memory(model, layout, layout.drafter_caches, drafter_load, quantization["drafter"])
            for model in drafters
        ),
        free_bytes=free_bytes,
        device=device,
        remedies=tuple(remedies),
    )


def gib(size_bytes: float) -> str:
    """Bytes in GiB, two decimals."""
    return f"{size_bytes / GIB:.2f}"


def weights_bytes(counts: ParameterCounts, layout: MemoryLayout, quantization: str) -> int:
    """Bytes of a model's weights as loaded.

    Quantisation shrinks matrices and the head; embeddings, norms and biases keep the dtype.
    """
    plain = _BYTES_OF_DTYPE[layout.dtype]
    matrix = _BYTES_OF_QUANTIZED.get(quantization, plain)
    is_copied = layout.copies_tied_head or quantization != "none"
    head = counts.head or (counts.embeddings if is_copied else 0)
    return round(plain * (counts.embeddings + counts.vectors) + matrix * (counts.matrices + head))


def _model_memory(
    model: ResolvedModel, layout: MemoryLayout, num_caches: int, load: Load, quantization: str
) -> ModelMemory:
    weights = weights_bytes(count_parameters(model.path), layout, quantization)
    weights += _draft_head_bytes(model, layout, quantization)
    return ModelMemory(
        model.ref,
        weights,
        num_caches * kv_bytes(model.facts, layout.kv_dtype, load),
        _activation_bytes(model.facts, layout, load),
    )


def kv_bytes(facts: CheckpointFacts, dtype: str, load: Load) -> int:
    """Bytes of one key-value cache over the whole context of a batch."""
    per_token = 2 * facts.num_layers * (facts.num_kv_heads or 1) * (facts.head_dim or 0)
    return round(per_token * _BYTES_OF_DTYPE[dtype] * load.context_tokens * load.batch_size)


def _draft_head_bytes(model: ResolvedModel, layout: MemoryLayout, quantization: str) -> int:
    """The head over a reduced vocabulary, which some drafters bring along."""
    file = model.path / DRAFT_VOCAB_FILE
    if not file.is_file():
        return 0
    rows = len(np.load(file, mmap_mode="r"))
    size = _BYTES_OF_QUANTIZED.get(quantization, _BYTES_OF_DTYPE[layout.dtype])
    return round(rows * model.facts.hidden_size * size)


def _activation_bytes(facts: CheckpointFacts, layout: MemoryLayout, load: Load) -> int:
    """The widest of one layer in a prefill, and of the logits in a step with their float32 copies."""
    size, prompt = _BYTES_OF_DTYPE[layout.dtype], load.prompt_tokens
    wide = max(facts.intermediate_size or 0, 4 * facts.hidden_size)
    scores = 4 * 2 * (facts.num_heads or 1) * prompt * prompt
    layer = prompt * size * (4 * facts.hidden_size + 3 * wide) + scores
    logits = load.width * facts.vocab_size * (size + 3 * 4)
    return round(load.batch_size * max(layer, logits))
