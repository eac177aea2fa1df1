from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from runner.scripted_backend import Script, install
from tiny_runs import TinyRun, write_tiny_run


@pytest.fixture
def tiny(tmp_path: Path, make_tiny_llama: Callable[..., Path]) -> TinyRun:
    return write_tiny_run(tmp_path, make_tiny_llama)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """Makes `backend.name=scripted` known; what it does is up to the test."""
    return install(monkeypatch)
