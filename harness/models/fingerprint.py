"""Content hashes: of single files and of whole checkpoints."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from harness.models.checkpoint import read_config, weight_files

_CHUNK_BYTES = 1 << 20
_WHOLE_FILE_BYTES = 1 << 30
_SAMPLES = 64
# Keys that name the writer of the file and change nothing about the model.
_WRITER_KEYS = frozenset({"transformers_version", "_name_or_path", "_model_name_or_path"})


def file_sha256(file: Path) -> str:
    """SHA-256 of a file's bytes, as 64 hexadecimal digits."""
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def checkpoint_revision(path: Path, weights_sha256: str) -> str:
    """One hash for "the same configuration and the same weights", wherever the folder came from.

    Args:
        path: checkpoint folder.
        weights_sha256: what `weights_identity` returns for it.

    Returns:
        64 hexadecimal digits.

    Raises:
        ModelSourceError: the folder has no readable configuration.
    """
    config = {key: value for key, value in read_config(path).items() if key not in _WRITER_KEYS}
    return hashlib.sha256(f"{json.dumps(config, sort_keys=True)}\n{weights_sha256}".encode()).hexdigest()


def weights_identity(path: Path) -> str:
    """One hash for a checkpoint's weights.

    Files of at most 1 GiB count byte by byte. Of larger ones the size, the first mebibyte (which holds the
    tensor index) and 64 evenly spread mebibytes count: enough to tell two trainings or quantisations apart
    within seconds for a 70B model, not a defence against someone who edits single weights on purpose.

    Args:
        path: checkpoint folder.

    Returns:
        64 hexadecimal digits.

    Raises:
        ModelSourceError: the folder holds no safetensors, or not all of them.
    """
    digest = hashlib.sha256()
    for file in weight_files(path):
        digest.update(f"{file.name}:{_file_identity(file)}\n".encode())
    return digest.hexdigest()


def _file_identity(file: Path) -> str:
    size = file.stat().st_size
    if size <= _WHOLE_FILE_BYTES:
        return file_sha256(file)
    digest = hashlib.sha256(str(size).encode())
    with file.open("rb") as handle:
        digest.update(handle.read(_CHUNK_BYTES))
        for sample in range(1, _SAMPLES + 1):
            handle.seek((size - _CHUNK_BYTES) * sample // _SAMPLES)
            digest.update(handle.read(_CHUNK_BYTES))
    return f"sampled-{digest.hexdigest()}"
