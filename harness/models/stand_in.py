"""Models that aren't there: names and token ids for backends that need no checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

from harness.models.checkpoint import CheckpointFacts, ResolvedModel

if TYPE_CHECKING:
    from harness.workloads import Prompt

REVISION = "simulated"
VOCAB_SIZE = 32_000
EOS_ID = 0
_CHARACTERS_PER_TOKEN = 4


def stand_in_model(ref: str) -> ResolvedModel:
    """A model that is only a name: nothing is looked up, fetched or read.

    Args:
        ref: what the configuration calls it; never resolved.
    """
    facts = CheckpointFacts(
        model_type=REVISION,
        vocab_size=VOCAB_SIZE,
        hidden_size=0,
        num_layers=0,
        num_heads=None,
        num_kv_heads=None,
        max_context_tokens=None,
        tied_head=False,
        dtype=None,
        weight_bytes=0,
    )
    return ResolvedModel(f"{REVISION}:{ref}", Path(), REVISION, REVISION, 0.0, facts)


class StandInTokenizer:
    """Gives every four characters a token id, so that prompts keep their identity and about their length."""

    eos_ids: frozenset[int] = frozenset({EOS_ID})

    def encode_prompt(self, prompt: Prompt) -> list[int]:
        """Token ids of a prompt, equal for equal texts; none is the end token.

        Returns:
            One id per four characters, and one for the rest.
        """
        text = prompt.content
        parts = [
            text[start : start + _CHARACTERS_PER_TOKEN]
            for start in range(0, len(text) + 1, _CHARACTERS_PER_TOKEN)
        ]
        return [1 + crc32(part.encode()) % (VOCAB_SIZE - 1) for part in parts]
