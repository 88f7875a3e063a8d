"""The ``trn`` command."""

import gc
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_ALIVE_SECONDS = 1.0


def main() -> None:
    """Run the ``trn`` command line. The commands are imported here, so that importing this package costs nothing."""
    # Importing makes a million objects that stay, and each collection of garbage goes through them.
    gc.set_threshold(200_000, 20, 100)
    _open_closed_streams()
    try:
        with notice_of_loading():
            from trainium_eks.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in ("rich", "typer"):
            raise
        sys.stderr.write(f"the Python package {error.name} is missing: pip install 'trainium-eks[cli]' brings trn\n")
        sys.exit(2)
    app(prog_name="trn")


@contextmanager
def notice_of_loading() -> Iterator[None]:
    """Say on a terminal that modules are loaded, if that takes more than a second, as the first time after a boot."""
    timer = threading.Timer(_ALIVE_SECONDS, lambda: sys.stderr.write("trn: loading its modules ...\n"))
    timer.daemon = True
    if sys.stderr.isatty():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _open_closed_streams() -> None:
    """Open ``/dev/null`` for standard streams that are closed (``trn jobs >&-``). Otherwise the next opened file would
    get the number of a stream, and the output of other programs."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
