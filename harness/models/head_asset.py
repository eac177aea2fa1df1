"""Shipped drafters that read the target's hidden states: what is trained of them, and nothing else."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness.errors import ModelSourceError
from harness.models.cache import publish
from harness.models.checkpoint import CONFIG_FILE, ResolvedModel, read_config, weight_files
from harness.models.drafter_card import CARD_FILE, DrafterCard, check_base, verify_files
from harness.models.fingerprint import file_sha256

HEAD_KINDS = ("eagle", "medusa")
_WEIGHTS_FILE = "model.safetensors"
_DRAFT_VOCAB_FILE = "draft_vocab.npy"
_SHARED = ("embed_tokens.weight", "lm_head.weight")


def check_head_asset(
    folder: Path, card: DrafterCard, resolve_base: Callable[[str], ResolvedModel], *, base_ref: str | None
) -> Path:
    """Make sure that a shipped head is whole and belongs to the target; it's used where it lies.

    Args:
        folder: of the asset.
        card: of the asset.
        resolve_base: resolves a reference to the base.
        base_ref: the target in use; None leaves the comparison out.

    Returns:
        The folder.

    Raises:
        ModelSourceError: a file is damaged, or the target has other weights.
    """
    if base_ref is not None:
        check_base(card, resolve_base(base_ref))
    verify_files(folder, card)
    return folder


def export_head_asset(
    checkpoint_dir: Path, asset_dir: Path, *, kind: str, base: ResolvedModel, card: Mapping[str, Any]
) -> DrafterCard:
    """Write a trained head as an asset: all but the embeddings and LM head it shares with its target.

    Args:
        checkpoint_dir: folder that training saved.
        asset_dir: folder to write; its name becomes the asset's.
        kind: `eagle` or `medusa`.
        base: the target it was trained for.
        card: recipe facts to put on the card.

    Returns:
        The card as written.

    Raises:
        ModelSourceError: the folder lacks configuration or weights.
    """
    from safetensors.torch import load_file, save_file

    asset_dir.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{asset_dir.name}.partial-", dir=asset_dir.parent))
    try:
        config = read_config(checkpoint_dir)
        tensors = {name: t for file in weight_files(checkpoint_dir) for name, t in load_file(file).items()}
        own = {name: tensor for name, tensor in tensors.items() if name not in _SHARED}
        if not own:
            raise ModelSourceError(f"{checkpoint_dir}: holds no trained tensor. Train the head again.")
        save_file(own, partial / _WEIGHTS_FILE, metadata={"format": "pt"})
        shutil.copyfile(checkpoint_dir / _DRAFT_VOCAB_FILE, partial / _DRAFT_VOCAB_FILE)
        (partial / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        written = DrafterCard(
            name=asset_dir.name,
            kind=kind,
            base=base.ref,
            base_weights_sha256=base.weights_sha256,
            num_layers=int(config["num_hidden_layers"]),
            sha256={file.name: file_sha256(file) for file in sorted(partial.iterdir())},
            recipe=dict(card),
        )
        (partial / CARD_FILE).write_text(json.dumps(asdict(written), indent=2) + "\n", encoding="utf-8")
        # safetensors and mkdtemp write for the owner alone; a package's files are for everyone
        partial.chmod(0o755)
        for file in partial.iterdir():
            file.chmod(0o644)
        publish(partial, asset_dir)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return written
