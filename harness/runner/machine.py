"""What else the machine did while a cell was measured: other processes, stolen time, throttling, swapping."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import psutil

KEY = "while_measuring"
"""Where a cell's stored environment holds it."""

_IDLE = ("idle", "iowait")
_PART_OF_USER = ("guest", "guest_nice")
_THROTTLE_COUNTERS = "cpu*/thermal_throttle/core_throttle_count"
_NVIDIA_SMI_TIMEOUT_S = 10.0
# Bits of NVML's clock event reasons that mean slowing down; idling and set clocks do not.
_GPU_REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "temperature",
    0x40: "temperature",
    0x80: "power brake",
}


@dataclass(frozen=True, slots=True)
class MachineReading:
    """Counters at one moment; None where the system doesn't tell."""

    at_s: float
    busy_s: float
    total_s: float
    steal_s: float | None
    own_s: float
    load_average_1min: float | None
    cpu_clock_mhz: float | None
    throttle_events: int | None
    swapped_bytes: int | None


@contextmanager
def watched(environment: dict[str, Any], *, gpu: bool) -> Iterator[None]:
    """Compare the machine's counters before and after, and put what they say into an environment.

    Args:
        environment: gets an entry named `KEY`, also when what is watched fails.
        gpu: whether to ask the NVIDIA driver too.
    """
    graphics = read_gpu("before") if gpu else {}
    before = read_machine()
    try:
        yield
    finally:
        environment[KEY] = between(before, read_machine()) | graphics | (read_gpu("after") if gpu else {})


def read_machine() -> MachineReading:
    """Read the counters."""
    times = psutil.cpu_times()._asdict()
    total_s = sum(seconds for name, seconds in times.items() if name not in _PART_OF_USER)
    idle_s = sum(times.get(name, 0.0) for name in _IDLE)
    clock, swap = _cpu_clock(), psutil.swap_memory()
    return MachineReading(
        at_s=perf_counter(),
        busy_s=total_s - idle_s,
        total_s=total_s,
        steal_s=times.get("steal"),
        own_s=_own_cpu_s(),
        load_average_1min=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        cpu_clock_mhz=clock,
        throttle_events=_throttle_events(),
        swapped_bytes=swap.sin + swap.sout,
    )


def between(before: MachineReading, after: MachineReading) -> dict[str, Any]:
    """What happened between two readings.

    Returns:
        `elapsed_s`; `other_cpu_share`, `own_cpu_share` and `steal_share` of the CPU time of all cores;
        `swapped_bytes`, `throttle_events`; load and clock before and after. None where unknown.
    """
    total_s = after.total_s - before.total_s
    steal_s = _difference(before.steal_s, after.steal_s)
    own_s = after.own_s - before.own_s
    other_s = after.busy_s - before.busy_s - own_s - (steal_s or 0.0)
    return {
        "elapsed_s": after.at_s - before.at_s,
        "own_cpu_share": _share(own_s, total_s),
        "other_cpu_share": _share(other_s, total_s),
        "steal_share": _share(steal_s, total_s),
        "swapped_bytes": _difference(before.swapped_bytes, after.swapped_bytes),
        "throttle_events": _difference(before.throttle_events, after.throttle_events),
        "load_average_1min_before": before.load_average_1min,
        "load_average_1min_after": after.load_average_1min,
        "cpu_clock_mhz_before": before.cpu_clock_mhz,
        "cpu_clock_mhz_after": after.cpu_clock_mhz,
    }


def read_gpu(when: str) -> dict[str, Any]:
    """Ask the driver about the GPU; empty without `nvidia-smi` or with several GPUs.

    Args:
        when: `before` or `after` measuring.

    Returns:
        Before: `gpu_use_before` and `gpu_other_processes`. After: `gpu_throttle_reason`, None without one.
    """
    if shutil.which("nvidia-smi") is None:
        return {}
    if when == "after":
        reasons = _nvidia_smi("--query-gpu=clocks_throttle_reasons.active")
        return {} if len(reasons) != 1 else {"gpu_throttle_reason": throttle_reason(reasons[0])}
    use = _nvidia_smi("--query-gpu=utilization.gpu")
    if len(use) != 1:
        return {}
    # the driver may name processes by numbers of another namespace, so this one is counted, not looked for
    others = max(0, len(_nvidia_smi("--query-compute-apps=pid")) - 1)
    return {"gpu_use_before": _percentage(use[0]), "gpu_other_processes": others}


def throttle_reason(bits: str) -> str | None:
    """Why a GPU's clock is held down, from the driver's hexadecimal bit mask; None if it isn't."""
    try:
        mask = int(bits, 16)
    except ValueError:
        return None
    return ", ".join(dict.fromkeys(name for bit, name in _GPU_REASONS.items() if mask & bit)) or None


def _nvidia_smi(query: str) -> list[str]:
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_NVIDIA_SMI_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


def _percentage(text: str) -> float | None:
    return float(text) / 100 if text.isdigit() else None


def _own_cpu_s() -> float:
    """CPU time of this process and of all it started, such as an engine's workers or a server."""
    this, seconds = psutil.Process(), 0.0
    for process in [this, *this.children(recursive=True)]:
        with suppress(psutil.Error):
            # the time of processes that have ended counts among the children's
            seconds += sum(process.cpu_times()[:4])
    return seconds


def _cpu_clock() -> float | None:
    try:
        clock = psutil.cpu_freq()
    except (OSError, NotImplementedError, RuntimeError):
        return None
    return float(clock.current) if clock is not None and clock.current else None


def _throttle_events() -> int | None:
    counters = list(Path("/sys/devices/system/cpu").glob(_THROTTLE_COUNTERS))
    try:
        return sum(int(counter.read_text()) for counter in counters) if counters else None
    except (OSError, ValueError):
        return None


def _difference(before: Any, after: Any) -> Any:
    return None if before is None or after is None else after - before


def _share(seconds: float | None, total_s: float) -> float | None:
    return None if seconds is None or total_s <= 0 else max(0.0, seconds / total_s)
