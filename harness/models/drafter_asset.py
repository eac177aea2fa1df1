"""Drafters that ship with the package: trained layers only, completed with their target's embeddings."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.errors import ModelSourceError
from harness.models.cache import CachedCheckpoint, CacheEntry, fetch_or_build, publish, require_free_bytes
from harness.models.checkpoint import CONFIG_FILE, ResolvedModel, read_config, weight_files
from harness.models.drafter_card import (
    CARD_FILE,
    DRAFT_MODEL,
    DrafterCard,
    check_base,
    read_card,
    verify_files,
)
from harness.models.fingerprint import file_sha256
from harness.models.notice import announce
from harness.paths import assets_dir

if TYPE_CHECKING:
    from torch import Tensor

LAYERS_FILE = "layers.safetensors"
DRAFT_VOCAB_FILE = "draft_vocab.npy"
_EMBEDDINGS, _HEAD = "model.embed_tokens.weight", "lm_head.weight"
# What a drafter takes from its target besides the embeddings.
_TOKENIZER_PATTERNS = ("tokenizer*", "special_tokens_map.json", "added_tokens.json", "chat_template*")
_COPIED_PATTERNS = (*_TOKENIZER_PATTERNS, "vocab.*", "merges.txt", "generation_config.json")


def shipped(name: str) -> tuple[Path, DrafterCard]:
    """Folder and card of an asset.

    Raises:
        ModelSourceError: there is none of that name.
    """
    folder = assets_dir() / name
    return folder, read_card(folder)


def assemble(
    name: str, resolve_base: Callable[[str], ResolvedModel], *, base_ref: str | None
) -> tuple[DrafterCard, CachedCheckpoint]:
    """Make a shipped drafter a complete checkpoint in the cache.

    Args:
        name: the asset's name.
        resolve_base: resolves a reference to the base; not called when the cache has all that is needed.
        base_ref: the target in use, compared with the card and source of the embeddings; `None`: the card's.

    Raises:
        ModelSourceError: no such asset, damaged files, another kind of drafter, or a base with other weights.
    """
    folder, card = shipped(name)
    if card.kind != DRAFT_MODEL:
        raise ModelSourceError(
            f"asset:{name}: is a drafter of kind {card.kind!r}, which isn't a stand-alone model. Use it with "
            "the method of that name."
        )
    in_use = None if base_ref is None else resolve_base(base_ref)
    if in_use is not None:
        check_base(card, in_use)

    def build(target: Path) -> None:
        verify_files(folder, card)
        base = in_use or resolve_base(card.base)
        check_base(card, base)
        announce(f"assembling drafter {name}")
        _write_checkpoint(folder, base, target)

    inputs = {"base": card.base_weights_sha256, **card.sha256}
    return card, fetch_or_build(CacheEntry(f"asset-{name}", f"asset:{name}", inputs), build)


def export_drafter_asset(
    checkpoint_dir: Path, asset_dir: Path, *, base: ResolvedModel, card: Mapping[str, Any]
) -> DrafterCard:
    """Write a trained stand-alone drafter as an asset: everything but what its base supplies.

    Args:
        checkpoint_dir: complete checkpoint of the drafter, with the base's embeddings unchanged; a
            `draft_vocab.npy` ([draft_vocab] integer token ids, most frequent first) is taken along.
        asset_dir: folder to write; its name becomes the asset's.
        base: the resolved target the drafter was trained for.
        card: recipe facts to put on the card.

    Returns:
        The card as written.

    Raises:
        ModelSourceError: embeddings or head aren't the base's, or the draft vocabulary is malformed.
    """
    asset_dir.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{asset_dir.name}.partial-", dir=asset_dir.parent))
    try:
        config = read_config(checkpoint_dir)
        _export_layers(checkpoint_dir, base.path, partial / LAYERS_FILE)
        _export_draft_vocab(checkpoint_dir / DRAFT_VOCAB_FILE, partial, vocab_size=int(config["vocab_size"]))
        _write_json(partial / CONFIG_FILE, config)
        written = DrafterCard(
            name=asset_dir.name,
            kind=DRAFT_MODEL,
            base=base.ref,
            base_weights_sha256=base.weights_sha256,
            num_layers=int(config["num_hidden_layers"]),
            sha256={file.name: file_sha256(file) for file in sorted(partial.iterdir())},
            recipe=dict(card),
        )
        _write_json(partial / CARD_FILE, asdict(written))
        _make_readable(partial)
        publish(partial, asset_dir)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return written


def _write_checkpoint(asset: Path, base: ResolvedModel, target: Path) -> None:
    from safetensors.torch import load_file, save_file

    layers: dict[str, Tensor] = load_file(asset / LAYERS_FILE)
    tensors = {**_shared_tensors(base.path), **layers}
    _check_layers(asset, read_config(asset), tensors)
    needed_bytes = sum(tensor.nbytes for tensor in tensors.values())
    require_free_bytes(target, needed_bytes, purpose=f"to assemble {asset.name}")
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    for pattern in _COPIED_PATTERNS:
        for file in base.path.glob(pattern):
            shutil.copyfile(file, target / file.name)
    for name in (CONFIG_FILE, DRAFT_VOCAB_FILE):
        if (asset / name).is_file():
            shutil.copyfile(asset / name, target / name)


def _check_layers(asset: Path, config: dict[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Compare names and shapes with those of Transformers' Llama of that configuration."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig.from_dict(config))  # type: ignore[no-untyped-call]
    expected = {name: tuple(weights.shape) for name, weights in model.named_parameters()}
    received = {name: tuple(weights.shape) for name, weights in tensors.items()}
    differing = sorted(n for n in expected.keys() | received.keys() if expected.get(n) != received.get(n))
    if differing:
        name = differing[0]
        raise ModelSourceError(
            f"{asset}: {len(differing)} tensors don't fit its {CONFIG_FILE}; {name} must have the shape "
            f"{expected.get(name, 'of no tensor')}, got {received.get(name, 'none')}. Export the asset again."
        )


def _export_layers(checkpoint_dir: Path, base: Path, file: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    tensors = {name: t for weights in weight_files(checkpoint_dir) for name, t in load_file(weights).items()}
    for name, shared in _shared_tensors(base).items():
        own = tensors.pop(name, None)
        if own is None or own.shape != shared.shape or not torch.equal(own.to(shared.dtype), shared):
            raise ModelSourceError(
                f"{checkpoint_dir}: {name} isn't the base's, so it can't be left out of the asset. Freeze "
                "embeddings and head while training."
            )
    if _HEAD in tensors:
        raise ModelSourceError(
            f"{checkpoint_dir}: has its own {_HEAD} while the base ties it to its embeddings."
        )
    layers = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in tensors.items()}
    save_file(layers, file, metadata={"format": "pt"})


def _export_draft_vocab(file: Path, folder: Path, *, vocab_size: int) -> None:
    if not file.is_file():
        return
    ids = np.load(file, allow_pickle=False)
    distinct = ids.ndim == 1 and np.issubdtype(ids.dtype, np.integer) and len(np.unique(ids)) == ids.size > 0
    if not distinct or ids.min() < 0 or ids.max() >= vocab_size:
        raise ModelSourceError(
            f"{file}: must hold distinct token ids from 0 to {vocab_size - 1} in one dimension."
        )
    np.save(folder / DRAFT_VOCAB_FILE, ids.astype(np.int32))


def _shared_tensors(base: Path) -> dict[str, Tensor]:
    from safetensors import safe_open

    shared: dict[str, Tensor] = {}
    for file in weight_files(base):
        with safe_open(file, framework="pt") as handle:
            names = set(handle.keys()) & {_EMBEDDINGS, _HEAD}
            shared.update({name: handle.get_tensor(name) for name in names})
    return shared


def _make_readable(folder: Path) -> None:
    # Safetensors and mkdtemp write for the owner alone; a package's files are for everyone.
    folder.chmod(0o755)
    for file in folder.iterdir():
        file.chmod(0o644)


def _write_json(file: Path, value: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
