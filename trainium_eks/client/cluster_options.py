"""Options that all researchers' commands share."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ClusterOptions:
    """Options that every command of a researcher has."""

    stack: str = "local"
    namespace: str | None = None
    """None for the stack's first."""
    outputs: Path | None = None
    """The stack's outputs in a file, for users without access to Pulumi."""
    kubeconfig: Path | None = None
    """File in place of the kubeconfig in the outputs, or the local cloud's."""
    directory: Path | None = None
    as_json: bool = False
    no_color: bool = False
