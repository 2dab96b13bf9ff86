"""Controls a headless Chromium with the DevTools protocol (https://chromedevtools.github.io/devtools-protocol/). Tests
open pages at a given width, and read them.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_PROGRAMS = ("chromium-headless-shell", "chromium", "google-chrome")
_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--hide-scrollbars")


def found() -> str | None:
    return next((program for name in _PROGRAMS if (program := shutil.which(name))), None)


@dataclass
class Browser:
    write: int
    read: int
    session: str = ""
    requested: list[str] = field(default_factory=list)
    _buffer: bytes = b""
    _number: int = 0

    def call(self, method: str, **given: Any) -> dict[str, Any]:
        """Raises RuntimeError if the browser reports an error."""
        self._number += 1
        number, session = self._number, {"sessionId": self.session} if self.session else {}
        message = {"id": number, "method": method, "params": given, **session}
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def open(self, address: str, width: int, height: int) -> None:
        self.requested.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.call("Page.navigate", url=address)
        while self._next().get("method") != "Page.loadEventFired":
            pass

    def evaluate(self, expression: str) -> Any:
        """Raises RuntimeError if the expression throws."""
        done = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in done:
            raise RuntimeError(f"{expression}: {done['exceptionDetails']}")
        return done["result"].get("value")

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            more = os.read(self.read, 1 << 16)
            if not more:
                raise RuntimeError("the browser has ended")
            self._buffer += more
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if message.get("method") == "Network.requestWillBeSent":
            self.requested.append(message["params"]["request"]["url"])
        return message


@contextmanager
def running(program: str, profile: Path) -> Iterator[Browser]:
    theirs_in, write = os.pipe()
    read, theirs_out = os.pipe()
    # Chromium uses the file descriptors 3 and 4 for its pipes.
    command = [
        "bash",
        "-c",
        f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}',
        program,
        *_FLAGS,
        f"--user-data-dir={profile}",
    ]
    with subprocess.Popen(
        command, pass_fds=(theirs_in, theirs_out), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    ) as process:
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            browser = Browser(write=write, read=read)
            target = browser.call("Target.createTarget", url="about:blank")["targetId"]
            browser.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Network"):
                browser.call(f"{domain}.enable")
            yield browser
        finally:
            process.terminate()
            os.close(write)
            os.close(read)
