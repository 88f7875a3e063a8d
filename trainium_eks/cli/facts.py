"""The few facts that make a line of the resource tree worth reading."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from trainium_eks.graph.graph import Graph, Resource
from trainium_eks.graph.judging import cost

Facts = Callable[[Graph, Resource], Iterable[str]]

NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"


def of(graph: Graph, resource: Resource) -> tuple[str, ...] | None:
    """What to say about a resource beside its name; None for a type that is only counted."""
    kind = resource.type
    if kind.startswith("kubernetes:") and kind not in _FACTS:
        kind = f"kubernetes:*:{kind.rsplit(':', 1)[-1]}"
    facts = _FACTS.get(kind)
    if facts is None:
        return None
    return tuple(text for text in facts(graph, resource) if text)


MERGED = frozenset({"aws:eks/addon:Addon"})
"""Types whose resources share one line."""


def own_name(resource: Resource) -> str:
    """The name that a merged resource has for its users; empty when its logical name says as much."""
    return str(resource.inputs.get("addonName", ""))


def short_type(type_: str) -> str:
    """``aws:ec2/natGateway:NatGateway`` is ``NatGateway``; a provider is ``aws provider``."""
    if type_.startswith("pulumi:providers:"):
        return f"{type_.rsplit(':', 1)[-1]} provider"
    return type_.rsplit(":", 1)[-1]


def short_name(resource: Resource, above: str) -> str:
    """A resource's name without that of the component that it is in: its component's line stands above it."""
    if above and resource.name.startswith(f"{above}-"):
        return resource.name.removeprefix(f"{above}-")
    return resource.name


def efa_interfaces(template: Resource | None) -> int:
    """EFA interfaces that a launch template gives each node."""
    interfaces = template.inputs.get("networkInterfaces") if template else None
    kinds = [each.get("interfaceType") for each in interfaces or () if isinstance(each, Mapping)]
    return sum(kind in ("efa", "efa-only") for kind in kinds)


def subnets(graph: Graph, resource: Resource) -> str:
    """Zone ids of the subnets that a resource is put in; the subnets' ids when they are made elsewhere."""
    urns = resource.property_dependencies.get("subnetIds", ())
    zones = [graph.by_urn[urn].inputs.get("availabilityZoneId") for urn in urns if urn in graph.by_urn]
    found = sorted({str(zone) for zone in zones if zone})
    return ", ".join(found) or ", ".join(map(str, resource.inputs.get("subnetIds") or ()))


def _vpc(_: Graph, resource: Resource) -> Iterable[str]:
    yield str(resource.inputs.get("cidrBlock", ""))


def _subnet(_: Graph, resource: Resource) -> Iterable[str]:
    yield str(resource.inputs.get("cidrBlock", ""))
    yield str(resource.inputs.get("availabilityZoneId", ""))


def _endpoint(_: Graph, resource: Resource) -> Iterable[str]:
    yield str(resource.inputs.get("serviceName", "")).split(".", 3)[-1]
    yield str(resource.inputs.get("vpcEndpointType", "Gateway")).lower()


def _cluster(_: Graph, resource: Resource) -> Iterable[str]:
    inputs = resource.inputs
    yield f"Kubernetes {inputs.get('version', 'default')}"
    vpc = inputs.get("vpcConfig", {})
    public = ", ".join(vpc.get("publicAccessCidrs") or ("0.0.0.0/0",))
    yield f"public endpoint for {public}" if vpc.get("endpointPublicAccess", True) else "private endpoint only"
    yield "deletion protection" if inputs.get("deletionProtection") else ""


def _addon(_: Graph, resource: Resource) -> Iterable[str]:
    yield str(resource.inputs.get("addonVersion", "default version")).split("-eksbuild", 1)[0]


def _node_group(graph: Graph, resource: Resource) -> Iterable[str]:
    sizes = resource.inputs.get("scalingConfig", {})
    template = cost.launch_template(graph, resource)
    low, high = sizes.get("minSize", 0), sizes.get("maxSize", 0)
    yield f"{sizes.get('desiredSize', 0)} × {cost.instance_type(graph, resource)} ({low} to {high})"
    efa = efa_interfaces(template)
    yield f"{efa} EFA interfaces" if efa else ""
    capacity = str(resource.inputs.get("capacityType", "ON_DEMAND"))
    reserved = template and template.inputs.get("capacityReservationSpecification")
    yield "capacity reservation" if reserved and capacity == "ON_DEMAND" else _CAPACITY.get(capacity, capacity)
    yield subnets(graph, resource)


