"""Load drafters that read the target's hidden states: EAGLE and Medusa heads in their public formats."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harness.engine.architecture import Architecture
from harness.engine.drafters.eagle import EagleHead
from harness.engine.drafters.medusa import MedusaHeads
from harness.engine.linear import Linear
from harness.engine.model import Transformer
from harness.engine.weights import CheckpointTensors, LinearMaker, assemble, load_head
from harness.errors import ModelSourceError, PairMismatchError

DRAFT_VOCAB_FILE = "draft_vocab.npy"
_OLD_MEDUSA = re.compile(r"(\d+)\.(\d+)\.(linear\.)?(weight|bias)")


def load_eagle(
    path: Path, target: Transformer, target_dir: Path, *, reduced_vocab: bool = True, scheme: str = "none"
) -> EagleHead:
    """Read an EAGLE head as its public repository and vLLM's `eagle` method have it.

    Args:
        path: folder with `config.json`, safetensors and perhaps `draft_vocab.npy`.
        target: the model it drafts for; gives embeddings where the folder has none.
        target_dir: its checkpoint, for the LM head.
        reduced_vocab: draft from the tokens of `draft_vocab.npy` alone, where there is one.
        scheme: how to quantise its matrices.

    Raises:
        PairMismatchError: made for another hidden size or vocabulary.
        ModelSourceError: no safetensors, or a tensor missing, misshapen or not finite.
    """
    arch = replace(Architecture.from_checkpoint(path), num_layers=1)
    _check_size(path, "hidden_size", arch.hidden_size, target.architecture.hidden_size)
    _check_size(path, "vocab_size", arch.vocab_size, target.architecture.vocab_size)
    tensors = CheckpointTensors(path, target.dtype, target.device)
    hidden = arch.hidden_size
    fuse = _tensor(tensors, path, "fc.weight", (hidden, 2 * hidden))
    bias = _tensor(tensors, path, "fc.bias", (hidden,)) if "fc.bias" in tensors else None
    embeddings = target.embeddings
    if "embed_tokens.weight" in tensors:
        embeddings = _tensor(tensors, path, "embed_tokens.weight", (arch.vocab_size, hidden))
    vocab = read_draft_vocab(path, target) if reduced_vocab else None
    maker = LinearMaker(arch, dtype=target.dtype, device=target.device, scheme=scheme)
    model = assemble(
        tensors,
        arch,
        maker,
        embeddings=embeddings,
        prefixes=["layers.0."],
        norm=None,
        head=_reduced_head(target, target_dir, vocab, scheme),
        has_input_norm=False,
    )
    return EagleHead(model, maker.linear(fuse, bias), vocab)


def load_medusa(
    path: Path, target: Transformer, target_dir: Path, *, reduced_vocab: bool = True, scheme: str = "none"
) -> MedusaHeads:
    """Read Medusa heads as their public repository and vLLM's `medusa` method have them.

    Args:
        path: folder with safetensors and perhaps `draft_vocab.npy`.
        target: the model they draft for.
        target_dir: its checkpoint, for the LM head where the folder has none.
        reduced_vocab: draft from the tokens of `draft_vocab.npy` alone, where there is one.
        scheme: how to quantise its matrices.

    Raises:
        PairMismatchError: made for another hidden size or vocabulary.
        ModelSourceError: no safetensors, or a tensor missing, misshapen or not finite.
    """
    tensors = CheckpointTensors(path, target.dtype, target.device)
    names = {_medusa_name(name): name for name in tensors.names}
    hidden = target.architecture.hidden_size
    maker = LinearMaker(target.architecture, dtype=target.dtype, device=target.device, scheme=scheme)
    counts = _block_counts(set(names))
    if not counts:
        raise ModelSourceError(f"{path} holds no Medusa head: no tensor is named blocks.0.layers.0.weight.")
    first = tensors.get(names["blocks.0.layers.0.weight"])
    _check_size(path, "hidden_size", first.shape[-1], hidden)

    def linear(head: int, block: int) -> Linear:
        name = f"blocks.{head}.layers.{block}."
        weight = _tensor(tensors, path, names[name + "weight"], (hidden, hidden))
        biased = name + "bias" in names
        return maker.linear(
            weight, _tensor(tensors, path, names[name + "bias"], (hidden,)) if biased else None
        )

    own = _own_lm_heads(tensors, path, names, target, maker, num_heads=len(counts))
    blocks = [[linear(head, block) for block in range(count)] for head, count in enumerate(counts)]
    if own:
        return MedusaHeads(blocks, own, None)
    vocab = _medusa_vocab(tensors, path, names, target) if reduced_vocab else None
    if vocab is not None and "lm_head.weight" in names:
        rows = tensors.get(names["lm_head.weight"])
        rows = rows[vocab] if len(rows) > len(vocab) else rows
        _check_size(path, "hidden_size", rows.shape[-1], hidden)
        return MedusaHeads(blocks, [maker.linear(rows)], vocab)
    return MedusaHeads(blocks, [_reduced_head(target, target_dir, vocab, scheme)], vocab)


def _medusa_vocab(
    tensors: CheckpointTensors, path: Path, names: dict[str, str], target: Transformer
) -> Tensor | None:
    """Ids of the LM head's rows: vLLM's `token_map`, or `draft_vocab.npy`."""
    if "token_map" not in names:
        return read_draft_vocab(path, target)
    ids = tensors.get(names["token_map"], dtype=torch.int64)
    return _checked_vocab(ids.cpu().numpy(), path, target)


def read_draft_vocab(path: Path, target: Transformer) -> Tensor | None:
    """[draft_vocab] int64 ids of a reduced vocabulary, None where the folder names none.

    Raises:
        ModelSourceError: the file isn't a list of distinct ids of the target.
    """
    file = path / DRAFT_VOCAB_FILE
    if not file.is_file():
        return None
    try:
        ids = np.load(file, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ModelSourceError(f"{file}: can't be read ({error}). Train or fetch the head anew.") from error
    return _checked_vocab(ids, file, target)


def _checked_vocab(ids: NDArray[np.generic], file: Path, target: Transformer) -> Tensor:
    size = target.architecture.vocab_size
    whole = ids.ndim == 1 and np.issubdtype(ids.dtype, np.integer) and len(np.unique(ids)) == ids.size > 0
    if not whole or int(ids.min()) < 0 or int(ids.max()) >= size:
        raise ModelSourceError(f"{file}: must hold distinct token ids from 0 to {size - 1} in one dimension.")
    return torch.from_numpy(ids.astype(np.int64)).to(target.device)


def _reduced_head(target: Transformer, target_dir: Path, vocab: Tensor | None, scheme: str) -> Linear:
    if vocab is None:
        return target.head
    return load_head(target_dir, vocab, dtype=target.dtype, device=target.device, scheme=scheme)


def _own_lm_heads(
    tensors: CheckpointTensors,
    path: Path,
    names: dict[str, str],
    target: Transformer,
    maker: LinearMaker,
    *,
    num_heads: int,
) -> list[Linear]:
    """One LM head per Medusa head, as heads trained with their own have; none where they share one."""
    own = [f"lm_heads.{head}.weight" for head in range(num_heads)]
    if not all(name in names for name in own):
        return []
    shape = (target.architecture.vocab_size, target.architecture.hidden_size)
    return [maker.linear(_tensor(tensors, path, names[name], shape)) for name in own]


def _medusa_name(name: str) -> str:
    """VLLM's name of a tensor: the public repository numbers heads and blocks and nothing else."""
    name = re.sub(r"^medusa_heads?\.", "", name)
    match = _OLD_MEDUSA.fullmatch(name)
    if match is None:
        return name
    head, block, linear, part = match.groups()
    return f"blocks.{head}.layers.{block}.{part}" if linear else f"lm_heads.{head}.{part}"


def _block_counts(names: set[str]) -> list[int]:
    """Residual blocks of each head, heads in order."""
    counts: list[int] = []
    while f"blocks.{len(counts)}.layers.0.weight" in names:
        head = len(counts)
        counts.append(next(b for b in range(1, 100) if f"blocks.{head}.layers.{b}.weight" not in names))
    return counts


def _tensor(tensors: CheckpointTensors, path: Path, name: str, shape: tuple[int, ...]) -> Tensor:
    tensor = tensors.get(name)
    if tuple(tensor.shape) != shape:
        raise ModelSourceError(
            f"{path}: {name} must have the shape {shape}, got {tuple(tensor.shape)}: damaged, or a head of "
            "another kind. Train or fetch it anew."
        )
    if not bool(tensor.isfinite().all()):
        raise ModelSourceError(f"{path}: {name} holds numbers that aren't finite. Train or fetch it anew.")
    return tensor


def _check_size(path: Path, field: str, received: int, expected: int) -> None:
    if received != expected:
        raise PairMismatchError(
            f"{path}: made for a target of {field} {received}, but this target's is {expected}. Choose a "
            "head of this target, or train one with `python -m harness train`."
        )
