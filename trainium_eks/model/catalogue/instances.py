"""The catalogue: every fact about an instance type that this project uses.

Nothing here is looked up at run time. Sources and dates are in :mod:`trainium_eks.model.catalogue.instance_data`;
:func:`~trainium_eks.model.catalogue.instance_entries.with_entries` adds and changes entries from the stack's config
(``instanceTypes``).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from trainium_eks.model.catalogue import instance_data, instance_zones
from trainium_eks.model.catalogue.regions import REGIONS
from trainium_eks.model.validation.problems import Problem, nearest

EFA_RESOURCE = "vpc.amazonaws.com/efa"
"""Resource of the EFA device plugin in a pod's requests; one for each EFA interface."""

NEURON_RESOURCE = "aws.amazon.com/neuron"
"""Resource of the Neuron device plugin in a pod's requests; one for each device. ``aws.amazon.com/neurondevice`` is
gone (Neuron SDK 2.20)."""

NEURON_CORE_RESOURCE = "aws.amazon.com/neuroncore"
"""Resource of single Neuron cores, which the plugin also offers; a training job should request whole devices."""

NVIDIA_RESOURCE = "nvidia.com/gpu"
"""Resource of the NVIDIA device plugin in a pod's requests."""

ULTRASERVER = "neuron.amazonaws.com/ultraserver"
"""Start of all labels by which Neuron's device plugin names a node's place in an UltraServer."""

INSTANCE_TYPE_LABEL = "node.kubernetes.io/instance-type"
"""Label with a node's EC2 type; the kubelet sets it."""

DEVICE_RESOURCES: Mapping[str, str] = MappingProxyType(
    {"neuron": NEURON_RESOURCE, "nvidia": NVIDIA_RESOURCE, "cpu": ""}
)
"""Family to the resource that its device plugin offers."""

AMI_TYPES: Mapping[str, str] = MappingProxyType(
    {"neuron": "AL2023_x86_64_NEURON", "nvidia": "AL2023_x86_64_NVIDIA", "cpu": "AL2023_x86_64_STANDARD"}
)
"""Family to EKS' AMI type. Driver, tools and EFA are in the two accelerated ones."""

EKS_EFFECTS: Mapping[str, str] = MappingProxyType(
    {"NoSchedule": "NO_SCHEDULE", "PreferNoSchedule": "PREFER_NO_SCHEDULE", "NoExecute": "NO_EXECUTE"}
)
"""Taint effect in Kubernetes' spelling to EKS'."""

Family = Literal["neuron", "nvidia", "cpu"]
InterfaceLayout = Literal["efa-only", "ena", "none"]


@dataclass(frozen=True)
class Taint:
    """A node taint, as Kubernetes spells it."""

    key: str
    value: str
    effect: str
    """``NoSchedule``, ``PreferNoSchedule`` or ``NoExecute``."""

    @property
    def eks_effect(self) -> str:
        """The effect as EKS' node group API spells it (``NO_SCHEDULE``)."""
        return EKS_EFFECTS[self.effect]


FABRIC_UNTESTED = Taint("trainium-eks/fabric-untested", "true", "NoSchedule")
"""Taint of a gated node until the fabric test has passed on it, since its last boot."""


@dataclass(frozen=True)
class Price:
    """A Linux On-Demand list price."""

    hourly_usd: float
    date: str
    """Day of the price list, ``2026-07-20``."""
    region: str
    """Region that the price is of; others differ."""


