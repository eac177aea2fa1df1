"""Single tensors of the target that a drafter in training starts from or keeps frozen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harness.errors import ModelSourceError
from harness.models.checkpoint import weight_files

EMBEDDINGS = "model.embed_tokens.weight"
HEAD = "lm_head.weight"


def read_tensors(checkpoint: Path, prefixes: tuple[str, ...]) -> dict[str, Tensor]:
    """The tensors of a checkpoint folder whose names start with one of the prefixes."""
    from safetensors import safe_open

    found: dict[str, Tensor] = {}
    for file in weight_files(checkpoint):
        with safe_open(file, framework="pt") as handle:
            found |= {name: handle.get_tensor(name) for name in handle.keys() if name.startswith(prefixes)}  # noqa: SIM118
    return found


def target_embeddings(checkpoint: Path) -> Tensor:
    """[vocab, hidden] bfloat16.

    Raises:
        ModelSourceError: the checkpoint has none.
    """
    tensors = read_tensors(checkpoint, (EMBEDDINGS,))
    if EMBEDDINGS not in tensors:
        raise ModelSourceError(f"{checkpoint} lacks the tensor {EMBEDDINGS!r}: not a complete checkpoint.")
    return tensors[EMBEDDINGS].to(torch.bfloat16)


def target_head(checkpoint: Path, vocab: NDArray[np.int32] | None = None) -> Tensor:
    """The LM head, which is the embeddings where the two are tied, bfloat16.

    Args:
        checkpoint: folder of the target.
        vocab: [size] ids of the rows to take; None takes all.
    """
    tensors = read_tensors(checkpoint, (HEAD,))
    rows = tensors[HEAD].to(torch.bfloat16) if HEAD in tensors else target_embeddings(checkpoint)
    return rows if vocab is None else rows[torch.from_numpy(vocab.astype(np.int64))]
