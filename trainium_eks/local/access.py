"""The local cloud as the client sees it: kubeconfigs, processes, and files of volumes.

The client imports this module, :mod:`.job_access` and :mod:`.kept_logs`; this one, which every command needs, loads
little.
"""

import os
from pathlib import Path

from trainium_eks.local.control_plane import processes, researchers
from trainium_eks.local.paths import Paths
from trainium_eks.local.runtime import beneath


def make_kubeconfig(paths: Paths, namespace: str) -> Path:
    """Return the file of a kubeconfig for a team's researcher, with the team's namespace in its context."""
    return researchers.kubeconfig(paths, namespace)


def list_processes(paths: Paths) -> set[str]:
    """Return the names of the stack's running processes."""
    return {each.name for each in processes.running(paths)}


def find_file(paths: Paths, namespace: str, claim: str, name: str) -> Path | None:
    """Return a file or directory of a claim's volume; None for a missing one, and for a link that leaves it."""
    return beneath.real_path(paths.claims / namespace / claim, name)


def list_files(paths: Paths, namespace: str, claim: str, directory: str) -> tuple[str, ...]:
    """Return the names in a directory of a claim's volume; none where it is absent, or leads out of the volume."""
    try:
        found = beneath.opened(paths.claims / namespace / claim, directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return ()
    try:
        return tuple(sorted(os.listdir(found)))
    finally:
        os.close(found)
