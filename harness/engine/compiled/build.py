"""Compile the kernels once per machine, with the C++ compiler that is there."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from harness.engine.compiled.layout import declare
from harness.paths import cache_dir

_SOURCES = Path(__file__).parent
# contraction off: fusing a product and a sum in one place and not in another would change a row's bits
_FLAGS = ("-O3", "-march=native", "-ffp-contract=off", "-std=c++20", "-fopenmp", "-shared", "-fPIC")
_NEEDED = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_bf16", "avx512_vnni"})
_TIMEOUT_S = 120
SWITCH = "HARNESS_KERNELS"
"""Environment variable: `torch` leaves the compiled kernels unused."""


@cache
def load_kernels() -> Any:
    """The compiled library, or why there is none, in words.

    Compilation takes a few seconds, once per machine, source and compiler; the library lies in the cache
    folder.
    """
    if os.environ.get(SWITCH, "compiled") == "torch":
        return f"{SWITCH}=torch"
    missing = _NEEDED - _cpu_flags()
    if missing:
        return f"the CPU lacks {', '.join(sorted(missing))}"
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CXX", "c++"), "g++", "clang++"))), None)
    if compiler is None:
        return "no C++ compiler was found"
    try:
        return declare(ctypes.CDLL(str(_library(compiler))))
    except (OSError, subprocess.SubprocessError) as error:
        detail = getattr(error, "stderr", None) or str(error)
        return f"{compiler} failed: {detail.strip().splitlines()[-1]}"


def _library(compiler: str) -> Path:
    folder = cache_dir() / "kernels"
    path = folder / f"{_fingerprint(compiler)}.so"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        # compiled aside and renamed: a second process finds all of it or nothing
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            made = Path(scratch) / path.name
            command = [compiler, *_FLAGS, str(_SOURCES / "forward.cpp"), "-o", str(made)]
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=_TIMEOUT_S)
            made.replace(path)
    return path


def _fingerprint(compiler: str) -> str:
    """Of everything that decides what the library holds: sources, flags, compiler and CPU."""
    release = subprocess.run(
        [compiler, "--version"], check=True, capture_output=True, text=True, timeout=_TIMEOUT_S
    ).stdout
    parts = [release, " ".join(_FLAGS), " ".join(sorted(_cpu_flags()))]
    parts += [file.read_text(encoding="utf-8") for file in sorted(_SOURCES.glob("*.[ch]pp"))]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


@cache
def _cpu_flags() -> frozenset[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line.split(":", 1)[1].split() for line in lines if line.startswith("flags")), []))
