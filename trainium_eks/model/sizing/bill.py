"""The running cost of an environment, as lines for the config and for the recorded program alike.

List prices come from :mod:`trainium_eks.model.catalogue.prices` and the catalogue. Usage charges (traffic, requests,
stored data) are named and not estimated; resources without a known price are named and never counted as free.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from trainium_eks.model.catalogue import prices, sagemaker_hosting, versions
from trainium_eks.model.catalogue.instances import CATALOGUE, Catalogue
from trainium_eks.model.config import observability, stack_config
from trainium_eks.model.config.node_groups import ROOT_THROUGHPUT_MIBPS, root_volume_gib
from trainium_eks.model.config.stack_config import StackConfig

BY_USE = (
    "NAT and cross-zone traffic",
    "logs",
    "alarms",
    "stored images, objects and backups",
    "volumes that workloads claim",
    "samples in Amazon Managed Prometheus",
    "users of Amazon Managed Grafana",
)
"""Usage charges, which no line counts."""


@dataclass(frozen=True)
class Line:
    """One kind of resource with its price."""

    what: str
    """``trn1.32xlarge``, ``NAT gateway``."""
    quantity: float
    """Number at first."""
    maximum: float
    """Number when every group is at its largest."""
    unit_hourly_usd: float | None
    """Price of one for an hour, or None where no price is known."""
    note: str = ""
    """Remark on the price; empty without one."""
    settings: str = ""
    """Inputs that may decide an unknown price: with others it may be another price."""

    @property
    def hourly_usd(self) -> float | None:
        """Price of all for an hour; 0 for a quantity of 0, even if the price is unknown."""
        return _times(self.quantity, self.unit_hourly_usd)

    @property
    def maximum_hourly_usd(self) -> float | None:
        """The same at the largest sizes."""
        return _times(self.maximum, self.unit_hourly_usd)


L = TypeVar("L", bound=Line)


@dataclass(frozen=True)
class Bill(Generic[L]):
    """The lines of an environment, or of a part of it."""

    lines: tuple[L, ...]

    @property
    def hourly_usd(self) -> float:
        """Sum of the lines with a known price, USD an hour."""
        return sum(line.hourly_usd or 0.0 for line in self.lines)

    @property
    def maximum_hourly_usd(self) -> float:
        """The same with every group at its largest."""
        return sum(line.maximum_hourly_usd or 0.0 for line in self.lines)

    @property
    def monthly_usd(self) -> float:
        """The same sum for a month of 730 hours, USD."""
        return self.hourly_usd * prices.HOURS_PER_MONTH

    @property
    def unknown(self) -> tuple[str, ...]:
        """Names of the resources without a known price, each once."""
        return unknown(self.lines)


def unknown(lines: Iterable[Line]) -> tuple[str, ...]:
    """Return the names of resources without a known price, each once; lines with a maximum of 0 are skipped."""
    return tuple(dict.fromkeys(line.what for line in lines if line.unit_hourly_usd is None and line.maximum))


def of_config(config: StackConfig) -> Bill[Line]:
    """Return the bill of a valid config's environment."""
    catalogue = stack_config.catalogue(config)
    zones = len(stack_config.zone_ids(config))
    cluster = config.cluster
    lines = [control_plane(cluster.kubernetes_version, cluster.support_type), encryption_keys(1)]
    lines += control_plane_tier(cluster.control_plane_tier)
    if config.existing_network is None:
        gateways = zones if config.network.nat_gateways == "per-zone" else 1
        lines += [nat_gateways(gateways), public_addresses(gateways)]
        lines.append(interface_endpoints(len(config.network.interface_endpoints) * zones))
    for nodes, copies in ((cluster.system_nodes, zones), (cluster.cpu_nodes, 1)):
        sizes = (nodes.desired_size * copies, nodes.max_size * copies)
        lines += node_group(nodes.instance_type, *sizes, nodes.root_volume_gib, catalogue)
    for group in config.node_groups:
        gib = root_volume_gib(group, catalogue.find(group.instance_type))
        sizes = (group.desired_size, group.max_size)
        lines += node_group(group.instance_type, *sizes, gib, catalogue, capacity=group.capacity.type)
    if config.file_system is not None:
        own = config.file_system
        lines += file_system(own.storage_capacity_gib, own.deployment_type, own.throughput_per_tib, own.metadata_iops)
    for each in config.sage_maker_endpoints:
        lines.append(endpoint(each.instance_type, each.instances, each.max_instances or each.instances, catalogue))
    lines += [claimed_volume(gib) for gib in observability.claimed_gib(config.observability)]
    return Bill(tuple(line for line in lines if line.maximum))


def control_plane(kubernetes_version: str, support_type: str) -> Line:
    """Return the line of an EKS control plane. A version past its standard support costs the extended price. The note
    names the day on which that begins with ``EXTENDED``, and the end of a version that nothing certified follows."""
    support = versions.KUBERNETES_STANDARD_SUPPORT.get(kubernetes_version)
    ends = str(support.standard_end) if support else ""
    extended = support is not None and not support.is_standard
    price = prices.EKS_EXTENDED_HOURLY if extended else prices.EKS_CLUSTER_HOURLY
    note = f"Kubernetes {kubernetes_version} has been in extended support since {ends}" if extended else ""
    if support_type == "EXTENDED" and ends and not extended:
        note = f"${prices.EKS_EXTENDED_HOURLY:.2f} an hour from {ends}, when standard support ends"
    if support and not extended and support.days_left < versions.SUPPORT_DAYS:
        waits = "" if versions.successor(kubernetes_version) else "; this release certifies no later version yet"
        note = f"{note or f'standard support ends on {ends}'}{waits}"
    return Line("EKS control plane", 1, 1, price, note)


