"""Signals that a command handles for a while."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def handled(handler: Callable[[int, object], None], *names: str) -> Iterator[None]:
    """Handle signals (``SIGTERM``) until the end of the block; in the main thread, as other threads get none. A signal
    that the system lacks is left out."""
    is_main = threading.current_thread() is threading.main_thread()
    numbers = [getattr(signal, name) for name in names if is_main and hasattr(signal, name)]
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
