"""Whose command it is. A module of its own, because every command's options need it and most are not run."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ClusterOptions:
    """Whose command it is: the options that every command of a researcher has."""

    stack: str = "local"
    namespace: str | None = None
    """None for the stack's first."""
    outputs: Path | None = None
    """The stack's outputs in a file, for those who cannot ask Pulumi."""
    kubeconfig: Path | None = None
    """Instead of the one in the outputs, or the local cloud's."""
    directory: Path | None = None
    as_json: bool = False
    no_color: bool = False
