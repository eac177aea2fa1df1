"""How much memory there is to load models into."""

from __future__ import annotations

from pathlib import Path

import psutil

_CGROUP = Path("/sys/fs/cgroup")


def free_bytes(device: str) -> tuple[int, str]:
    """Bytes that can still be taken, and of what.

    Args:
        device: `cpu`, `cuda` or `auto`.

    Returns:
        Free memory of the GPU, or available main memory within the container's limit; and `cuda` or `cpu`.
    """
    if device != "cpu":
        import torch

        if torch.cuda.is_available():
            return int(torch.cuda.mem_get_info()[0]), "cuda"
    available = int(psutil.virtual_memory().available)
    limit = _left_in_container(_CGROUP)
    return (available if limit is None else min(available, limit)), "cpu"


def _left_in_container(folder: Path) -> int | None:
    """What a control group (version 2) still grants; file caches in its count can be given up."""
    try:
        limit = (folder / "memory.max").read_text(encoding="ascii").strip()
        used = int((folder / "memory.current").read_text(encoding="ascii"))
        statistics = (folder / "memory.stat").read_text(encoding="ascii")
    except (OSError, ValueError):
        return None
    if limit == "max":
        return None
    lines = dict(line.split(maxsplit=1) for line in statistics.splitlines())
    return max(0, int(limit) - used + int(lines.get("inactive_file", 0)))
