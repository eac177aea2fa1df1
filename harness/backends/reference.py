"""What the target makes of an output, computed by the native engine's forward for engines that don't tell."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from harness.backends.base import DecodingSettings, EngineSettings, ScoreRequest
from harness.errors import HarnessError, UnsupportedError
from harness.models.checkpoint import read_config
from harness.models.free_memory import free_bytes
from harness.records import Scored

if TYPE_CHECKING:
    from harness.engine.model import Transformer

_MEMORY_FACTOR = 3
"""Free memory it takes, over the weights: they are laid out anew while they are loaded."""


class ReferenceScorer:
    """Scores outputs on the CPU with the target's own weights, in the dtype of the engine that wrote them.

    Its rounding isn't that engine's: what it calls a tie was a choice between two tokens that lie within a
    few roundings of each other here.

    Args:
        settings: of the engine.
    """

    def __init__(self, settings: EngineSettings) -> None:
        """See the class; the target is loaded when the first output is scored."""
        self._settings = settings

    def score(self, request: ScoreRequest, settings: DecodingSettings) -> Scored:
        """See `harness.backends.base.Scorer`.

        Raises:
            UnsupportedError: the target is quantised, too large for the free memory or of a family that the
                native engine doesn't run.
        """
        from harness.engine.sampling import SamplingParams
        from harness.engine.scoring import score_tokens

        return score_tokens(
            self._target,
            request.prompt,
            request.tokens,
            alternatives=request.alternatives,
            sampling=SamplingParams(settings.temperature, settings.top_k, settings.top_p),
        )

    @cached_property
    def _target(self) -> Transformer:
        import torch

        from harness.engine.weights import load_transformer

        target = self._settings.target
        if self._settings.target_quantization != "none" or "quantization_config" in read_config(target.path):
            raise UnsupportedError("outputs of a quantised target on this backend can't be scored")
        free, _ = free_bytes("cpu")
        needed = _MEMORY_FACTOR * target.facts.weight_bytes
        if needed > free:
            raise UnsupportedError(f"scoring takes {needed:,} bytes of main memory, and {free:,} are free")
        try:
            return load_transformer(target.path, dtype=getattr(torch, self._settings.dtype))
        except HarnessError as error:
            raise UnsupportedError(f"outputs can't be scored: {error}") from error
