"""The files of a local cloud's stack."""

from pathlib import Path

from trainium_eks.client.failure import UsageError
from trainium_eks.client.project import find_project
from trainium_eks.client.stack_check import check_stack
from trainium_eks.local.paths import Paths


def paths_of(stack: str, directory: Path | None) -> Paths:
    """Return the stack's files. A stack that was removed from the project may still have some."""
    project = find_project(directory)
    paths = Paths.of(project, stack)
    if not paths.root.exists():
        check_stack(project, stack)
    return paths


def kubeconfig_of(stack: str, directory: Path | None) -> Path:
    """Return the administrator's kubeconfig; a :class:`CommandError` where the stack was not started."""
    file = paths_of(stack, directory).kubeconfig
    if not file.is_file():
        raise UsageError(f"{stack} is not on this machine; start it with `trn local up -s {stack}`")
    return file
