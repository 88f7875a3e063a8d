"""Notices beside the output of a command."""

import sys
from collections.abc import Callable

from trainium_eks.client.failure import as_typed
from trainium_eks.kube.pod_text import printable

Say = Callable[[str], None]
"""A function that shows a line to the user."""


def notice(text: str) -> None:
    """Write a line beside the output, to standard error: a pipe gets the output alone."""
    sys.stderr.write(f"-- {printable(as_typed(text))}\n")
    sys.stderr.flush()