@dataclass(frozen=True)
class InstanceType:
    """One EC2 instance type."""

    name: str
    """``trn1.32xlarge``."""
    family: Family
    """Decides device plugin, AMI and taint."""
    accelerator: str
    """``Trainium``, ``Trainium2``, ``Inferentia2``, ``A100-40``, ``H100`` …; empty for CPU types."""
    accelerators: int
    """Devices that the plugin offers."""
    neuron_cores: int
    """Physical Neuron cores."""
    logical_neuron_cores: int
    """Neuron cores that a process sees by default: half the physical ones on Trainium2 (LNC=2)."""
    accelerator_memory_gib: int
    """Memory of all accelerators together, GiB."""
    ultraserver_nodes: int
    """Nodes of an UltraServer, whose accelerators are one NeuronLink domain: 4 for trn2u.48xlarge, else 0."""
    vcpus: int
    """Virtual CPUs; what EC2's quotas count."""
    memory_gib: int
    """Main memory, GiB."""
    network_cards: int
    """Network cards; EFA takes one interface on each."""
    interfaces_per_card: int
    """Interfaces that a card takes."""
    efa_interfaces: int
    """Most EFA interfaces; 0 where EFA is not supported."""
    first_efa_card: int
    """First card that takes EFA: 0, but 1 on p6-b300.48xlarge, where card 0 is plain ENA."""
    interface_layout: InterfaceLayout
    """Default layout of the interfaces: ``efa-only`` (card 0 ``efa``, the others ``efa-only``), ``ena`` (card 0 a plain
    interface, EFA on the others) or ``none``."""
    ipv4_per_interface: int
    """IPv4 addresses of one interface, its own included."""
    local_disks: int
    """NVMe disks of the instance."""
    local_disk_gb: int
    """Size of each, GB."""
    ami_type: str
    """EKS' AMI type."""
    allocatable_millicpu: int
    """CPU that pods can have, thousandths of a vCPU (:func:`allocatable_millicpu`)."""
    allocatable_memory_mib: int
    """Memory that pods can have, MiB, before hugepages are taken off (:func:`allocatable_memory_mib`)."""
    max_pods: int
    """Most pods a node takes with the VPC CNI's addresses (:func:`max_pods`)."""
    hugepages_2mi: int
    """Hugepages of 2 MiB that user data reserves: 2560 (5120 MiB) on GPU types with EFA, 0 on Trainium."""
    zones: Mapping[str, tuple[str, ...]]
    """Region to the ids of the zones that offer the type."""
    usage: frozenset[str]
    """How EC2 offers it: ``on-demand``, ``spot``, ``capacity-block``."""
    hourly_usd: float | None
    """Linux On-Demand list price, or None where none was found."""
    price_date: str
    """Day of the price list; empty without a price."""
    price_region: str
    """Region of the price; empty without a price."""
    quota_on_demand: str
    """Code of the EC2 quota (in vCPU) for On-Demand launches."""
    quota_spot: str
    """Code of the EC2 quota (in vCPU) for Spot requests; empty where none is known."""
    sagemaker_name: str | None
    """Name as a SageMaker training instance, or None."""
    block_hourly_usd: float | None = None
    """Price of an instance of a Capacity Block for an hour, or None where none was found."""

    @property
    def device_resource(self) -> str:
        """The resource that its pods request: ``aws.amazon.com/neuron``, ``nvidia.com/gpu`` or empty."""
        return DEVICE_RESOURCES[self.family]

    @property
    def has_efa(self) -> bool:
        """Whether the type takes EFA interfaces."""
        return self.efa_interfaces > 0


_SPELLED = re.compile(r"(?:ml\.)?(?P<family>[a-z]+)(?P<generation>\d+)[a-z0-9-]*\.(?P<size>\d*)x")


def near(name: str, types: Iterable[str]) -> str | None:
    """Return the type that a name misspells, or None. The type has the generation of the name and about its size, hence
    its price: g5.8xlarge is no misspelling of p5.48xlarge."""
    wanted = _SPELLED.match(name.lower())
    return nearest(name, [each for each in types if wanted and _alike(wanted, each)], same_numbers=False)


def _alike(wanted: re.Match[str], name: str) -> bool:
    other = _SPELLED.match(name)
    if other is None or other["generation"] != wanted["generation"]:
        return False
    less, more = sorted(int(each["size"] or 1) for each in (wanted, other))
    # One wrong letter leaves trn what it is, and makes a g of a p.
    same = other["family"] == wanted["family"]
    same |= len(other["family"]) > 2 and len({*other["family"]} & {*wanted["family"]}) > 1
    return same and more <= 1.5 * less


