"""Notices beside the output of a command."""

import sys

from trainium_eks.kube.pod_text import printable


def notice(text: str) -> None:
    """Write a line beside the output, to standard error: a pipe gets the output alone."""
    sys.stderr.write(f"-- {printable(text)}\n")
    sys.stderr.flush()
