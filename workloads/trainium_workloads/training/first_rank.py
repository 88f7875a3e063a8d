"""Work of rank 0 alone, for which the other ranks wait: a download, tokens."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from pathlib import Path

from trainium_workloads.training.backends import Backend
from trainium_workloads.training.refusal import Refusal

_SIGN_OF_LIFE_SECONDS = 60.0
"""While rank 0 works. A group that hears nothing for half an hour takes it for dead, and billions of tokens take longer
to make."""


def made_by_first(backend: Backend, make: Callable[[], Path]) -> Path:
    """Return rank 0's path in all ranks.

    Raises:
        Refusal: rank 0's, in all ranks, so that all of them end alike.
    """

    def told() -> str:
        try:
            return json.dumps({"path": str(make())})
        except Refusal as refusal:
            return json.dumps({"refusal": str(refusal)})

    with ThreadPoolExecutor(1) as pool:
        making = pool.submit(told) if backend.rank == 0 else None
        said = ""
        while not said:
            if making is not None:
                with suppress(NotYet):
                    said = making.result(timeout=_SIGN_OF_LIFE_SECONDS)
            said = backend.share(said)
    found = json.loads(said)
    if "refusal" in found:
        raise Refusal(found["refusal"])
    return Path(found["path"])
