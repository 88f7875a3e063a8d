"""A Chromium that is told what to do by its DevTools protocol: for the pictures of these pages."""

import itertools
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import websocket

WAIT_SECONDS = 60.0

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")


class Browser:
    """A tab of a Chromium of its own."""

    def __init__(self, home: Path) -> None:
        program = next(filter(None, map(shutil.which, _PROGRAMS)), None)
        if program is None:
            sys.exit("neither chromium nor google-chrome is on PATH")
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-port=0"]
        options += [f"--user-data-dir={home}", "--remote-allow-origins=*"]
        self._process = subprocess.Popen(
            [program, *options, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        port_file = home / "DevToolsActivePort"
        until(port_file.exists, "Chromium did not start")
        port, path = port_file.read_text().split()
        self._socket = websocket.create_connection(f"ws://127.0.0.1:{port}{path}", timeout=WAIT_SECONDS)
        self._numbers = itertools.count(1)
        self._session = ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The protocol's answer; events are passed over."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        self._socket.send(json.dumps(message | ({"sessionId": self._session} if self._session else {})))
        while True:
            answer = json.loads(self._socket.recv())
            if answer.get("id") == number:
                if "error" in answer:
                    sys.exit(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result

    def value(self, script: str) -> Any:
        """What a script in the page gives; a promise is awaited."""
        options = {"returnByValue": True, "awaitPromise": True}
        return self.call("Runtime.evaluate", expression=script, **options)["result"].get("value")

    def open(self, url: str, width: int, height: int) -> None:
        """Shows a page in a window of this size, in pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Page.navigate", url=url)

    def picture(self) -> str:
        """The window as PNG, in base64."""
        data: str = self.call("Page.captureScreenshot", format="png")["data"]
        return data

    def close(self) -> None:
        """Ends it."""
        self._socket.close()
        self._process.terminate()
        self._process.wait()


@contextmanager
def browser() -> Iterator[Browser]:
    """One that ends with the block."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:  # its helpers end a moment later
        found = Browser(Path(home))
        try:
            yield found
        finally:
            found.close()


def until(holds: Callable[[], object], otherwise: str) -> None:
    """Waits; ends the program with ``otherwise`` after a minute."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            sys.exit(otherwise)
        time.sleep(0.2)
