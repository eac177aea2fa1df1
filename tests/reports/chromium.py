"""Headless Chromium over its DevTools pipe: no port, no driver and no library between it and a test."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TIMEOUT_S = 60.0
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    "--remote-debugging-pipe",
)


def chromium_path() -> str | None:
    """The browser of this machine, if it has one."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


class Browser:
    """One browser process; `close` ends it."""

    def __init__(self, path: str, profile: Path) -> None:
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        # the browser reads descriptor 3 and writes 4; numbers from 10 on can't get in each other's way
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (to_browser, from_browser)]
        start = f'exec "$@" 3<&{ends[0]} 4>&{ends[1]}'
        self._process = subprocess.Popen(
            ["bash", "-c", start, "bash", path, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=ends,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (*ends, to_browser, from_browser):
            os.close(end)
        self._buffer = b""
        self._last_id = 0
        self.events: list[dict[str, Any]] = []

    def command(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result; events that arrive meanwhile are kept."""
        self._last_id += 1
        message = {"id": self._last_id, "method": method, "params": parameters}
        self._send(message | ({"sessionId": session} if session else {}))
        answer = self._until(lambda found: found.get("id") == message["id"])
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        return dict(answer["result"])

    def wait_for(self, method: str, session: str) -> None:
        """Return once the event was seen after the last call of `forget`."""
        if not any(event["method"] == method and event["sessionId"] == session for event in self.events):
            self._until(lambda found: found.get("method") == method and found.get("sessionId") == session)

    def close(self) -> None:
        self._send({"id": 0, "method": "Browser.close"})
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for end in (self._in, self._out):
            os.close(end)

    def _send(self, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]

    def _until(self, is_wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            while b"\0" in self._buffer:
                raw, self._buffer = self._buffer.split(b"\0", 1)
                message = json.loads(raw)
                if "method" in message:
                    self.events.append(message)
                if is_wanted(message):
                    return dict(message)
            if not select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise AssertionError(f"Chromium didn't answer within {TIMEOUT_S:g} s")
            received = os.read(self._in, 2**20)
            if not received:
                raise AssertionError("Chromium ended")
            self._buffer += received


class Tab:
    """One page in the browser, with what it logged and asked the network for since it was opened."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        target = browser.command("Target.createTarget", url="about:blank")["targetId"]
        attached = browser.command("Target.attachToTarget", targetId=target, flatten=True)
        self._session, self._target = str(attached["sessionId"]), target
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.command(f"{domain}.enable")

    def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.command(method, self._session, **parameters)

    def open(self, url: str, *, width: int = 1200, height: int = 900) -> None:
        """Load a page into a window of this size, in CSS pixels."""
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self._browser.events.clear()
        self.command("Page.navigate", url=url)
        self._browser.wait_for("Page.loadEventFired", self._session)

    def evaluate(self, expression: str) -> Any:
        """The JSON value of an expression, awaited if it is a promise."""
        found = self.command("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise AssertionError(found["exceptionDetails"])
        return found["result"].get("value")

    def press(self, key: str, code: int) -> None:
        """Press and release a key that types nothing."""
        for kind in ("rawKeyDown", "keyUp"):
            self.command("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def point_at(self, selector: str) -> None:
        """Move the mouse to the middle of the first such element."""
        where = f"document.querySelector({json.dumps(selector)})"
        box = self.evaluate(
            f"(() => {{ {where}.scrollIntoView({{block: 'center'}}); "
            f"const b = {where}.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2] }})()"
        )
        self.command("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])

    @property
    def errors(self) -> list[str]:
        """Exceptions and whatever the console calls an error."""
        found = []
        for event in self._browser.events:
            told = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(told["exceptionDetails"]))
            elif event["method"] == "Log.entryAdded" and told["entry"]["level"] == "error":
                found.append(str(told["entry"]["text"]))
            elif event["method"] == "Runtime.consoleAPICalled" and told["type"] == "error":
                found.append(str(told["args"]))
        return found

    @property
    def requests(self) -> list[str]:
        """Addresses that the page asked for, its own among them."""
        return [
            str(event["params"]["request"]["url"])
            for event in self._browser.events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def close(self) -> None:
        self._browser.command("Target.closeTarget", targetId=self._target)
