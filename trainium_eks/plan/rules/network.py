"""R31-R37: the VPC, its subnets, its ways out and its addresses."""

import ipaddress
from collections.abc import Iterator

from trainium_eks.model.config.network import COMPLETE_ENDPOINTS
from trainium_eks.model.finding import Finding
from trainium_eks.plan.graph import Graph, Resource
from trainium_eks.plan.reading import Json, at, differs, given, mapping, show, text
from trainium_eks.plan.rules._rule import judged, rule
from trainium_eks.plan.subjects import SUBNET, VPC, zone

ENDPOINT = "aws:ec2/vpcEndpoint:VpcEndpoint"
NAT = "aws:ec2/natGateway:NatGateway"
NEEDED_ENDPOINTS = ("s3", *COMPLETE_ENDPOINTS)
"""Services without which nodes in a VPC without NAT do not come up (EKS, private clusters)."""

Range = ipaddress.IPv4Network


@rule("R31", "Keep flow logs of the VPC", "medium", "CKV2_AWS_11, AWS-0178")
def flow_logs(graph: Graph) -> Iterator[Finding]:
    """They show afterwards the source and the target of each accepted and each refused connection."""
    for vpc in graph.of_type(VPC):
        logs = graph.referring(vpc, "vpcId", "aws:ec2/flowLog:FlowLog")
        faults = [] if logs else ["no FlowLog has its vpcId, wanted one"]
        if logs and not any(at(each.inputs, "trafficType") == "ALL" for each in logs):
            faults.append(f'trafficType is {show(at(logs[0].inputs, "trafficType"))}, wanted "ALL"')
        yield from judged(vpc, faults, "has flow logs of all traffic")


@rule("R32", "Empty the default security group", "medium", "CKV2_AWS_12, AWS-0173")
def default_security_group(graph: Graph) -> Iterator[Finding]:
    """An instance started without a group gets the default group; an empty group allows nothing."""
    for vpc in graph.of_type(VPC):
        groups = graph.referring(vpc, "vpcId", "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup")
        faults = [] if groups else ["no DefaultSecurityGroup has its vpcId, wanted an empty one"]
        for group in groups:
            filled = [key for key in ("ingress", "egress") if given(group.inputs.get(key))]
            faults += [f"{key} of {group.name} is {show(group.inputs[key])}, wanted none" for key in filled]
        yield from judged(vpc, faults, "its default security group is empty")


@rule("R33", "Turn on DNS support and host names", "high", "EKS network requirements")
def dns(graph: Graph) -> Iterator[Finding]:
    """Nodes register by their host name; without either setting they never become ready."""
    for vpc in graph.of_type(VPC):
        support = vpc.inputs.get("enableDnsSupport")
        faults = [] if support is not False else ["enableDnsSupport is false, wanted true"]
        faults += differs(vpc.inputs, "enableDnsHostnames", True)
        yield from judged(vpc, faults, "DNS support and host names are on")


@rule("R34", "In production, give each zone its own way out", "medium", "EKS private clusters")
def ways_out(graph: Graph) -> Iterator[Finding]:
    """A NAT gateway in every zone with private subnets, or interface endpoints for everything that nodes call; with one
    NAT, its zone's failure cuts off the others. Independent of `model/config/cross.py`, which validates the config."""
    if not graph.production:
        return
    for vpc in graph.of_type(VPC):
        subnets = graph.referring(vpc, "vpcId", SUBNET)
        private = {zone(subnet) for subnet in subnets if not graph.public(subnet)}
        with_nat = {zone(subnet) for nat in graph.of_type(NAT) for subnet in graph.refers(nat, "subnetId", SUBNET)}
        endpoints = {_service(each) for each in graph.referring(vpc, "vpcId", ENDPOINT)}
        lacking = [service for service in NEEDED_ENDPOINTS if service not in endpoints]
        faults = []
        if lacking and "" in private | with_nat:
            faults.append("a subnet's availabilityZoneId is unset, so its way out is unknown")
        elif lacking and private - with_nat:
            zones = ", ".join(sorted(private - with_nat))
            faults.append(f"no NatGateway in {zones} (and no endpoints {', '.join(lacking)}), wanted one in each zone")
        yield from judged(vpc, faults, "every zone has its own way out")


@rule("R35", "Reach S3 by a gateway endpoint", "medium", "own")
def s3_endpoint(graph: Graph) -> Iterator[Finding]:
    """Data sets and images then bypass the NAT gateway, which charges by the gigabyte; a gateway endpoint costs
    nothing."""
    for vpc in graph.of_type(VPC):
        gateways = [
            each
            for each in graph.referring(vpc, "vpcId", ENDPOINT)
            if _service(each) == "s3" and each.inputs.get("vpcEndpointType", "Gateway") == "Gateway"
        ]
        faults = [] if gateways else ["no VpcEndpoint of type Gateway for s3 has its vpcId, wanted one"]
        associations = graph.of_type("aws:ec2/vpcEndpointRouteTableAssociation:VpcEndpointRouteTableAssociation")
        if gateways and not associations and not any(given(each.inputs.get("routeTableIds")) for each in gateways):
            faults.append(f"routeTableIds of {gateways[0].name} is unset, wanted the private route tables")
        yield from judged(vpc, faults, "S3 is reached by a gateway endpoint")


@rule("R36", "Tag subnets with their role", "low", "EKS load balancing")
def subnet_tags(graph: Graph) -> Iterator[Finding]:
    """Load balancers find their subnets by these tags. Karpenter's discovery tag on a public subnet would start
    nodes there."""
    for subnet in graph.of_type(SUBNET):
        public = graph.public(subnet)
        role = "kubernetes.io/role/elb" if public else "kubernetes.io/role/internal-elb"
        tags = mapping(subnet.inputs.get("tags"))
        faults = [] if str(tags.get(role)) == "1" else [f'tags[{role}] is {show(tags.get(role))}, wanted "1"']
        if public and "karpenter.sh/discovery" in tags:
            faults.append("tags[karpenter.sh/discovery] is set on a public subnet, wanted none")
        yield from judged(subnet, faults, f"tagged as {'public' if public else 'private'}")


@rule("R37", "Keep the range of services apart from the VPC's", "high", "EKS network requirements")
def address_ranges(graph: Graph) -> Iterator[Finding]:
    """Traffic to addresses that both have would go to services, and neither range can be changed later. Independent of
    `model/config/cross.py`, which validates the config."""
    for plane in graph.control_planes:
        path, services = plane.read("kubernetesNetworkConfig.serviceIpv4Cidr", "kubernetesServiceIpAddressRange")
        if given(services):
            faults = [fault for vpc in graph.of_type(VPC) for fault in _overlaps(path, services, vpc)]
            yield from judged(plane.resource, faults, f"services have {services}")


def _service(endpoint: Resource) -> str:
    """Return ``ecr.api`` for ``com.amazonaws.us-west-2.ecr.api``."""
    return ".".join(text(endpoint.inputs.get("serviceName")).removeprefix("cn.").split(".")[3:])


def _overlaps(path: str, services: Json, vpc: Resource) -> Iterator[str]:
    block = vpc.inputs.get("cidrBlock")
    own, theirs = _range(services), _range(block)
    if own is None or theirs is None:
        yield f"{path} is {show(services)} and cidrBlock of {vpc.name} {show(block)}, wanted ranges that can be seen"
    elif own.overlaps(theirs):
        yield f"{path} {own} overlaps cidrBlock {theirs} of {vpc.name}, wanted ranges apart"


def _range(value: object) -> Range | None:
    try:
        return Range(text(value), strict=False)
    except ValueError:
        return None
