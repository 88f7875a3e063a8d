"""The local cloud as the client sees it: kubeconfigs, processes, sizes of node groups, kept logs, files of volumes, and
images.

The client imports this module alone. Two imports are inside functions: with them comes the package cryptography, which
most commands need not load.
"""

import heapq
import os
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

from trainium_eks.local.agent import log_retention
from trainium_eks.local.agent.log_retention import KeptLine
from trainium_eks.local.control_plane import processes
from trainium_eks.local.images import images
from trainium_eks.local.images.installing import known_recipe
from trainium_eks.local.nodes import resizing
from trainium_eks.local.paths import Paths
from trainium_eks.local.runtime import beneath
from trainium_eks.local.runtime.isolation import Chosen
from trainium_eks.local.runtime.output import timestamp
from trainium_eks.local.spec.plan import Isolation
from trainium_eks.model.catalogue.instances import Catalogue

__all__ = ["Paths", "images", "known_recipe"]


def make_kubeconfig(paths: Paths, namespace: str) -> Path:
    """Return the file of a kubeconfig for a team's researcher, with the team's namespace in its context."""
    from trainium_eks.local.control_plane import researchers

    return researchers.kubeconfig(paths, namespace)


def resize_group(paths: Paths, eks_name: str, nodes: int, catalogue: Catalogue, waiting: Callable[[str], None]) -> None:
    """Set the number of nodes of a group, and wait until they are Ready."""
    resizing.resize(paths, eks_name, nodes, catalogue, waiting)


def list_processes(paths: Paths) -> set[str]:
    """Return the names of the stack's running processes."""
    return {each.name for each in processes.running(paths)}


def read_kept_logs(paths: Paths, namespace: str, since: datetime, wanted: Callable[[str], bool]) -> Iterator[KeptLine]:
    """Yield the lines that deleted pods left, in order of time; ``wanted`` decides by a pod's name."""
    pods = filter(wanted, log_retention.pods(paths.kept, namespace))
    files = (log_retention.lines(paths.kept, namespace, pod, timestamp(since.timestamp())) for pod in pods)
    return heapq.merge(*files, key=lambda line: line.stamp)


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


def free_port_of_pod(paths: Paths) -> int | None:
    """Return a free port for a pod on this machine's network; None where each pod has a network."""
    from trainium_eks.local.control_plane import ports

    chosen = Chosen.load(paths.pods)
    return None if chosen is None or chosen.isolation is Isolation.NET else ports.free_port(set())
