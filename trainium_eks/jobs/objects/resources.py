"""Resources of a gang's pod, from the catalogue: a whole node, less the needs of the cluster's own pods.

TorchX's named resources are no help here: its Trainium types request ``aws.amazon.com/neurondevice``, which the device
plugin no longer offers (torchx 0.7.0, ``specs/named_resources_aws.py``; Neuron SDK 2.20).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from trainium_eks.model.catalogue.instances import Catalogue, InstanceType

SYSTEM_MILLICPU = 1000
SYSTEM_MEMORY_MIB = 2048
"""CPU and memory left on each node for DaemonSets: the add-ons and charts that this library installs ask for about a
third of both, which a test compares."""

RESERVED_MILLICPU = 100
RESERVED_MEMORY_MB = 1024
"""CPU and memory by which TorchX's requests are less than the limits, which are given to it
(``kubernetes_scheduler.py``)."""

LOCAL_CPU = 1
LOCAL_MEMORY_MB = 3072
"""Memory of each pod of a job on the local cloud, where all of them share one machine."""

HUGE_PAGES = "hugepages-2Mi"
"""libfabric takes its buffers from them on GPU types (AWS' EFA guide); on Trainium the catalogue reserves none."""

_MIB = 2**20
_TRAINIUM_RANKS = (1, 2, 8, 32)


@dataclass(frozen=True)
class Resources:
    """Resources of one pod, as TorchX takes them."""

    cpu: int
    """Limit, whole CPUs; the request is :data:`RESERVED_MILLICPU` less."""
    memory_mb: int
    """Limit, 10^6 bytes; the request is :data:`RESERVED_MEMORY_MB` less."""
    devices: Mapping[str, int]
    """Extended resources and huge pages (bytes): request and limit."""

    @property
    def shared_memory_mib(self) -> int:
        """Return the size of ``/dev/shm``: half of the requested memory, as Linux gives it half of a machine's.

        Files written there count as the container's memory, so it must not be able to fill more than that.
        """
        return (self.memory_mb - RESERVED_MEMORY_MB) * 10**6 // _MIB // 2


def whole_node(instance: InstanceType) -> Resources:
    """Return all of a node that is free for a job."""
    millicpu = instance.allocatable_millicpu - SYSTEM_MILLICPU
    huge_mib = 2 * instance.hugepages_2mi
    memory_mib = instance.allocatable_memory_mib - huge_mib - SYSTEM_MEMORY_MIB
    return Resources(
        cpu=max((millicpu + RESERVED_MILLICPU) // 1000, 1),
        memory_mb=int(memory_mib * Fraction(_MIB, 10**6)) + RESERVED_MEMORY_MB,
        devices=_devices(instance) | ({HUGE_PAGES: huge_mib * _MIB} if huge_mib else {}),
    )


def local_share(instance: InstanceType) -> Resources:
    """Return the resources of a job on the local cloud: the node's devices, so that they are accounted for as on AWS,
    and no more CPU and memory than this machine can give to several pods. Huge pages are left out: no kubelet is there
    to hand them out."""
    return Resources(cpu=LOCAL_CPU, memory_mb=LOCAL_MEMORY_MB, devices=_devices(instance))


def allowed_ranks(instance: InstanceType) -> tuple[int, ...]:
    """Return the numbers of ranks that a node of the type may have, in order: one a core (Neuron), one a GPU, one a
    virtual CPU.

    PyTorch/XLA on Trn1 takes 1, 2, 8 or 32 processes a node, no other number.
    """
    cores = {"neuron": instance.logical_neuron_cores, "nvidia": instance.accelerators}.get(instance.family)
    most = cores or instance.vcpus
    if instance.accelerator == "Trainium":
        return tuple(count for count in _TRAINIUM_RANKS if count <= most)
    return tuple(range(1, most + 1))


def needs_fabric(instance: InstanceType) -> bool:
    """Return whether nodes of the type train together over EFA alone. Types that are sold without it are for one
    node."""
    return instance.family == "neuron"


def _devices(instance: InstanceType) -> dict[str, int]:
    return Catalogue({instance.name: instance}).device_resources(instance.name)
