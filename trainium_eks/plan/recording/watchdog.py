"""Detection of a stuck program: by its steps. A clock runs on while a busy machine lets the program wait."""

from collections.abc import Callable
from dataclasses import dataclass

_LOOKS = 10


@dataclass
class Steps:
    """Counter of a program's steps. It may be read from another thread."""

    count: int = 0

    def step(self) -> None:
        """Count the beginning or end of a task."""
        self.count += 1


class Standstill:
    """Detector of a standstill by repeated looks: the state has not changed in all of the last looks.

    Looks are counted and not time: a watcher that gets no turn on the processor does not look meanwhile, either.
    """

    def __init__(self, state: Callable[[], object], limit_seconds: float, every_seconds: float | None = None) -> None:
        self.every_seconds = limit_seconds / _LOOKS if every_seconds is None else every_seconds
        self._looks = max(1, round(limit_seconds / self.every_seconds))
        self._state = state
        self._seen, self._still = state(), 0

    def look(self) -> bool:
        """Look once; return true when nothing has moved for too long."""
        now = self._state()
        self._still = self._still + 1 if now == self._seen else 0
        self._seen = now
        return self._still >= self._looks
