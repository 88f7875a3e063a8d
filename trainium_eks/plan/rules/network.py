"""R31-R37: the VPC, its subnets, its ways out and its addresses."""

import ipaddress
import itertools
from collections.abc import Iterator

from trainium_eks.model.config.network import COMPLETE_ENDPOINTS
from trainium_eks.model.sizing import addresses
from trainium_eks.plan.graph import Resource
from trainium_eks.plan.resource_types.rows.karpenter import NODE_POOL
from trainium_eks.plan.rules._autoscaled import Supply, supplies
from trainium_eks.plan.rules._facts import SUBNET, VPC, zone
from trainium_eks.plan.rules._read import at, differs, given, items, known, mapping, show, text
from trainium_eks.plan.rules._rule import Judgement, judged, rule, unseen
from trainium_eks.plan.rules._view import View
from trainium_eks.plan.rules.large import held_addresses

ENDPOINT = "aws:ec2/vpcEndpoint:VpcEndpoint"
NAT = "aws:ec2/natGateway:NatGateway"
NEEDED_ENDPOINTS = ("s3", *COMPLETE_ENDPOINTS)
"""Services without which nodes in a VPC without NAT do not come up (EKS, private clusters)."""

Range = ipaddress.IPv4Network


@rule("R31", "Keep flow logs of the VPC", "medium", "CKV2_AWS_11, AWS-0178")
def flow_logs(view: View) -> Iterator[Judgement]:
    """They show afterwards the source and the target of each accepted and each refused connection."""
    for vpc in view.of(VPC):
        logs = view.referring(vpc, "vpcId", "aws:ec2/flowLog:FlowLog")
        faults = [] if logs else ["no FlowLog has its vpcId, wanted one"]
        if logs and not any(at(each.inputs, "trafficType") == "ALL" for each in logs):
            faults.append(f'trafficType is {show(at(logs[0].inputs, "trafficType"))}, wanted "ALL"')
        yield from judged(vpc, faults, "has flow logs of all traffic")


@rule("R32", "Empty the default security group", "medium", "CKV2_AWS_12, AWS-0173")
def default_security_group(view: View) -> Iterator[Judgement]:
    """An instance started without a group gets the default group; an empty group allows nothing."""
    for vpc in view.of(VPC):
        groups = view.referring(vpc, "vpcId", "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup")
        faults = [] if groups else ["no DefaultSecurityGroup has its vpcId, wanted an empty one"]
        for group in groups:
            filled = [key for key in ("ingress", "egress") if given(group.inputs.get(key))]
            faults += [f"{key} of {group.name} is {show(group.inputs[key])}, wanted none" for key in filled]
        yield from judged(vpc, faults, "its default security group is empty")


@rule("R33", "Turn on DNS support and host names", "high", "EKS network requirements")
def dns(view: View) -> Iterator[Judgement]:
    """Nodes register by their host name; without either setting they never become ready."""
    for vpc in view.of(VPC):
        support = vpc.inputs.get("enableDnsSupport")
        faults = [] if support is not False else ["enableDnsSupport is false, wanted true"]
        faults += differs(vpc.inputs, "enableDnsHostnames", True)
        yield from judged(vpc, faults, "DNS support and host names are on")


@rule("R34", "In production, give each zone its own way out", "medium", "EKS private clusters")
def ways_out(view: View) -> Iterator[Judgement]:
    """A NAT gateway in every zone with private subnets, or interface endpoints for everything that nodes call; with one
    NAT, its zone's failure cuts off the others. Independent of `model/config/cross.py`, which validates the config."""
    if not view.production:
        return
    for vpc in view.of(VPC):
        subnets = view.referring(vpc, "vpcId", SUBNET)
        private = {zone(subnet) for subnet in subnets if not view.public(subnet)}
        with_nat = {zone(subnet) for nat in view.of(NAT) for subnet in view.refers(nat, "subnetId", SUBNET)}
        endpoints = {_service(each) for each in view.referring(vpc, "vpcId", ENDPOINT)}
        lacking = [service for service in NEEDED_ENDPOINTS if service not in endpoints]
        faults = []
        if lacking and "" in private | with_nat:
            faults.append("a subnet's availabilityZoneId is unset, so its way out is unknown")
        elif lacking and private - with_nat:
            zones = ", ".join(sorted(private - with_nat))
            faults.append(f"no NatGateway in {zones} (and no endpoints {', '.join(lacking)}), wanted one in each zone")
        yield from judged(vpc, faults, "every zone has its own way out")


