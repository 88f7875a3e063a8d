"""The local cloud as jobs need it: images, sizes of node groups, free ports, and the logs of deleted pods."""

import heapq
from collections.abc import Callable, Iterator
from datetime import datetime

from trainium_eks.local.agent import log_retention
from trainium_eks.local.agent.log_retention import KeptLine
from trainium_eks.local.control_plane import ports
from trainium_eks.local.images import images
from trainium_eks.local.images.installing import known_recipe
from trainium_eks.local.nodes import resizing
from trainium_eks.local.paths import Paths
from trainium_eks.local.runtime.isolation import Chosen
from trainium_eks.local.runtime.output import timestamp
from trainium_eks.local.spec.plan import Isolation
from trainium_eks.model.catalogue.instances import Catalogue

__all__ = ["images", "known_recipe"]


def resize_group(paths: Paths, eks_name: str, nodes: int, catalogue: Catalogue, waiting: Callable[[str], None]) -> None:
    """Set the number of nodes of a group, and wait until they are Ready."""
    resizing.resize(paths, eks_name, nodes, catalogue, waiting)


def read_kept_logs(paths: Paths, namespace: str, since: datetime, wanted: Callable[[str], bool]) -> Iterator[KeptLine]:
    """Yield the lines that deleted pods left, in order of time; ``wanted`` decides by a pod's name."""
    pods = filter(wanted, log_retention.pods(paths.kept, namespace))
    files = (log_retention.lines(paths.kept, namespace, pod, timestamp(since.timestamp())) for pod in pods)
    return heapq.merge(*files, key=lambda line: line.stamp)


def free_port_of_pod(paths: Paths) -> int | None:
    """Return a free port for a pod on this machine's network; None where each pod has a network."""
    chosen = Chosen.load(paths.pods)
    return None if chosen is None or chosen.isolation is Isolation.NET else ports.free_port(set())