class UnknownInstanceTypeError(ValueError):
    """A type that the catalogue does not have; :attr:`nearest` is the type that was probably meant."""

    def __init__(self, name: str, known: Mapping[str, object]) -> None:
        self.name = name
        self.nearest = near(name, known)
        hint = f"did you mean {self.nearest}?" if self.nearest else f"known: {', '.join(sorted(known))}"
        super().__init__(f"unknown instance type {name!r}; {hint}")


class CatalogueError(ValueError):
    """Entries that are not a valid type. ``problems`` has one entry for each fault, its path starting with the name."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        super().__init__("; ".join(f"{problem.path}: {problem.reason}" for problem in problems))


class Catalogue(Mapping[str, InstanceType]):
    """Instance types by name. Immutable; :meth:`with_entries` makes another one."""

    def __init__(self, types: Mapping[str, InstanceType], *, is_gated: bool = False) -> None:
        self._types = dict(types)
        self.is_gated = is_gated
        """Whether nodes with accelerators are closed until the fabric test has passed on them."""

    def __getitem__(self, name: str) -> InstanceType:
        return self._types[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._types)

    def __len__(self) -> int:
        return len(self._types)

    def __deepcopy__(self, memo: dict[int, object]) -> "Catalogue":
        """Return the catalogue itself: it is immutable, and pydantic copies the defaults of fields."""
        return self

    def __repr__(self) -> str:
        return f"Catalogue({', '.join(self._types)})"

    def find(self, name: str) -> InstanceType:
        """Return the type of a name; UnknownInstanceTypeError has the nearest name."""
        if name not in self._types:
            raise UnknownInstanceTypeError(name, self._types)
        return self._types[name]

    def offered(self, name: str, region: str) -> tuple[str, ...]:
        """Return the ids of the region's zones that offer the type, sorted; empty when it is not offered there. This
        and all methods below raise UnknownInstanceTypeError for a name the catalogue does not have."""
        return self.find(name).zones.get(region, ())

    def device_resources(self, name: str) -> dict[str, int]:
        """Return the extended resources that a whole-node pod requests: devices, and EFA interfaces if the type has
        them."""
        kind = self.find(name)
        resources = {kind.device_resource: kind.accelerators, EFA_RESOURCE: kind.efa_interfaces}
        return {resource: count for resource, count in resources.items() if resource and count}

    def allocatable(self, name: str) -> dict[str, str]:
        """Return the resources of one node that pods can request, as Kubernetes quantities: cpu, memory, pods,
        hugepages, devices, EFA.

        Neuron nodes also show their cores. Memory is less the hugepages, which the kubelet takes from it.
        """
        kind = self.find(name)
        quantities = {
            "cpu": f"{kind.allocatable_millicpu}m",
            "memory": f"{kind.allocatable_memory_mib - 2 * kind.hugepages_2mi}Mi",
            "pods": str(kind.max_pods),
        }
        if kind.hugepages_2mi:
            quantities["hugepages-2Mi"] = f"{2 * kind.hugepages_2mi}Mi"
        if kind.logical_neuron_cores:
            quantities[NEURON_CORE_RESOURCE] = str(kind.logical_neuron_cores)
        return quantities | {resource: str(count) for resource, count in self.device_resources(name).items()}

    def node_labels(self, name: str) -> dict[str, str]:
        """Return the labels that a node group of the type sets, in addition to the labels of Kubernetes and EKS.

        NVIDIA's charts select nodes by ``nvidia.com/gpu.present``.
        """
        kind = self.find(name)
        labels = {f"{kind.device_resource}.present": "true"} if kind.device_resource else {}
        return labels | ({f"{EFA_RESOURCE}.present": "true"} if kind.has_efa else {})

    def taints(self, name: str) -> tuple[Taint, ...]:
        """Return the taints of the type's nodes: one, keyed by the device resource, for accelerators; none for CPU
        types.

        With that key, EKS' ExtendedResourceToleration admission adds the toleration to pods that request the resource.
        """
        resource = self.find(name).device_resource
        return (Taint(resource, "true", "NoSchedule"),) if resource else ()

    def startup_taints(self, name: str) -> tuple[Taint, ...]:
        """Return the taints that the type's nodes join with, and that a controller takes off. Pods that must run on
        every node tolerate them; autoscalers disregard them when they look for room."""
        return (FABRIC_UNTESTED,) if self.is_gated and self.find(name).device_resource else ()

    def price(self, name: str, capacity: str = "") -> Price | None:
        """Return the type's list price with its date and region, or None where none is known; of ``capacity-block``
        that of Capacity Blocks where it is known, which is of no one region."""
        kind = self.find(name)
        if capacity == "capacity-block" and kind.block_hourly_usd is not None:
            return Price(kind.block_hourly_usd, instance_data.BLOCK_PRICE_DATE, "")
        if kind.hourly_usd is None:
            return None
        return Price(kind.hourly_usd, kind.price_date, kind.price_region)


def allocatable_millicpu(vcpus: int) -> int:
    """Return the CPU left to pods, millicores: EKS' nodes reserve 6 % of the first vCPU, 1 % of the second, half a
    percent of the next two, a quarter of a percent of each further one (nodeadm in awslabs/amazon-eks-ami).
    """
    first, second, next_two = min(vcpus, 1), min(max(vcpus - 1, 0), 1), min(max(vcpus - 2, 0), 2)
    reserved_tenths = 600 * first + 100 * second + 50 * next_two + 25 * max(vcpus - 4, 0)
    return 1000 * vcpus - reserved_tenths // 10


def allocatable_memory_mib(memory_gib: int, address_pods: int) -> int:
    """Return the memory left to pods, MiB.

    Karpenter's estimate: 7.5 % for hypervisor and kernel, then the kubelet's reserve of 255 MiB and 11 MiB a pod, and
    its eviction threshold of 100 MiB. Its published figures for trn1, trn2, p4d and p5 agree with this formula; a real
    node shows somewhat more.
    """
    return int(memory_gib * 1024 * 0.925 - (255 + 11 * address_pods) - 100)


def address_pods(interfaces_per_card: int, ipv4_per_interface: int) -> int:
    """Return the number of pods for card 0's addresses, plus two on the host network; the kubelet's reserve counts
    these."""
    return interfaces_per_card * (ipv4_per_interface - 1) + 2


def max_pods(vcpus: int, pods: int) -> int:
    """Return the most pods of a node: managed node groups allow 110 below 30 vCPU and 250 above, even with more
    addresses."""
    return min(pods, 110 if vcpus < 30 else 250)


def _from_facts(facts: Mapping[str, Any]) -> InstanceType:
    zones = instance_zones.ZONES
    pods = address_pods(facts["interfaces_per_card"], facts["ipv4_per_interface"])
    return InstanceType(
        **facts,
        interface_layout="none" if not facts["efa_interfaces"] else "ena" if facts["first_efa_card"] else "efa-only",
        ami_type=AMI_TYPES[facts["family"]],
        allocatable_millicpu=allocatable_millicpu(facts["vcpus"]),
        allocatable_memory_mib=allocatable_memory_mib(facts["memory_gib"], pods),
        max_pods=max_pods(facts["vcpus"], pods),
        zones=MappingProxyType(
            {
                region: tuple(f"{REGIONS[region].zone_prefix}-az{digit}" for digit in digits)
                for region, digits in (zones.get(facts["name"]) or zones[facts["name"].partition(".")[0]]).items()
            }
        ),
    )


CATALOGUE = Catalogue({facts["name"]: _from_facts(facts) for facts in instance_data.rows()})
"""Every type that the project knows."""