@rule("R35", "Reach S3 by a gateway endpoint", "medium", "own")
def s3_endpoint(view: View) -> Iterator[Judgement]:
    """Data sets and images then bypass the NAT gateway, which charges by the gigabyte; a gateway endpoint costs
    nothing."""
    for vpc in view.of(VPC):
        gateways = [
            each
            for each in view.referring(vpc, "vpcId", ENDPOINT)
            if _service(each) == "s3" and each.inputs.get("vpcEndpointType", "Gateway") == "Gateway"
        ]
        faults = [] if gateways else ["no VpcEndpoint of type Gateway for s3 has its vpcId, wanted one"]
        associations = view.of("aws:ec2/vpcEndpointRouteTableAssociation:VpcEndpointRouteTableAssociation")
        if gateways and not associations and not any(given(each.inputs.get("routeTableIds")) for each in gateways):
            faults.append(f"routeTableIds of {gateways[0].name} is unset, wanted the private route tables")
        yield from judged(vpc, faults, "S3 is reached by a gateway endpoint")


@rule("R36", "Tag subnets with their role", "low", "EKS load balancing")
def subnet_tags(view: View) -> Iterator[Judgement]:
    """Load balancers find their subnets by these tags. Karpenter's discovery tag on a public subnet would start
    nodes there."""
    for subnet in view.of(SUBNET):
        public = view.public(subnet)
        role = "kubernetes.io/role/elb" if public else "kubernetes.io/role/internal-elb"
        tags = mapping(subnet.inputs.get("tags"))
        faults = [] if str(tags.get(role)) == "1" else [f'tags[{role}] is {show(tags.get(role))}, wanted "1"']
        if public and "karpenter.sh/discovery" in tags:
            faults.append("tags[karpenter.sh/discovery] is set on a public subnet, wanted none")
        yield from judged(subnet, faults, f"tagged as {'public' if public else 'private'}")


@rule(
    "R37",
    "Keep address ranges apart and large enough",
    "high",
    "EKS network requirements, EC2 address limits",
    follows_ids=True,
)
def address_ranges(view: View) -> Iterator[Judgement]:
    """The VPC, Kubernetes services and peers do not overlap; subnets lie in the VPC, side by side; and each group's
    subnet holds its nodes at their maximum, by the same numbers that configure the VPC CNI. A subnet of another program
    is not counted when neither this program nor its config states its range. Independent of `model/config/cross.py`,
    which validates the config."""
    yield from _vpc_findings(view)
    yield from _budget_findings(view)


def _service(endpoint: Resource) -> str:
    """Return ``ecr.api`` for ``com.amazonaws.us-west-2.ecr.api``."""
    return ".".join(text(endpoint.inputs.get("serviceName")).removeprefix("cn.").split(".")[3:])


def _range(value: object) -> Range | None:
    try:
        return Range(text(value), strict=False)
    except ValueError:
        return None


def _vpc_findings(view: View) -> Iterator[Judgement]:
    config = view.graph.config
    existing = mapping(config.get("existingNetwork"))
    peers = [
        text(each) for key in ("network", "existingNetwork") for each in items(at(config, f"{key}.peerCidrBlocks"))
    ]
    services = []
    for plane in view.control_planes:
        _, found = plane.read("kubernetesNetworkConfig.serviceIpv4Cidr", "kubernetesServiceIpAddressRange")
        services += [text(found)] if text(found) else []
    for vpc in view.of(VPC):
        own = _range(vpc.inputs.get("cidrBlock"))
        if own is None:
            yield Judgement(
                vpc.urn, False, f"cidrBlock is {show(vpc.inputs.get('cidrBlock'))}, wanted a range that can be seen"
            )
            continue
        faults = [*_overlaps("cidrBlock", own, services, peers), *_subnet_overlaps(view, vpc, own)]
        yield from judged(vpc, faults, f"{own} overlaps nothing")
    if existing and not view.of(VPC):
        # Its subnets may lie in further ranges of the VPC.
        adopted = {
            "existingNetwork.cidrBlock": existing.get("cidrBlock"),
            **{
                f"existingNetwork.{kind}[{index}].cidrBlock": at(subnet, "cidrBlock")
                for kind in ("privateSubnets", "publicSubnets")
                for index, subnet in enumerate(items(existing.get(kind)))
            },
        }
        faults = [
            fault
            for path, block in adopted.items()
            if (own := _range(block))
            for fault in _overlaps(path, own, services, peers)
        ]
        for plane in view.control_planes:
            yield from judged(plane.resource, faults, "services and peers overlap the existing VPC nowhere")


