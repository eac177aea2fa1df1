from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from harness.runner import machine
from harness.runner.machine import KEY, MachineReading, between, read_machine, throttle_reason, watched


def reading(**values: object) -> MachineReading:
    fields = {
        "at_s": 0.0,
        "busy_s": 0.0,
        "total_s": 0.0,
        "steal_s": 0.0,
        "own_s": 0.0,
        "load_average_1min": 0.5,
        "cpu_clock_mhz": 3000.0,
        "throttle_events": 7,
        "swapped_bytes": 100,
    }
    return MachineReading(**(fields | values))  # type: ignore[arg-type]


def test_shares_by_hand() -> None:
    # 10 s on 4 cores: 40 s in all, 26 busy, of which 4 stolen and 20 ours
    after = reading(at_s=10.0, busy_s=26.0, total_s=40.0, steal_s=4.0, own_s=20.0, swapped_bytes=5100)
    found = between(reading(), after)
    assert found["own_cpu_share"] == pytest.approx(0.5)
    assert found["other_cpu_share"] == pytest.approx(2 / 40)
    assert found["steal_share"] == pytest.approx(0.1)
    assert found["swapped_bytes"] == 5000
    assert found["throttle_events"] == 0
    assert found["elapsed_s"] == 10.0


def test_what_the_system_does_not_tell_is_none() -> None:
    unknown = reading(steal_s=None, cpu_clock_mhz=None, throttle_events=None, load_average_1min=None)
    found = between(unknown, reading(total_s=1.0))
    assert found["steal_share"] is None
    assert found["throttle_events"] is None
    assert found["cpu_clock_mhz_before"] is None


def test_another_process_shows_and_our_own_work_does_not() -> None:
    before = read_machine()
    # the shell ends at once, so that what it started isn't ours any more
    command = f"'{sys.executable}' -c 'while True: pass' >/dev/null 2>&1 & echo $!"
    started = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    busy, used = psutil.Process(int(started.stdout)), 0.0
    try:
        deadline = time.monotonic() + 20
        while used < 0.5 and time.monotonic() < deadline:
            time.sleep(0.05)
            used = busy.cpu_times().user
        after = read_machine()
    finally:
        busy.kill()
    found = between(before, after)
    total_s = after.total_s - before.total_s
    assert found["other_cpu_share"] * total_s >= 0.8 * used - 0.1


def test_what_this_process_started_is_its_own() -> None:
    before, used = read_machine(), 0.0
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        deadline = time.monotonic() + 20
        while used < 0.5 and time.monotonic() < deadline:
            time.sleep(0.05)
            used = psutil.Process(child.pid).cpu_times().user
        after = read_machine()
    finally:
        child.kill()
        child.wait()
    # clocks tick in hundredths of a second
    assert after.own_s - before.own_s >= used - 0.05
    # it has ended, and its time is still ours
    assert read_machine().own_s >= after.own_s - 0.05


def test_an_environment_gets_its_entry_even_when_measuring_fails() -> None:
    environment: dict[str, object] = {"cpu": "x"}
    with pytest.raises(RuntimeError), watched(environment, gpu=False):
        raise RuntimeError("engine died")
    assert set(environment) == {"cpu", KEY}


def test_reasons_of_a_gpu_clock() -> None:
    assert throttle_reason("0x0000000000000000") is None
    assert throttle_reason("0x0000000000000001") is None
    assert throttle_reason("0x0000000000000004") == "power cap"
    assert throttle_reason("0x0000000000000068") == "hardware slowdown, temperature"
    assert throttle_reason("[N/A]") is None


def test_the_driver_is_asked_where_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "nvidia-smi"
    script.write_text(
        '#!/bin/sh\ncase "$1" in *utilization*) echo 37;; *pid*) printf "10\\n11\\n";; '
        "*throttle*) echo 0x20;; esac\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert machine.read_gpu("before") == {"gpu_use_before": 0.37, "gpu_other_processes": 1}
    assert machine.read_gpu("after") == {"gpu_throttle_reason": "temperature"}
    script.write_text("#!/bin/sh\nexit 9\n")
    assert machine.read_gpu("before") == {}
    monkeypatch.setenv("PATH", "/nowhere")
    assert machine.read_gpu("after") == {}
