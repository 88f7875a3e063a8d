"""Output to standard output, which may be full or closed."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import typer

from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import INTERRUPTED, CommandError, as_typed, complain
from trainium_eks.client.notices import say
from trainium_eks.kube.pod_text import printable_json

SCHEMA_VERSION = 1
"""Version of the documents of researchers' commands; changes when a field is removed or changes meaning."""


def write(text: str) -> None:
    """Write all of it now; a full disk is a failure, and a reader that has gone (``trn plan | head``) a
    ``BrokenPipeError``, which ends the command quietly."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        # Python would write the rest of the buffer again at its end, and report the error.
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        raise CommandError(f"cannot write to standard output: {error.strerror}") from None


def write_json(document: Mapping[str, Any], *, indent: int | None = 2) -> None:
    """Write a document of ``--json``: plain data without infinite numbers; indent None for one line, as in a stream."""
    text = json.dumps(document, indent=indent, ensure_ascii=False, allow_nan=False)
    write(printable_json(text) + "\n")


def answer(cluster: ClusterOptions, document: Mapping[str, Any], text: str) -> None:
    """Write the result of a researcher's command: with ``--json`` the document with its version, else the text."""
    if cluster.as_json:
        write_json({"schemaVersion": SCHEMA_VERSION, **document})
    else:
        write(f"{text}\n")


@contextmanager
def still_running(text: str) -> Iterator[None]:
    """End the command on Ctrl-C, and say on standard error which work continues in the background."""
    try:
        yield
    except KeyboardInterrupt:
        say(as_typed(f"\n{text}"))
        raise typer.Exit(INTERRUPTED) from None


def tell(failure: CommandError, *, as_json: bool) -> int:
    """Report the failure of a command and return its exit code: in words on stderr, with ``--json`` as a document on
    standard output."""
    if not as_json:
        return complain(failure)
    try:
        write_json(failure.to_json())
    except CommandError as unwritten:
        return complain(unwritten)
    return failure.code
