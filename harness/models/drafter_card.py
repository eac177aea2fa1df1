"""The card of a shipped drafter: what it is, what it belongs to and what its files must hash to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import ModelSourceError
from harness.models.checkpoint import ResolvedModel, read_json_object
from harness.models.fingerprint import file_sha256

CARD_FILE = "card.json"
DRAFT_MODEL = "draft_model"


@dataclass(frozen=True, slots=True)
class DrafterCard:
    """What `card.json` states.

    Attributes:
        name: the asset's folder name.
        kind: `draft_model` for a stand-alone drafter; other kinds are read by the engine that runs them.
        base: model reference of the target whose embeddings complete it.
        base_weights_sha256: hash of the base's weights (see `weights_identity`).
        num_layers: transformer layers.
        sha256: hash of each file beside the card.
        recipe: how it was trained and how it fared, in no fixed form.
    """

    name: str
    kind: str
    base: str
    base_weights_sha256: str
    num_layers: int
    sha256: Mapping[str, str]
    recipe: Mapping[str, Any] = field(default_factory=dict)


def read_card(folder: Path) -> DrafterCard:
    """Read the card of an asset folder.

    Raises:
        ModelSourceError: there is no such asset, or its card lacks a field.
    """
    if not (folder / CARD_FILE).is_file():
        shipped = (
            ", ".join(sorted(card.parent.name for card in folder.parent.glob(f"*/{CARD_FILE}"))) or "none"
        )
        raise ModelSourceError(
            f"asset:{folder.name}: no such drafter in {folder.parent}; shipped: {shipped}."
        )
    try:
        return DrafterCard(**read_json_object(folder / CARD_FILE))
    except TypeError as error:
        raise ModelSourceError(f"{folder / CARD_FILE}: {error}. Export the asset again.") from error


def check_base(card: DrafterCard, base: ResolvedModel) -> None:
    """Compare a base with the one the drafter was trained for.

    Raises:
        ModelSourceError: its weights are others.
    """
    if base.weights_sha256 != card.base_weights_sha256:
        raise ModelSourceError(
            f"asset:{card.name}: was trained for {card.base} with weights {card.base_weights_sha256[:12]}, "
            f"but {base.ref} has weights {base.weights_sha256[:12]}. Use {card.base} as the target, or train "
            "a drafter for this one."
        )


def verify_files(folder: Path, card: DrafterCard) -> None:
    """Compare an asset's files with the hashes on its card.

    Raises:
        ModelSourceError: a file is missing or differs.
    """
    for file, expected in card.sha256.items():
        path = folder / file
        received = file_sha256(path) if path.is_file() else "no such file"
        if received != expected:
            raise ModelSourceError(
                f"{path}: its SHA-256 must be {expected}, got {received}. Install the package again, or "
                "fetch the file if the checkout holds a large-file pointer."
            )