def _overlaps(path: str, own: Range, services: list[str], peers: list[str]) -> Iterator[str]:
    for what, ranges in (("service range", services), ("peer", peers)):
        for each in ranges:
            other = _range(each)
            if other is not None and own.overlaps(other):
                yield f"{path} {own} overlaps {what} {other}, wanted ranges apart"


def _subnet_overlaps(view: View, vpc: Resource, own: Range) -> Iterator[str]:
    found = []
    for subnet in view.referring(vpc, "vpcId", SUBNET):
        block = _range(subnet.inputs.get("cidrBlock"))
        if block is None:
            yield f"cidrBlock of {subnet.name} is {show(subnet.inputs.get('cidrBlock'))}, wanted a visible range"
        else:
            inside = own.network_address <= block.network_address and block.broadcast_address <= own.broadcast_address
            if not inside:
                yield f"cidrBlock of {subnet.name} {block} is outside {own}"
            found.append((block.network_address, block.broadcast_address, subnet.name))
    found.sort()
    for (_, end, name), (start, _, other) in itertools.pairwise(found):
        if start <= end:
            yield f"cidrBlock of {other} overlaps that of {name}, wanted ranges apart"


def _budget_findings(view: View) -> Iterator[Judgement]:
    """Check that each subnet of nodes holds all of its groups' nodes, also nodes that may start in another subnet."""
    holders: dict[str, dict[str, list[Supply]]] = {}
    held = held_addresses(view)
    for supply in supplies(view):
        if not all(map(known, supply.subnets)):
            yield unseen(supply.resource, "its subnets are known only during the update, so no addresses are counted")
            continue
        if supply.resource.type == NODE_POOL.token and not supply.subnets:
            yield unseen(supply.resource, "its EC2NodeClass names no subnet by id, so no addresses are counted")
            continue
        for subnet_id in supply.subnets or ("",):
            holders.setdefault(text(subnet_id), {}).setdefault(supply.resource.urn, []).append(supply)
    for subnet_id, members in holders.items():
        if subnet_id and not view.is_ours(subnet_id):
            continue
        block = _range(view.range_of(subnet_id))
        wanted, faults = 0, []
        for holder in members.values():
            if any(each.instance is None or each.most is None for each in holder):
                seen = f"type {show(holder[0].type_name)} or maxSize {show(holder[0].most)}"
                faults.append(f"{holder[0].resource.name}: {seen} is unseen")
            else:
                # A pool of several types has its maximum in one of them at a time.
                wanted += max(_addresses(each, held) for each in holder)
        if block is None:
            faults.append(
                f"subnetIds: {show(subnet_id)} has no range in program or config, wanted one to count against"
            )
        elif wanted > addresses.usable(str(block)):
            names = ", ".join(holder[0].resource.name for holder in members.values())
            faults.append(f"{names} take {wanted} addresses at their most, {block} has {addresses.usable(str(block))}")
        first = next(iter(members.values()))[0].resource
        yield from judged(first, faults, f"{wanted} addresses of all nodes fit into {block}")


def _addresses(supply: Supply, held: addresses.PodAddresses) -> int:
    return addresses.needed(supply.instance, int(supply.most or 0), _layout(supply), held) if supply.instance else 0


def _layout(supply: Supply) -> str:
    """Return the interface layout of nodes, by the number of their EFA interfaces with an address."""
    types = supply.interface_types
    if types.count("efa") > 1:
        return "efa"
    return "ena" if "interface" in types and "efa-only" in types else "efa-only"