def control_plane_tier(tier: str | None) -> list[Line]:
    """Return the line of a provisioned control plane; none for the standard one, which costs no more."""
    price = prices.EKS_CONTROL_PLANE_TIER_HOURLY.get(tier or "standard")
    return [] if price == 0 else [Line(f"provisioned control plane {tier}", 1, 1, price)]


def encryption_keys(count: int) -> Line:
    """Return the line of customer keys."""
    return Line("KMS key", count, count, _hourly(prices.KMS_KEY_MONTH))


def nat_gateways(count: int) -> Line:
    """Return the line of NAT gateways, without their addresses and traffic."""
    return Line("NAT gateway", count, count, prices.NAT_GATEWAY_HOURLY)


def public_addresses(count: int) -> Line:
    """Return the line of public IPv4 addresses."""
    return Line("public IPv4 address", count, count, prices.PUBLIC_IPV4_HOURLY)


def interface_endpoints(count: int) -> Line:
    """Return the line of interface endpoints, one for each service and zone."""
    return Line("interface endpoint", count, count, prices.INTERFACE_ENDPOINT_HOURLY)


def node_group(
    instance_type: str,
    nodes: int,
    maximum: int,
    root_gib: int,
    catalogue: Catalogue = CATALOGUE,
    *,
    capacity: str = "on-demand",
    root_throughput_mibps: int = ROOT_THROUGHPUT_MIBPS,
    root_iops: int = prices.GP3_FREE_IOPS,
) -> tuple[Line, ...]:
    """Return the lines of a group's instances and their root volumes; for ``capacity`` see :data:`CAPACITY_NOTES`."""
    price = catalogue.price(instance_type, capacity) if instance_type in catalogue else None
    note = CAPACITY_NOTES.get(capacity, "")
    if price is not None and not price.region:
        note = f"public price of Capacity Blocks ({price.date}), paid in advance"
    volume = _hourly(prices.gp3_monthly_usd(root_gib, root_throughput_mibps, root_iops))
    return (
        Line(instance_type, nodes, maximum, price.hourly_usd if price else None, note),
        Line(f"{root_gib} GiB root volume", nodes, maximum, volume),
    )


def endpoint(instance_type: str, instances: int, maximum: int, catalogue: Catalogue = CATALOGUE) -> Line:
    """Return the line of a SageMaker endpoint's instances, by SageMaker's name of their type."""
    name, catalogue = instance_type.removeprefix(sagemaker_hosting.PREFIX), sagemaker_hosting.types(catalogue)
    price = catalogue.price(name) if name in catalogue else None
    note = f"an estimate: EC2's price, and {round(100 * (prices.SAGEMAKER_FACTOR - 1))} %"
    return Line(instance_type, instances, maximum, price.hourly_usd * prices.SAGEMAKER_FACTOR if price else None, note)


CAPACITY_NOTES = {
    "spot": "at the On-Demand price; Spot is usually cheaper",
    "reservation": "On-Demand price; a Capacity Reservation is billed whether its nodes run or not",
    "capacity-block": "On-Demand price for comparison; a Capacity Block is paid in advance, at its own price",
}
"""Remarks on the price of instances that are not plain On-Demand."""


def claimed_volume(gib: int) -> Line:
    """Return the line of a volume of the default storage class that a chart claims."""
    return Line(f"{gib} GiB claimed volume", 1, 1, _hourly(prices.gp3_monthly_usd(gib)))


def file_system(
    storage_capacity_gib: int, deployment_type: str, throughput_per_tib: int, metadata_iops: int | None = None
) -> tuple[Line, ...]:
    """Return the lines of a Lustre file system. ``throughput_per_tib`` (MB/s) is ignored for SCRATCH_2; None: automatic
    metadata IOPS."""
    shown = f" {throughput_per_tib} MB/s/TiB" if deployment_type == "PERSISTENT_2" else ""
    try:
        price = _hourly(prices.lustre_monthly_usd(storage_capacity_gib, deployment_type, throughput_per_tib))
    except ValueError:
        return (Line(f"{storage_capacity_gib} GiB Lustre {deployment_type}{shown}", 1, 1, None),)
    lines = [Line(f"{storage_capacity_gib} GiB Lustre {deployment_type}{shown}", 1, 1, price)]
    extra = (metadata_iops or 0) - _included_metadata_iops(storage_capacity_gib)
    if extra > 0:
        lines.append(Line("metadata IOPS", extra, extra, _hourly(prices.FSX_METADATA_IOPS_MONTH)))
    return tuple(lines)


def _included_metadata_iops(storage_capacity_gib: int) -> int:
    """Return the metadata IOPS that automatic mode includes for the capacity (FSx, metadata performance of
    PERSISTENT_2)."""
    if storage_capacity_gib >= 48000:
        return storage_capacity_gib // 24000 * 12000
    return next(
        iops for size, iops in ((12000, 12000), (4800, 6000), (2400, 3000), (0, 1500)) if storage_capacity_gib >= size
    )


def _hourly(monthly_usd: float) -> float:
    return monthly_usd / prices.HOURS_PER_MONTH


def _times(quantity: float, unit: float | None) -> float | None:
    if not quantity:
        return 0.0
    return None if unit is None else quantity * unit
