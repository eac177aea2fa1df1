"""The cache of converted checkpoints: complete or absent, built once, shared by processes."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from harness.errors import StorageError
from harness.models.fingerprint import checkpoint_revision, file_sha256, weights_identity
from harness.models.notice import announce
from harness.paths import cache_dir

MANIFEST_FILE = "manifest.json"
# Raise it when a change of the conversion must rebuild what older versions left in the cache.
FORMAT_VERSION = 1
_REMEDY = "Free space there, or set HARNESS_CACHE_DIR to a folder on another disk."


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """A checkpoint the cache may hold.

    Attributes:
        name: folder name under the cache.
        ref: model reference it stands for, shown in messages.
        inputs: hashes of everything the content is made from; other inputs mean another content.
    """

    name: str
    ref: str
    inputs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CachedCheckpoint:
    """A complete folder in the cache and what it took to get it there."""

    path: Path
    revision: str
    weights_sha256: str
    setup_s: float


def fetch_or_build(
    entry: CacheEntry, build: Callable[[Path], None], *, needed_bytes: int = 0
) -> CachedCheckpoint:
    """Return the entry's folder, building it first when the cache lacks it.

    The folder is written beside its final place and renamed when complete, so an interrupted build leaves
    nothing that could be taken for a model. One process builds; others wait for it and use its result.

    Args:
        entry: what is wanted.
        build: writes the checkpoint into the empty folder it gets.
        needed_bytes: free space to insist on before building.

    Raises:
        StorageError: the cache can't be written or has too little space.
    """
    models = cache_dir() / "models"
    final = models / entry.name
    manifest = _read_manifest(final, entry)
    if manifest is not None:
        return CachedCheckpoint(final, manifest["revision"], manifest["weights_sha256"], 0.0)
    start = time.perf_counter()
    with _storage_errors(models), _locked(models, entry):
        manifest = _read_manifest(final, entry)  # another process may have built it while this one waited
        if manifest is None:
            require_free_bytes(models, needed_bytes, purpose=f"to prepare {entry.ref}")
            manifest = _build(entry, build, final)
    setup_s = time.perf_counter() - start
    return CachedCheckpoint(final, manifest["revision"], manifest["weights_sha256"], setup_s)


def require_free_bytes(folder: Path, needed_bytes: int, *, purpose: str) -> None:
    """Refuse early when a disk can't take what is about to be written.

    Raises:
        StorageError: fewer than `needed_bytes` are free.
    """
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < needed_bytes:
        raise StorageError(
            f"{folder}: {needed_bytes / 1e6:.0f} MB are needed {purpose}, {free_bytes / 1e6:.0f} MB are "
            f"free. {_REMEDY}"
        )


def publish(folder: Path, final: Path) -> None:
    """Rename a complete folder to its final name, replacing a former one."""
    if final.exists():
        shutil.rmtree(final)
    folder.replace(final)


def _build(entry: CacheEntry, build: Callable[[Path], None], final: Path) -> dict[str, Any]:
    prefix = f".{entry.name}.partial-"
    for stale in final.parent.glob(f"{prefix}*"):  # only a killed process leaves one: this one holds the lock
        shutil.rmtree(stale, ignore_errors=True)
    partial = Path(tempfile.mkdtemp(prefix=prefix, dir=final.parent))
    try:
        build(partial)
        weights_sha256 = weights_identity(partial)
        manifest = {
            "format_version": FORMAT_VERSION,
            "ref": entry.ref,
            "inputs": dict(entry.inputs),
            "revision": checkpoint_revision(partial, weights_sha256),
            "weights_sha256": weights_sha256,
            "files": {
                file.name: {"bytes": file.stat().st_size, "sha256": file_sha256(file)}
                for file in sorted(partial.iterdir())
            },
        }
        (partial / MANIFEST_FILE).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
        partial.chmod(0o755)
        publish(partial, final)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return manifest


def _read_manifest(folder: Path, entry: CacheEntry) -> dict[str, Any] | None:
    """The manifest of a complete folder made from the entry's inputs, else `None`."""
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST_FILE).read_text(encoding="utf-8"))
        wanted = (FORMAT_VERSION, dict(entry.inputs))
        if (manifest["format_version"], manifest["inputs"]) != wanted:
            return None
        sizes_match = all(
            (folder / name).stat().st_size == fact["bytes"] for name, fact in manifest["files"].items()
        )
        return manifest if sizes_match and {"revision", "weights_sha256"} <= manifest.keys() else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


@contextmanager
def _locked(models: Path, entry: CacheEntry) -> Iterator[None]:
    models.mkdir(parents=True, exist_ok=True)
    lock = FileLock(models / f".{entry.name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        announce(f"another process is preparing {entry.ref}; waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _storage_errors(models: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"{models}: the model cache can't be written ({error}). {_REMEDY}") from error
