"""Takes the picture of a curve that TensorBoard shows: docs/bert-tiny-loss.png.

    ./trn tensorboard JOB --port 6006 &
    .venv/bin/python docs/tensorboard_picture.py http://127.0.0.1:6006 loss docs/bert-tiny-loss.png

Needs Chromium (or Chrome) on PATH.
"""

import base64
import sys
import time
import urllib.parse
from pathlib import Path

from chromium import browser, until

WIDTH, HEIGHT = 1000, 640
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


def main(url: str, tag: str, picture: Path) -> None:
    """Writes the picture of a TensorBoard's curve."""
    wanted = urllib.parse.quote(f"^{tag}$")
    with browser() as tab:
        tab.open(f"{url}/?tagFilter={wanted}&smoothing=0#timeseries", WIDTH, HEIGHT)
        until(lambda: tab.value(IS_DRAWN), f"TensorBoard shows no curve {tag}")
        tab.value(ARRANGE)
        time.sleep(DRAWING_SECONDS)
        picture.write_bytes(base64.b64decode(tab.picture()))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
