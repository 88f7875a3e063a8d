"""What a recorded program costs while it runs, with the same lines as its config (:mod:`trainium_eks.model.bill`)."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trainium_eks.graph.graph import UNKNOWN, Graph, Resource
from trainium_eks.model import bill, prices
from trainium_eks.model.bill import Line
from trainium_eks.model.instances import CATALOGUE, Catalogue


@dataclass(frozen=True)
class CostItem:
    """One priced thing of one resource."""

    urn: str
    component: str
    """Name of this library's component that it belongs to; empty directly under the stack."""
    line: Line

    @property
    def what(self) -> str:
        """``trn1.32xlarge``, ``NAT gateway``."""
        return self.line.what

    @property
    def quantity(self) -> float:
        """How many at first."""
        return self.line.quantity

    @property
    def hourly_usd(self) -> float | None:
        """None when its price is unknown."""
        return self.line.hourly_usd

    @property
    def note(self) -> str:
        """What a reader must know about the price."""
        return self.line.note


@dataclass(frozen=True)
class ComponentCost:
    """What one component costs."""

    component: str
    items: tuple[CostItem, ...]

    @property
    def hourly_usd(self) -> float:
        """Sum of what has a known price."""
        return sum(item.hourly_usd or 0.0 for item in self.items)

    @property
    def maximum_hourly_usd(self) -> float:
        """The same with every group at its largest."""
        return sum(item.line.maximum_hourly_usd or 0.0 for item in self.items)

    @property
    def unknown(self) -> tuple[str, ...]:
        """What has no known price."""
        return bill.unknown(item.line for item in self.items)


@dataclass(frozen=True)
class Cost:
    """What the environment costs."""

    items: tuple[CostItem, ...]
    price_dates: Mapping[str, str]
    """Day of each price list used: ``instances``, ``other``. Several days of instance prices are joined."""
    price_regions: tuple[str, ...]
    """Regions that the prices are of; others differ."""
    not_counted: tuple[str, ...] = bill.BY_USE
    """What is billed by use, and therefore in no item."""

    @property
    def hourly_usd(self) -> float:
        """At the desired sizes; what has no known price is in :attr:`unknown` and not in here."""
        return sum(item.hourly_usd or 0.0 for item in self.items)

    @property
    def monthly_usd(self) -> float:
        """For 730 hours."""
        return self.hourly_usd * prices.HOURS_PER_MONTH

    @property
    def maximum_hourly_usd(self) -> float:
        """With every group at its largest."""
        return sum(item.line.maximum_hourly_usd or 0.0 for item in self.items)

    @property
    def unknown(self) -> tuple[str, ...]:
        """What has no known price, each once."""
        return bill.unknown(item.line for item in self.items)

    @cached_property
    def by_component(self) -> tuple[ComponentCost, ...]:
        """Dearest first."""
        found: dict[str, list[CostItem]] = {}
        for item in self.items:
            found.setdefault(item.component, []).append(item)
        costs = [ComponentCost(component, tuple(items)) for component, items in found.items()]
        return tuple(sorted(costs, key=lambda cost: (-cost.hourly_usd, -cost.maximum_hourly_usd, cost.component)))

    def to_json(self) -> dict[str, Any]:
        """camelCase data; money rounded to a hundredth of a cent."""
        return {
            "hourlyUsd": _rounded(self.hourly_usd),
            "monthlyUsd": _rounded(self.monthly_usd),
            "maximumHourlyUsd": _rounded(self.maximum_hourly_usd),
            "maximumMonthlyUsd": _rounded(self.maximum_hourly_usd * prices.HOURS_PER_MONTH),
            "byComponent": [
                {
                    "component": cost.component,
                    "hourlyUsd": _rounded(cost.hourly_usd),
                    "maximumHourlyUsd": _rounded(cost.maximum_hourly_usd),
                    "unknown": list(cost.unknown),
                }
                for cost in self.by_component
            ],
            "items": [
                {
                    "urn": item.urn,
                    "component": item.component,
                    "what": item.what,
                    "quantity": item.quantity,
                    "maximumQuantity": item.line.maximum,
                    "hourlyUsd": _rounded(item.hourly_usd),
                    "note": item.note,
                }
                for item in self.items
            ],
            "unknown": list(self.unknown),
            "notCounted": list(self.not_counted),
            "priceDates": dict(self.price_dates),
            "priceRegions": list(self.price_regions),
        }


def estimate(graph: Graph, catalogue: Catalogue = CATALOGUE) -> Cost:
    """What the environment costs.

    Args:
        graph: a recorded program; entries of its config's ``instanceTypes`` are added to the catalogue.
        catalogue: where instance prices stand.

    Raises:
        CatalogueError: for config entries that the program itself would have refused.
    """
    entries = graph.config.get("instanceTypes")
    if isinstance(entries, Mapping) and entries:
        catalogue = catalogue.with_entries(entries)
    items = tuple(
        CostItem(resource.urn, _component(graph, resource), line)
        for resource in graph.resources
        if resource.type in _PRICED
        for line in _PRICED[resource.type](graph, resource, catalogue)
        if line.maximum
    )
    used = [price for item in items if item.what in catalogue and (price := catalogue.price(item.what))]
    dates = {"instances": ", ".join(sorted({price.date for price in used})), "other": prices.DATE}
    regions = sorted({prices.REGION, *(price.region for price in used)})
    return Cost(items, {key: date for key, date in dates.items() if date}, tuple(regions))


