"""A real browser without a window, spoken to through a pipe: no package and no port is needed.

Chromium's protocol for developers is JSON, one message after the other, each ended by a zero byte.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

PATIENCE = 300.0  # seconds; the first start on a busy machine takes minutes
# The browser wants the pipes to be its files 3 and 4.
_LAUNCH = """
import os, sys
reads, writes = (os.dup(int(number)) for number in sys.argv[1:3])
while min(reads, writes) < 5:
    reads, writes = os.dup(reads), os.dup(writes)
os.dup2(reads, 3), os.dup2(writes, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def chromium() -> str | None:
    """The browser of this computer, if there is one."""
    names = ("chromium", "google-chrome", "chromium-browser")
    return next((found for name in names if (found := shutil.which(name))), None)


class Browser:
    """Chromium with one page, as wide as asked for; use it in a ``with`` statement."""

    DARK: ClassVar[list[dict[str, str]]] = [{"name": "prefers-color-scheme", "value": "dark"}]

    def __init__(self, folder: Path, program: str, *options: str) -> None:
        to_browser, from_browser = os.pipe(), os.pipe()
        command = [sys.executable, "-c", _LAUNCH, str(to_browser[0]), str(from_browser[1]), program]
        command += [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--hide-scrollbars",
        ]
        command += [
            "--disable-background-networking",
            "--disable-component-update",
            "--force-color-profile=srgb",
        ]
        command += [
            f"--user-data-dir={folder / 'profile'}",
            "--remote-debugging-pipe",
            *options,
            "about:blank",
        ]
        self.process = subprocess.Popen(
            command,
            pass_fds=(to_browser[0], from_browser[1]),
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        os.close(to_browser[0])
        os.close(from_browser[1])
        self._to, self._from = to_browser[1], from_browser[0]
        self._rest, self._count, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(timeout=30)
        os.close(self._to)
        os.close(self._from)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Ask the browser for something and wait for its answer."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data) :]
        while True:
            answer = self._receive()
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return dict(answer["result"])
            self.events.append(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], PATIENCE)
            if not ready:
                raise TimeoutError(f"the browser has said nothing for {PATIENCE} seconds")
            if not (more := os.read(self._from, 1 << 20)):
                raise RuntimeError("the browser is gone")
            self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(message))

    def open(
        self,
        page: str,
        width: int = 1280,
        height: int = 900,
        *,
        dark: bool = False,
        calm: bool = True,
    ) -> None:
        """Open an address in a window of a size, by day or by night."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        features += [
            {"name": "prefers-reduced-motion", "value": "reduce" if calm else "no-preference"}
        ]
        self.call("Emulation.setEmulatedMedia", features=features)
        self.call(
            "Page.navigate", url="about:blank"
        )  # another fragment alone would not load it anew
        self.call("Page.navigate", url=page)
        self.run(
            """new Promise((done) => {
              if (document.readyState === 'complete') done();
              else addEventListener('load', done);
            })"""
        )

    def run(self, code: str) -> Any:
        """The value of an expression in the page, awaited if it is a promise."""
        found = self.call(
            "Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in found:
            details = found["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]))
        return found["result"].get("value")

    def settle(self) -> None:
        """Wait until the page has drawn what was changed."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def picture(self, *, whole: bool = False, clip: dict[str, float] | None = None) -> bytes:
        """A PNG of what the window shows, of the whole page, or of a part of it."""
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        part = {} if clip is None else {"clip": clip}
        shot = self.call(
            "Page.captureScreenshot", format="png", captureBeyondViewport=whole, **part
        )
        return base64.b64decode(shot["data"])

    def mouse(self, kind: str, x: float, y: float) -> None:
        """Press, move or release the mouse."""
        pressed = {"buttons": 1} if kind != "mouseReleased" else {}
        self.call(
            "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1, **pressed
        )

    def key(self, name: str, modifiers: int = 0) -> None:
        """Press a key of that name."""
        code = {
            "Enter": 13,
            "Tab": 9,
            "Escape": 27,
            "ArrowLeft": 37,
            "ArrowUp": 38,
            "ArrowRight": 39,
            "ArrowDown": 40,
        }
        number = code.get(name, ord(name[0].upper()))
        for kind in ("rawKeyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=name,
                code=name,
                windowsVirtualKeyCode=number,
                modifiers=modifiers,
            )

    @property
    def complaints(self) -> list[str]:
        """Errors and warnings on the console since the browser started."""
        found = []
        for event in self.events:
            details = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                found.append(str(details["exceptionDetails"].get("exception", details)))
            if event.get("method") == "Log.entryAdded":
                found.append(details["entry"]["text"])
            if event.get("method") == "Runtime.consoleAPICalled":
                found.append(str(details["args"]))
        return found