_CAPACITY = {"ON_DEMAND": "on demand", "SPOT": "spot", "CAPACITY_BLOCK": "capacity block"}


def _lustre(graph: Graph, resource: Resource) -> Iterable[str]:
    inputs = resource.inputs
    yield f"{inputs.get('storageCapacity')} GiB"
    yield str(inputs.get("deploymentType", ""))
    throughput = inputs.get("perUnitStorageThroughput")
    yield f"{throughput} MB/s per TiB" if throughput else ""
    yield subnets(graph, resource)
    yield "protected" if resource.options.protect else ""


def _association(_: Graph, resource: Resource) -> Iterable[str]:
    yield f"{resource.inputs.get('fileSystemPath')} ↔ {resource.inputs.get('dataRepositoryPath')}"


def _release(_: Graph, resource: Resource) -> Iterable[str]:
    chart = str(resource.inputs.get("chart", "")).rstrip("/").rsplit("/", 1)[-1]
    yield " ".join(filter(None, (chart, str(resource.inputs.get("version", "")))))


def _log_group(_: Graph, resource: Resource) -> Iterable[str]:
    days = resource.inputs.get("retentionInDays")
    yield f"{days} days" if days else "kept for ever"


def _repository(_: Graph, resource: Resource) -> Iterable[str]:
    yield str(resource.inputs.get("name", ""))
    yield "immutable tags" if resource.inputs.get("imageTagMutability") == "IMMUTABLE" else ""


def _kept(_: Graph, resource: Resource) -> Iterable[str]:
    yield "protected" if resource.options.protect else ""
    yield "retained on destroy" if resource.options.retain_on_delete else ""


def _queue(_: Graph, resource: Resource) -> Iterable[str]:
    spec: Mapping[str, Any] = resource.inputs.get("spec") or {}
    for field in ("capability", "guarantee"):
        amounts = spec.get(field) or {}
        if field == "guarantee" and isinstance(amounts, Mapping):
            amounts = amounts.get("resource") or {}
        shown = ", ".join(f"{amount} {str(name).rsplit('/', 1)[-1]}" for name, amount in sorted(amounts.items()))
        yield f"{field} {shown}" if shown else ""


def _volume(_: Graph, resource: Resource) -> Iterable[str]:
    yield str((resource.inputs.get("spec", {}).get("capacity") or {}).get("storage", ""))


def _named(_: Graph, resource: Resource) -> Iterable[str]:
    yield str((resource.inputs.get("metadata") or {}).get("name", ""))


def _nothing(_: Graph, __: Resource) -> Iterable[str]:
    return ()


_FACTS: Mapping[str, Facts] = {
    "aws:ec2/vpc:Vpc": _vpc,
    "aws:ec2/subnet:Subnet": _subnet,
    "aws:ec2/natGateway:NatGateway": _nothing,
    "aws:ec2/vpcEndpoint:VpcEndpoint": _endpoint,
    "aws:ec2/placementGroup:PlacementGroup": _nothing,
    "aws:eks/cluster:Cluster": _cluster,
    "aws:eks/addon:Addon": _addon,
    NODE_GROUP: _node_group,
    "aws:kms/key:Key": _kept,
    "aws:cloudwatch/logGroup:LogGroup": _log_group,
    "aws:fsx/lustreFileSystem:LustreFileSystem": _lustre,
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": _association,
    "aws:s3/bucket:Bucket": _kept,
    "aws:ecr/repository:Repository": _repository,
    "kubernetes:helm.sh/v3:Release": _release,
    "kubernetes:scheduling.volcano.sh/v1beta1:Queue": _queue,
    "kubernetes:*:PersistentVolume": _volume,
    "kubernetes:*:PersistentVolumeClaim": _named,
    "kubernetes:*:StorageClass": _nothing,
    "kubernetes:*:Namespace": _named,
}
"""Type to its facts; a type that is not here is counted in one line with the others."""
