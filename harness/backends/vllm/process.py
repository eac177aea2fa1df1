"""A child process that answers JSON lines: it may crash, hang or be killed, and never outlives its use."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import harness
from harness.errors import EngineError

LOG_INTRODUCTION = "Its last log lines:"
_LOG_LINES = 15
_LOG_BYTES = 64_000
_CLOSE_S = 20.0
_CHUNK_BYTES = 1 << 16
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class EngineProcess:
    """One child in a process group of its own, with its output kept as a log."""

    def __init__(self, module: str, *, environment: Mapping[str, str]) -> None:
        """Start `python -m module FD`.

        Args:
            module: answers one JSON line on the socket FD for each it gets.
            environment: variables to set besides this process's own.
        """
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        parent, child = socket.socketpair()
        self._socket = parent
        self._unread = b""
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, str(child.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            pass_fds=[child.fileno()],
            env=_environment(environment),
            start_new_session=True,
        )
        child.close()
        # also when this process ends without closing: a worker of the engine could hold the device for ever
        self._finalizer = weakref.finalize(self, _kill_group, self._process)

    @property
    def pid(self) -> int:
        """Of the child; also the number of its process group."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the child hasn't ended."""
        return self._process.poll() is None

    def ask(self, request: Mapping[str, Any], *, timeout_s: float, doing: str) -> dict[str, Any]:
        """Send a request and wait for its answer.

        Args:
            request: anything JSON can hold.
            timeout_s: after so many seconds the child counts as hung.
            doing: what is being waited for, for messages.

        Raises:
            EngineError: the child ended, hangs, or answers with an error; the message ends with its last log
                lines, and the child is gone but for the last case.
        """
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            line = self._read_line(timeout_s)
        except TimeoutError:
            self.kill()
            raise EngineError(
                f"the engine's process didn't answer within {timeout_s:g} s while {doing} and was ended. "
                f"{self._told()}"
            ) from None
        except OSError:
            line = b""
        if not line:
            raise EngineError(f"the engine's process {self._ending()} while {doing}. {self._told()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise EngineError(f"the engine failed while {doing}: {answer['error']} {self._told()}")
        return answer

    def close(self) -> None:
        """Ask the child to stop, and end it and everything it started."""
        if self.is_running:
            with contextlib.suppress(EngineError):
                self.ask({"do": "close"}, timeout_s=_CLOSE_S, doing="stopping it")
        self.kill()

    def kill(self) -> None:
        """End the child and everything it started, at once."""
        self._finalizer()
        self._socket.close()

    def log_tail(self, lines: int = _LOG_LINES) -> str:
        """The last lines the child and what it started printed."""
        end = os.fstat(self._log.fileno()).st_size
        text = os.pread(self._log.fileno(), _LOG_BYTES, max(end - _LOG_BYTES, 0)).decode(errors="replace")
        kept = [line for line in _COLOUR.sub("", text).splitlines() if line.strip()]
        return "\n".join(kept[-lines:])

    def _told(self) -> str:
        tail = self.log_tail()
        return f"{LOG_INTRODUCTION}\n{tail}" if tail else "It printed nothing."

    def _ending(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_CLOSE_S)
        code = self._process.poll()
        self.kill()
        if code is None:
            return "closed its connection"
        if code >= 0:
            return f"ended with exit code {code}"
        name = signal.Signals(-code).name
        cause = " (memory that ran out ends it this way)" if -code == signal.SIGKILL else ""
        return f"was ended by {name}{cause}"

    def _read_line(self, timeout_s: float) -> bytes:
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._unread:
            ready, _, _ = select.select([self._socket], [], [], max(deadline - time.monotonic(), 0))
            if not ready:
                raise TimeoutError
            chunk = self._socket.recv(_CHUNK_BYTES)
            if not chunk:
                return b""
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        return line


def end_with_parent(channel: socket.socket) -> None:
    """In a child: once the parent is gone, however it ended, end this process and all that it started."""
    own = os.dup(channel.fileno())  # stays open while the process closes the channel on its way out

    def watch() -> None:
        poller = select.poll()
        poller.register(own, 0)  # a hang-up is reported unasked
        poller.poll()
        end_group()

    threading.Thread(target=watch, daemon=True).start()


def end_group() -> None:
    """In a child: end this process and all that it started, without waiting for threads or exit hooks."""
    os.killpg(0, signal.SIGKILL)


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    """This process's variables and the extra ones; the child finds this package wherever it was found."""
    merged = {**os.environ, **extra}
    places = [str(Path(harness.__file__).parents[1]), merged.get("PYTHONPATH", "")]
    return merged | {"PYTHONPATH": os.pathsep.join(place for place in places if place)}


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
