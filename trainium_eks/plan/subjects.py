"""Subjects of rules: a control plane, a node group, a network interface, a rule of a security group."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainium_eks.model.catalogue.instances import InstanceType
from trainium_eks.plan.reading import Json, at, items, listed, mapping, text, true, user_data
from trainium_eks.plan.resource import Resource

CLUSTER = "aws:eks/cluster:Cluster"
EKS_CLUSTER = "eks:index:Cluster"
NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
LAUNCH_TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
ADDON = "aws:eks/addon:Addon"
ROLE = "aws:iam/role:Role"
SUBNET = "aws:ec2/subnet:Subnet"
VPC = "aws:ec2/vpc:Vpc"
FILE_SYSTEM = "aws:fsx/lustreFileSystem:LustreFileSystem"
ASSOCIATION = "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation"
BUCKETS = ("aws:s3/bucket:Bucket", "aws:s3/bucketV2:BucketV2")
RELEASE = "kubernetes:helm.sh/v3:Release"
DEPLOYMENT = "kubernetes:apps/v1:Deployment"
QUEUE = "kubernetes:scheduling.volcano.sh/v1beta1:Queue"
EFA = ("efa", "efa-only")
"""Types of a network interface that are an Elastic Fabric Adapter, with or without an address."""


@dataclass(frozen=True)
class ControlPlane:
    """One EKS cluster: pulumi-eks' component, the cluster inside it, or a plain ``aws.eks.Cluster``."""

    component: Resource | None
    cluster: Resource | None

    @property
    def resource(self) -> Resource:
        """The resource that findings name: the cluster itself when it is recorded."""
        found = self.cluster or self.component
        assert found is not None
        return found

    @property
    def members(self) -> tuple[Resource, ...]:
        """The cluster and the component, without a missing one."""
        return tuple(each for each in (self.cluster, self.component) if each is not None)

    def read(self, path: str, of_component: str) -> tuple[str, Json]:
        """Return path and value of an input: the cluster's when it is recorded, else the component's."""
        if self.cluster is not None:
            return path, at(self.cluster.inputs, path)
        if self.component is not None:
            return of_component, at(self.component.inputs, of_component)
        return path, None

    @property
    def is_public(self) -> bool:
        """Whether the public endpoint is on; EKS turns it on by default."""
        return self.read("vpcConfig.endpointPublicAccess", "endpointPublicAccess")[1] is not False

    @property
    def protected(self) -> bool:
        """Whether Pulumi refuses to delete it."""
        return any(each.options.protect for each in self.members)

    @property
    def name(self) -> str:
        """Name of the cluster, or empty when only ``pulumi up`` makes it."""
        names = [text(at(each.inputs, "name")) for each in self.members]
        names += [text(at(each.outputs, "name")) for each in self.members]
        return next((name for name in names if name), "")


@dataclass(frozen=True)
class NodeGroup:
    """One managed node group with its launch template and its catalogue entry."""

    resource: Resource
    template: Resource | None
    type_name: str
    """EC2 type, or empty when it cannot be seen."""
    instance: InstanceType | None
    """None for a type that the catalogue does not know."""

    @property
    def instances(self) -> tuple[InstanceType, ...]:
        """The type, where the catalogue knows it."""
        return () if self.instance is None else (self.instance,)

    @property
    def subnets(self) -> Sequence[Json]:
        """Ids of the subnets that its nodes start in; some may be known only during the update."""
        return listed(self.resource.inputs.get("subnetIds"))

    @property
    def scripts(self) -> tuple[str, ...]:
        """The parts of the user data; empty when it cannot be read."""
        return user_data(self.settings.get("userData")) or ()

    @property
    def is_bottlerocket(self) -> bool:
        """Whether its nodes run Bottlerocket."""
        return text(self.resource.inputs.get("amiType")).startswith("BOTTLEROCKET")

    @property
    def accelerated(self) -> bool:
        """Whether its nodes carry Neuron devices or GPUs, by the catalogue, else by the AMI."""
        if self.instance is not None:
            return self.instance.family != "cpu"
        return text(at(self.resource.inputs, "amiType")).endswith(("_NEURON", "_NVIDIA"))

    @property
    def has_efa(self) -> bool:
        """Whether its type has EFA."""
        return self.instance is not None and self.instance.has_efa

    @property
    def settings(self) -> Mapping[str, Json]:
        """The launch template's inputs; empty without one."""
        return self.template.inputs if self.template is not None else {}

    @property
    def interfaces(self) -> Sequence[Json]:
        """The template's network interfaces."""
        return items(self.settings.get("networkInterfaces"))

    @property
    def reservation(self) -> Json:
        """Id or group of the capacity reservation that the template names, or None."""
        target = at(self.settings, "capacityReservationSpecification.capacityReservationTarget")
        return at(target, "capacityReservationId") or at(target, "capacityReservationResourceGroupArn")

    @property
    def capacity_type(self) -> Json:
        """``ON_DEMAND`` (also when unset), ``SPOT`` or ``CAPACITY_BLOCK``."""
        return self.resource.inputs.get("capacityType", "ON_DEMAND")

    @property
    def max_size(self) -> Json:
        """The most nodes."""
        return at(self.resource.inputs, "scalingConfig.maxSize")


