"""Draws ``docs/train.svg``: a session of a researcher on the local cloud that runs here, as a terminal shows it.

PYTHONPATH=. python docs/terminal_picture.py
"""

import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "train.svg"
WIDTH = 110
PAUSE_SECONDS = 20
"""Time for the job's first steps, between its submission and a look at it."""

SESSION = ("train --example gradient-sum --name demo", "status demo")


def run(command: str) -> str:
    """Return the output of a ``trn`` command on a terminal, with its colours."""
    ours, its = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(WIDTH), "TERM": "xterm-256color", "PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-m", "trainium_eks.cli", *command.split()]
    process = subprocess.Popen(line, cwd=ROOT, env=environment, stdin=its, stdout=its, stderr=its)
    os.close(its)
    shown = b""
    try:
        while part := os.read(ours, 65536):
            shown += part
    except OSError:  # how Linux says that the terminal's other end is closed
        pass
    if process.wait():
        sys.exit(f"trn {command}:\n{shown.decode()}")
    return shown.decode().replace("\r\n", "\n").rstrip()


def main() -> None:
    """Run the session and write the picture."""
    console = Console(record=True, file=open(os.devnull, "w"), width=WIDTH, force_terminal=True, highlight=False)  # noqa: SIM115
    for number, command in enumerate(SESSION):
        if number:
            time.sleep(PAUSE_SECONDS)
        console.print(f"$ ./trn {command}", style="bold green")
        console.print(Text.from_ansi(run(command)))
    svg = console.export_svg(title="a training job", unique_id="train")
    # A picture in a page may load nothing: readers' own monospace font does as well.
    PICTURE.write_text(re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL), encoding="utf-8")


if __name__ == "__main__":
    main()
