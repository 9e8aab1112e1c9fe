"""A real browser, driven through the DevTools protocol over a pipe: no driver, no port."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
SECONDS = 60.0


def installed() -> str | None:
    """The browser that would be used, None where there is none."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


class Page:
    """One page of a running browser. `requests` are all URLs it asked for, `complaints` what its
    console and its content security policy had to say."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read = write, read
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.requests: list[str] = []
        self.complaints: list[str] = []

    def open(self, path: Path, anchor: str = "", *, width: int = 1400, height: int = 1000) -> Self:
        """Load a file and wait until it has loaded."""
        return self.visit(path.as_uri() + (f"#{anchor}" if anchor else ""), width, height)

    def visit(self, address: str, width: int, height: int) -> Self:
        """Load a page and wait until it has loaded."""
        if self._session is None:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
            self._session = attached["sessionId"]
            for domain in ("Page", "Network", "Log", "Runtime"):
                self.call(f"{domain}.enable")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Page.navigate", url="about:blank")
        self.requests.clear()
        self.complaints.clear()
        self.call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete' && location.protocol !== 'about:'")
        return self

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, expression: str) -> None:
        """Return when a JavaScript expression is true."""
        limit = time.monotonic() + SECONDS
        while not self.ask(expression):
            assert time.monotonic() < limit, f"never true: {expression}"
            time.sleep(0.02)

    def press(self, key: str) -> None:
        """Press and release a key, as a person does."""
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        codes = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowDown": 40, "ArrowRight": 39}
        common = {"key": key, "windowsVirtualKeyCode": codes.get(key, 0)}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def dark(self, wanted: bool = True) -> None:
        """Ask for dark or light, as the system's setting does."""
        value = "dark" if wanted else "light"
        features = [{"name": "prefers-color-scheme", "value": value}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def photograph(self, path: Path) -> Path:
        """Write what is seen as PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))
        return path

    def paper(self, path: Path) -> Path:
        """Write what would be printed as PDF."""
        path.write_bytes(base64.b64decode(self.call("Page.printToPDF")["data"]))
        return path

    def call(self, method: str, **parameters: Any) -> Any:
        """Send one command and return its result; events on the way are noted."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None and not method.startswith("Target."):
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self._note(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            assert select.select([self._read], [], [], SECONDS)[0], "the browser does not answer"
            data = os.read(self._read, 1 << 20)
            assert data, "the browser has ended"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def _note(self, event: dict[str, Any]) -> None:
        about = event.get("params", {})
        if event.get("method") == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif event.get("method") == "Log.entryAdded":
            self.complaints.append(about["entry"]["text"])
        elif event.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(about["exceptionDetails"]))


@contextlib.contextmanager
def browser() -> Iterator[Page]:
    """A browser with a fresh profile, ended with all its processes."""
    program = installed()
    assert program is not None
    to_browser, from_browser = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(prefix="matrixrun-browser-") as profile:
        process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{to_browser[0]} 4>&{from_browser[1]}', "browser",
             program, *FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(to_browser[0], from_browser[1]),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        os.close(to_browser[0])
        os.close(from_browser[1])
        try:
            yield Page(to_browser[1], from_browser[0])
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            os.close(to_browser[1])
            os.close(from_browser[0])
            # Helpers of the browser may still be writing into its profile.
            time.sleep(0.2)
            shutil.rmtree(profile, ignore_errors=True)
            Path(profile).mkdir(exist_ok=True)