@dataclass(frozen=True)
class SecurityRule:
    """One rule of a security group, in any form of declaration."""

    resource: Resource
    path: str
    """Path of the rule in the resource; empty for a separate resource."""
    group: Json
    inbound: bool
    protocol: str
    """``-1`` for all."""
    first_port: Json
    last_port: Json
    peers: tuple[Json, ...]
    """Ids of the security groups on the other side."""
    cidrs: tuple[Json, ...]
    description: Json

    @property
    def all_protocols(self) -> bool:
        """Whether it lets all traffic through, EFA included."""
        return self.protocol in ("-1", "all")

    @property
    def to_itself(self) -> bool:
        """Whether the other side is the same group."""
        return self.group is not None and self.group in self.peers

    @property
    def from_anywhere(self) -> bool:
        """Whether the other side is every address."""
        return any(cidr in ("0.0.0.0/0", "::/0") for cidr in self.cidrs)

    def covers(self, port: int) -> bool:
        """Return whether TCP traffic to a port passes."""
        if self.all_protocols:
            return True
        numbers = isinstance(self.first_port, int) and isinstance(self.last_port, int)
        return self.protocol in ("tcp", "6") and numbers and self.first_port <= port <= self.last_port


def zone(subnet: Resource) -> str:
    """Return the zone of a subnet: its id when the program gave one, else its name."""
    for values in (subnet.inputs, subnet.outputs):
        for key in ("availabilityZoneId", "availabilityZone"):
            if text(values.get(key)):
                return text(values.get(key))
    return ""


def security_rules(of_type: Callable[..., Iterable[Resource]]) -> Iterator[SecurityRule]:
    """Yield every security-group rule, as a separate resource, in the older form, or inside its group."""
    for type_, inbound in (
        ("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", True),
        ("aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule", False),
    ):
        for resource in of_type(type_):
            cidrs = (resource.inputs.get("cidrIpv4"), resource.inputs.get("cidrIpv6"))
            yield SecurityRule(
                resource=resource,
                path="",
                group=resource.inputs.get("securityGroupId"),
                inbound=inbound,
                protocol=str(resource.inputs.get("ipProtocol")),
                first_port=resource.inputs.get("fromPort"),
                last_port=resource.inputs.get("toPort"),
                peers=tuple(listed(resource.inputs.get("referencedSecurityGroupId"))),
                cidrs=tuple(cidr for cidr in cidrs if cidr is not None),
                description=resource.inputs.get("description"),
            )
    for resource in of_type("aws:ec2/securityGroupRule:SecurityGroupRule"):
        group = resource.inputs.get("securityGroupId")
        yield _classic(resource, "", resource.inputs, group, resource.inputs.get("type") == "ingress")
    for resource in of_type("aws:ec2/securityGroup:SecurityGroup"):
        for direction in ("ingress", "egress"):
            for index, each in enumerate(items(resource.inputs.get(direction))):
                group = resource.outputs.get("id")
                yield _classic(resource, f"{direction}[{index}]", mapping(each), group, direction == "ingress")


def _classic(resource: Resource, path: str, rule: Mapping[str, Json], group: Json, inbound: bool) -> SecurityRule:
    """Return a rule in the older form, inline or as ``aws.ec2.SecurityGroupRule``."""
    peers = (*listed(rule.get("sourceSecurityGroupId")), *items(rule.get("securityGroups")))
    return SecurityRule(
        resource=resource,
        path=path,
        group=group,
        inbound=inbound,
        protocol=str(rule.get("protocol")),
        first_port=rule.get("fromPort"),
        last_port=rule.get("toPort"),
        peers=(*peers, *((group,) if true(rule.get("self")) else ())),
        cidrs=(*items(rule.get("cidrBlocks")), *items(rule.get("ipv6CidrBlocks"))),
        description=rule.get("description"),
    )
