"""Output to standard output, which may be full or closed."""

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from trainium_eks.client.failure import FAILED, Failure, complain
from trainium_eks.kube.pod_text import printable_json


def write(text: str) -> None:
    """Write all of it now.

    Raises:
        Failure: when it does not fit, as on a full disk.
        BrokenPipeError: when nobody reads any more (``trn plan | head``); the command ends quietly.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        # Python would write the rest of the buffer again at its end, and report the error.
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        raise Failure(FAILED, f"cannot write to standard output: {error.strerror}") from None


def write_json(document: Mapping[str, Any], *, indent: int | None = 2) -> None:
    """Write a document of ``--json``.

    Args:
        document: plain data, without infinite numbers.
        indent: None for one line, as in a stream of documents.

    Raises:
        Failure: when it does not fit.
        BrokenPipeError: when nobody reads any more.
    """
    text = json.dumps(document, indent=indent, ensure_ascii=False, allow_nan=False)
    write(printable_json(text) + "\n")


def tell(failure: Failure, *, as_json: bool) -> int:
    """Report the failure of a command and return its exit code: in words on stderr, with ``--json`` as a document on
    standard output."""
    if not as_json:
        return complain(failure)
    try:
        write_json(failure.to_json())
    except Failure as unwritten:
        return complain(unwritten)
    return failure.code
