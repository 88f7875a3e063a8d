"""Takes the picture of a curve that TensorBoard shows: docs/bert-tiny-loss.png.

    ./trn tensorboard JOB --port 6006 &
    .venv/bin/python docs/tensorboard_picture.py http://127.0.0.1:6006 loss docs/bert-tiny-loss.png

Needs Chromium (or Chrome) on PATH, which is told what to do by its DevTools protocol.
"""

import base64
import itertools
import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import websocket

WIDTH, HEIGHT = 1000, 640
WAIT_SECONDS = 60.0
DRAWING_SECONDS = 3.0

# A card is filled once it is on the screen.
IS_DRAWN = "Boolean(document.querySelector('scalar-card line-chart canvas, scalar-card line-chart svg path'))"
# All points, also the first ones, which are far above the others; then the settings go.
ARRANGE = """
const named = (kind, words) => [...document.querySelectorAll(kind)].find((each) => each.textContent.includes(words));
for (const words of ['Ignore outliers', 'Enable step selection'])
  named('mat-checkbox', words)?.querySelector('input')?.click();
named('button', 'Settings').click();
document.querySelector('scalar-card [aria-label*="full size"], scalar-card [title*="full size"]')?.click();
"""
_PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")


class Browser:
    """A tab of a Chromium of its own."""

    def __init__(self, home: Path) -> None:
        program = next(
            filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None
        )
        if program is None:
            sys.exit("neither chromium nor google-chrome is on PATH")
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-port=0"]
        options += [f"--user-data-dir={home}", "--remote-allow-origins=*"]
        self._process = subprocess.Popen(
            [program, *options, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        port_file = home / "DevToolsActivePort"
        _until(port_file.exists, "Chromium did not start")
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
        """What a script in the page gives."""
        return self.call("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def close(self) -> None:
        """Ends it."""
        self._socket.close()
        self._process.terminate()
        self._process.wait()


def _until(holds: Callable[[], object], otherwise: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            sys.exit(otherwise)
        time.sleep(0.2)


def main(url: str, tag: str, picture: Path) -> None:
    """Writes the picture of a TensorBoard's curve."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:  # its helpers end a moment later
        browser = Browser(Path(home))
        try:
            wanted = urllib.parse.quote(f"^{tag}$")
            size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
            browser.call("Emulation.setDeviceMetricsOverride", **size)
            browser.call("Page.navigate", url=f"{url}/?tagFilter={wanted}&smoothing=0#timeseries")
            _until(lambda: browser.value(IS_DRAWN), f"TensorBoard shows no curve {tag}")
            browser.value(ARRANGE)
            time.sleep(DRAWING_SECONDS)
            shot = browser.call("Page.captureScreenshot", format="png")
        finally:
            browser.close()
    picture.write_bytes(base64.b64decode(shot["data"]))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
