"""Single tensors of the target that a drafter in training starts from or keeps frozen."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harness.errors import ConfigError, ModelSourceError
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


def starting_tensors(folder: Path, own: Mapping[str, Tensor], *, remedy: str) -> dict[str, Tensor]:
    """The tensors of a trained drafter that another one of the same shape goes on from.

    Args:
        folder: of the trained drafter.
        own: the tensors to be replaced, by their names in the folder.
        remedy: what to name instead.

    Raises:
        ConfigError: a tensor is missing there or has another shape.
    """
    found = read_tensors(folder, tuple(own))
    for name, tensor in own.items():
        shape = tuple(found[name].shape) if name in found else None
        if shape != tuple(tensor.shape):
            raise ConfigError(
                "--start-from",
                f"needs the tensor {name!r} of shape {list(tensor.shape)}, which has "
                f"{'none' if shape is None else list(shape)} there",
                str(folder),
                remedy,
            )
    return {name: found[name] for name in own}


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
