"""Work of some ranks, for which the others wait: a download, tokens."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import TypeVar

from trainium_workloads.training.backends import Backend
from trainium_workloads.training.refusal import RefusalError

_SIGN_OF_LIFE_SECONDS = 60.0
"""While a rank works. A group that hears nothing for half an hour takes it for dead, and billions of tokens take longer
to make."""

_Made = TypeVar("_Made")


def made_by(backend: Backend, makes: bool, make: Callable[[], _Made]) -> _Made | None:
    """Return the result in the ranks that make it, and None in the others, once all of the first are done; a Refusal is
    raised in all ranks, so that all of them end alike."""
    found, refused = None, ""
    with ThreadPoolExecutor(1) as pool:
        making = [pool.submit(make)] if makes else []
        while backend.any(bool(wait(making, _SIGN_OF_LIFE_SECONDS).not_done)):
            pass
        try:
            found = making[0].result() if making else None
        except RefusalError as refusal:
            refused = str(refusal)
    if backend.any(bool(refused)):
        said = backend.share(refused)
        raise RefusalError(refused or said or "another rank was refused; its line says why")
    return found


def made_by_first(backend: Backend, make: Callable[[], Path]) -> Path:
    """Return rank 0's path in all ranks, or raise rank 0's Refusal in all."""
    return Path(backend.share(str(made_by(backend, backend.rank == 0, make) or "")))
