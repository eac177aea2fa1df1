"""Start the command line as a user does: in a process of its own, outside the checkout."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def start(folder: Path, *arguments: str, module: str = "harness") -> subprocess.Popen[str]:
    """Start `python -m harness ARGUMENTS` in a folder."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "LOGNAME": "quillfeather"}
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a background job ignores Ctrl-C, and its children inherit that
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def run(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Run to the end: exit code, standard output, standard error."""
    process = start(folder, *arguments)
    output, errors = process.communicate(timeout=300)
    return process.returncode, output, errors
