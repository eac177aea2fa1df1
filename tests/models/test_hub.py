from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.models.sources import resolve_model

CODE = (
    "import sys; from harness.models.sources import resolve_model; print(resolve_model(sys.argv[1]).revision)"
)
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def resolve(ref: str, home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "HF_HOME": str(home), **environment}
    return subprocess.run(
        [sys.executable, "-c", CODE, ref], env=env, capture_output=True, text=True, check=False
    )


def test_missing_network_is_a_model_source_error(tmp_path: Path) -> None:
    done = resolve("hub:org/name", tmp_path, HF_ENDPOINT="http://127.0.0.1:9")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("harness.errors.ModelSourceError: hub:org/name: couldn't be fetched")
    assert "Check the network" in last


@pytest.mark.parametrize("revision", ["", f"@{COMMIT}"])
def test_snapshot_in_the_hub_cache_serves_offline(
    tmp_path: Path, make_tiny_llama: Callable[..., Path], revision: str
) -> None:
    repository = tmp_path / "home/hub/models--org--name"
    folder = make_tiny_llama(f"home/hub/models--org--name/snapshots/{COMMIT}")
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text(COMMIT)
    done = resolve(f"hub:org/name{revision}", tmp_path / "home", HF_HUB_OFFLINE="1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == resolve_model(f"path:{folder}").revision
