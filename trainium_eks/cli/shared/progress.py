"""The progress of copies and builds in the cluster, for people."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from trainium_eks.cli.shared.console import Console
from trainium_eks.client.notices import unrepeated
from trainium_eks.kube.pod_text import LINE_CHARACTERS, json_object, whole

_LINE_SECONDS = 15.0
"""Seconds between two lines where no bar can be shown."""
_STEP = 1000.0


class ShownProgress:
    """Display of the copier's progress on stderr: a bar on a terminal, a line from time to time elsewhere."""

    def __init__(self, console: Console, bar: Progress | None) -> None:
        self.say = unrepeated(lambda text: console.print(Text(text), soft_wrap=True))
        """Prints a line, unless it repeats the last one."""
        self._bar = bar
        self._task: TaskID | None = None
        self._shown_at = 0.0
        self.last: Mapping[str, Any] = {}
        """The last line of the copier; empty where there was none."""

    def waiting(self, why: str) -> None:
        """Print the reason of a wait."""
        self.say(f"Waiting: {why}")

    def line(self, text: str) -> None:
        """Show one line of the copier's log."""
        found = json_object(text)
        if found is None:
            self.say(text[:LINE_CHARACTERS])
            return
        if "stage" not in found:
            return
        self.last = found
        if found.get("message") and found["stage"] not in ("complete", "unchanged", "failed"):
            self.say(str(found["message"]))
        if "bytes" in found:
            self._show(found)

    def count(self, key: str) -> int:
        """Return a number of the last line, or 0."""
        return whole(self.last.get(key)) or 0

    def _show(self, found: Mapping[str, Any]) -> None:
        words = described(found)
        if self._bar is None:
            if time.monotonic() - self._shown_at >= _LINE_SECONDS and self.count("total_bytes"):
                self._shown_at = time.monotonic()
                self.say(words)
            return
        if self._task is None:
            self._task = self._bar.add_task(words, total=None)
        total = self.count("total_bytes") or None
        self._bar.update(self._task, completed=self.count("bytes"), total=total, description=words)


@contextmanager
def shown_progress(*, no_color: bool = False) -> Iterator[ShownProgress]:
    """Yield a display of the progress, and remove its bar at the end."""
    console = Console(stderr=True, no_color=no_color or None, highlight=False, emoji=False)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn(compact=True))
    bar = Progress(*columns, console=console, transient=True) if console.is_terminal else None
    with bar or nullcontext():
        yield ShownProgress(console, bar)


def described(line: Mapping[str, Any]) -> str:
    """Return a line of the copier in words: ``copying 1.2 of 30.0 GB, 0 of 1 files, 105.3 MB/s``."""
    size, total, files, all_files, rate = (
        whole(line.get(key)) or 0 for key in ("bytes", "total_bytes", "files", "total_files", "rate")
    )
    done = f"{amount(size)} of {amount(total)}" if total else amount(size)
    return f"{line['stage']} {done}, {files} of {all_files} files, {amount(rate)}/s"


def amount(count: float) -> str:
    """Return a number of bytes in units of a thousand, as disks and links are sold: ``1.5 GB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < _STEP:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= _STEP
    return f"{count:.1f} TB"
