"""Files that are either whole or absent, and disk troubles told as what to do about them."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from harness.errors import StorageError

TEMPORARY_SUFFIX = ".tmp"
MIN_FREE_BYTES = 16 * 2**20

_CAUSES = {
    errno.ENOSPC: ("the disk is full", "Free some space, or choose another results folder."),
    errno.EDQUOT: ("the disk quota is used up", "Free some space, or choose another results folder."),
    errno.EACCES: ("permission denied", "Make the folder writable, or choose another results folder."),
    errno.EPERM: ("permission denied", "Make the folder writable, or choose another results folder."),
    errno.EROFS: ("the file system is read-only", "Choose a results folder on another file system."),
    errno.ENOTDIR: ("a part of the path is a file", "Remove the file, or choose another results folder."),
    errno.EEXIST: ("a file is in the folder's place", "Remove the file, or choose another results folder."),
}


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn an OSError of the block into a StorageError that names `path` and a remedy."""
    try:
        yield
    except OSError as error:
        known = _CAUSES.get(error.errno or 0)
        cause, remedy = known or (str(error), "Check the disk, or choose another results folder.")
        raise StorageError(f"{path}: can't write, {cause}. {remedy}") from error


def write_atomic(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file so that a crash at any moment leaves the old one, the new one or a `.tmp`.

    Args:
        path: of the file; its folder must exist.
        write: puts the content into the open file.

    Raises:
        StorageError: the disk is full, read-only or not writable.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}{TEMPORARY_SUFFIX}")
    with storage_errors(path):
        try:
            with temporary.open("wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)


def remove_temporaries(folder: Path) -> None:
    """Delete what an interrupted `write_atomic` left in a folder."""
    for leftover in folder.glob(f"*{TEMPORARY_SUFFIX}"):
        leftover.unlink(missing_ok=True)


def check_writable(folder: Path) -> None:
    """Create a folder and prove that a file can be written in it.

    Raises:
        StorageError: it can't, or fewer than `MIN_FREE_BYTES` are free.
    """
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        free_bytes = shutil.disk_usage(folder).free
    if free_bytes < MIN_FREE_BYTES:
        raise StorageError(
            f"{folder}: {free_bytes / 2**20:.1f} MiB free, at least {MIN_FREE_BYTES / 2**20:.0f} MiB needed. "
            "Free some space, or choose another results folder."
        )
    probe = folder / f".writable.{os.getpid()}"
    write_atomic(probe, lambda file: file.write(b"probe"))
    probe.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make a rename durable; file systems that can't sync a folder are left to themselves."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)
