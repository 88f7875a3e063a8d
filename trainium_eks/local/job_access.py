"""The local cloud as new jobs need it: images, sizes of node groups, and free ports."""

from collections.abc import Callable

from trainium_eks.local.control_plane import ports
from trainium_eks.local.images import images
from trainium_eks.local.images.installing import known_recipe
from trainium_eks.local.nodes import resizing
from trainium_eks.local.paths import Paths
from trainium_eks.local.runtime.isolation import Chosen
from trainium_eks.local.spec.plan import Isolation
from trainium_eks.model.catalogue.instances import Catalogue

__all__ = ["images", "known_recipe"]


def resize_group(paths: Paths, eks_name: str, nodes: int, catalogue: Catalogue, waiting: Callable[[str], None]) -> None:
    """Set the number of nodes of a group, and wait until they are Ready."""
    resizing.resize(paths, eks_name, nodes, catalogue, waiting)


def free_port_of_pod(paths: Paths) -> int | None:
    """Return a free port for a pod on this machine's network; None where each pod has a network."""
    chosen = Chosen.load(paths.pods)
    return None if chosen is None or chosen.isolation is Isolation.NET else ports.free_port(set())
