"""Peak memory of this process, measured anew from each reading to the next."""

from __future__ import annotations

import re
import sys
from pathlib import Path

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # proc(5): set the peak resident size to the current one


class ProcessMemory:
    """Highest resident memory since the last reading, where Linux lets a process reset its own mark.

    Elsewhere it is the highest since the process began.
    """

    def __init__(self) -> None:
        """Find out whether the mark can be reset, and reset it."""
        self.resets = _reset()

    @property
    def scope(self) -> str:
        """What a reading covers."""
        return "since the last trial" if self.resets else "since the process began"

    def peak_bytes(self) -> int | None:
        """The peak up to now; the next one counts from here. None where the system has no such figure."""
        peak = _peak()
        if self.resets:
            _reset()
        return peak


def _reset() -> bool:
    try:
        _CLEAR.write_text(_RESET_PEAK)
    except OSError:
        return False
    return True


def _peak() -> int | None:
    if _STATUS.is_file():
        found = re.search(r"VmHWM:\s+(\d+) kB", _STATUS.read_text())
        if found:
            return int(found[1]) * 1024
    if sys.platform == "win32":
        return None
    import resource

    # kilobytes, but bytes on macOS
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