def _component(graph: Graph, resource: Resource) -> str:
    """The nearest component of this library's: pulumi-eks' own is an inner part of one."""
    above = [each for each in graph.ancestors(resource) if not each.custom]
    ours = next((each for each in above if each.type.startswith("trainium-eks:")), None)
    nearest = ours or graph.component_of(resource)
    return nearest.name if nearest else ""


def _cluster(_: Graph, resource: Resource, __: Catalogue) -> Iterator[Line]:
    policy = resource.inputs.get("upgradePolicy")
    support_type = policy.get("supportType", "EXTENDED") if isinstance(policy, Mapping) else "EXTENDED"
    yield bill.control_plane(str(resource.inputs.get("version", "")), support_type)
    scaling = resource.inputs.get("controlPlaneScalingConfig")
    tier = scaling.get("tier") if isinstance(scaling, Mapping) else None
    if tier and tier != "standard":
        yield Line(f"provisioned control plane {tier}", 1, 1, prices.EKS_CONTROL_PLANE_TIER_HOURLY.get(tier))


def _node_group(graph: Graph, resource: Resource, catalogue: Catalogue) -> Iterable[Line]:
    sizes = resource.inputs.get("scalingConfig", {})
    template = launch_template(graph, resource)
    disk = _root_disk(template, resource)
    return bill.node_group(
        instance_type(graph, resource),
        _whole(sizes.get("desiredSize")),
        _whole(sizes.get("maxSize")),
        _whole(disk.get("volumeSize"), 20),
        catalogue,
        capacity=_capacity(template, resource),
        root_throughput_mibps=_whole(disk.get("throughput"), prices.GP3_FREE_MIBPS),
        root_iops=_whole(disk.get("iops"), prices.GP3_FREE_IOPS),
    )


def launch_template(graph: Graph, group: Resource) -> Resource | None:
    """The launch template that a node group uses, when the program makes it."""
    urns = group.property_dependencies.get("launchTemplate", ())
    found = (graph.by_urn.get(urn) for urn in urns)
    return next((each for each in found if each and each.type == "aws:ec2/launchTemplate:LaunchTemplate"), None)


def instance_type(graph: Graph, group: Resource) -> str:
    """The instance type of a node group, from the group or its launch template."""
    types = group.inputs.get("instanceTypes")
    if isinstance(types, list) and types:
        return str(types[0])
    template = launch_template(graph, group)
    return str(template.inputs.get("instanceType", UNKNOWN)) if template else UNKNOWN


def _capacity(template: Resource | None, group: Resource) -> str:
    kind = group.inputs.get("capacityType")
    if kind in ("SPOT", "CAPACITY_BLOCK"):
        return "spot" if kind == "SPOT" else "capacity-block"
    specification = template.inputs.get("capacityReservationSpecification") if template else None
    target = specification.get("capacityReservationTarget") if isinstance(specification, Mapping) else None
    return "reservation" if target else "on-demand"


def _root_disk(template: Resource | None, group: Resource) -> Mapping[str, Any]:
    mappings = template.inputs.get("blockDeviceMappings") if template else None
    for mapping in mappings or ():
        if isinstance(mapping, Mapping) and isinstance(mapping.get("ebs"), Mapping):
            return dict(mapping["ebs"])
    return {"volumeSize": group.inputs.get("diskSize")}


def _endpoint(_: Graph, resource: Resource, __: Catalogue) -> Iterator[Line]:
    if resource.inputs.get("vpcEndpointType") == "Interface":
        yield bill.interface_endpoints(len(resource.inputs.get("subnetIds") or ()))


def _lustre(_: Graph, resource: Resource, __: Catalogue) -> Iterable[Line]:
    inputs = resource.inputs
    metadata = inputs.get("metadataConfiguration")
    iops = metadata.get("iops") if isinstance(metadata, Mapping) else None
    return bill.file_system(
        _whole(inputs.get("storageCapacity")),
        str(inputs.get("deploymentType", "SCRATCH_1")),
        _whole(inputs.get("perUnitStorageThroughput")),
        _whole(iops) or None,
    )


def _one(line: Callable[[int], Line]) -> Callable[[Graph, Resource, Catalogue], Iterable[Line]]:
    return lambda _graph, _resource, _catalogue: (line(1),)


_PRICED: Mapping[str, Callable[[Graph, Resource, Catalogue], Iterable[Line]]] = {
    "aws:eks/cluster:Cluster": _cluster,
    "aws:eks/nodeGroup:NodeGroup": _node_group,
    "aws:ec2/natGateway:NatGateway": _one(bill.nat_gateways),
    "aws:ec2/eip:Eip": _one(bill.public_addresses),
    "aws:ec2/vpcEndpoint:VpcEndpoint": _endpoint,
    "aws:fsx/lustreFileSystem:LustreFileSystem": _lustre,
    "aws:kms/key:Key": _one(bill.encryption_keys),
}
"""Type to its lines. Everything else is free or billed by use."""


def _whole(value: object, default: int = 0) -> int:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else default


def _rounded(amount: float | None) -> float | None:
    return None if amount is None else round(amount, 4)
