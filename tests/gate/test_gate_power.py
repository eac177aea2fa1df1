from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_power_script_prints_a_share_per_verdict_and_scene() -> None:
    command = [
        sys.executable,
        str(ROOT / "scripts" / "gate_power.py"),
        "--comparisons",
        "1",
        "--prompts",
        "6",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert found.returncode == 0, found.stderr
    lines = found.stdout.splitlines()[2:]
    assert len(lines) == 7
    for line in lines:
        assert sum(float(word.rstrip("%")) for word in line.split()[-5:]) == pytest.approx(100, abs=0.3)
    assert lines[0].split()[-4] == "0.0%"
    assert lines[0].split()[-3] == "0.0%"
