"""Where a PyTorch engine runs: cores, device, dtype, and what memory it took or lacked."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from harness.errors import OutOfMemoryError, UnsupportedError

if TYPE_CHECKING:
    import torch


def available_cores() -> int:
    """Cores this process may run on, which a container or `taskset` may have narrowed."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def pick_device(name: str) -> torch.device:
    """The device `cpu`, `cuda` or `auto` stands for.

    Raises:
        UnsupportedError: CUDA was asked for and there is none.
    """
    import torch

    if name == "cuda" and not torch.cuda.is_available():
        raise UnsupportedError(
            "backend.device=cuda was asked for, but PyTorch sees no CUDA device. Use cpu or auto."
        )
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def pick_dtype(name: str, device: torch.device) -> torch.dtype:
    """The dtype of that name.

    Raises:
        UnsupportedError: the device can't compute in it.
    """
    import torch

    dtype: torch.dtype = getattr(torch, name)
    if dtype == torch.float16 and device.type == "cpu":
        raise UnsupportedError("backend.dtype=float16 is for GPUs; on a CPU use bfloat16 or float32.")
    return dtype


@contextmanager
def memory_errors(what: str) -> Iterator[None]:
    """Turn the ways in which PyTorch runs out of memory into one.

    Raises:
        OutOfMemoryError: `what` doesn't fit.
    """
    import torch

    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        # PyTorch's CPU allocator raises a plain RuntimeError
        if type(error) is RuntimeError and "can't allocate memory" not in str(error):
            raise
        raise OutOfMemoryError(
            f"{what} doesn't fit the free memory ({error}). Use a smaller model, a smaller batch_size or a "
            "shorter context."
        ) from error


def device_peak_bytes(device: torch.device) -> int:
    """Highest use so far of a CUDA device's memory, else of this process's resident memory."""
    import torch

    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    # kilobytes on Linux, bytes on macOS
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
