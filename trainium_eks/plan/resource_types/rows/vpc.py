"""EC2's networks: VPCs, subnets, gateways, routes, endpoints and flow logs."""

from collections.abc import Callable, Iterable, Iterator

from trainium_eks.model.catalogue.instances import Catalogue
from trainium_eks.model.sizing import bill
from trainium_eks.model.sizing.bill import Line
from trainium_eks.plan.backend import ACCOUNT, Answer, Answerer, Call
from trainium_eks.plan.graph import Graph, Resource
from trainium_eks.plan.resource_types import access, concerns
from trainium_eks.plan.resource_types.resource_type import (
    REGION,
    BilledElsewhere,
    Concern,
    Holds,
    RefusesDeletion,
    ResourceType,
    ShownType,
    Worth,
    nothing_more,
)


def _identified(prefix: str, service_path: str = "") -> Answerer:
    """Return an answerer with an id, and an ARN when ``service_path`` (``internet-gateway``) is given."""

    def answer(call: Call) -> Answer:
        identity = call.sim(prefix)
        return identity, {"arn": call.arn("ec2", f"{service_path}/{identity}")} if service_path else {}

    return answer


def _documentation_address(call: Call) -> str:
    """Return an address of 192.0.2.0/24, which is reserved for documentation (RFC 5737)."""
    return f"192.0.2.{int(call.digest, 16) % 254 + 1}"


def _each(line: Callable[[int], Line]) -> Callable[[Graph, Resource, Catalogue], Iterable[Line]]:
    """Return the price of a type that costs the same for all inputs."""
    return lambda _graph, _resource, _catalogue: (line(1),)


def _vpc(call: Call) -> Answer:
    identity = call.sim("vpc")
    return identity, {
        "arn": call.arn("ec2", f"vpc/{identity}"),
        "ownerId": ACCOUNT,
        "mainRouteTableId": call.sim("rtb"),
        "defaultRouteTableId": call.sim("rtb"),
        "defaultSecurityGroupId": call.sim("sg"),
        "defaultNetworkAclId": call.sim("acl"),
        "dhcpOptionsId": call.sim("dopt"),
        "instanceTenancy": call.inputs.get("instanceTenancy", "default"),
    }


VPC = ResourceType(
    token="aws:ec2/vpc:Vpc",
    simulated=_vpc,
    replaced_by=(REGION, "cidrBlock", "instanceTenancy", "ipv4IpamPoolId", "ipv4NetmaskLength"),
    seconds=12,
    shown=ShownType(lambda _graph, vpc: [str(vpc.inputs.get("cidrBlock", ""))]),
    holds=Holds("everything in it", Worth.GROUND),
    refuses_deletion=RefusesDeletion("DependencyViolation: The vpc '{id}' has dependencies and cannot be deleted."),
    creation="",
)


def _subnet(call: Call) -> Answer:
    identity = call.sim("subnet")
    # Which letter a zone id has differs between accounts, so no simulated answer may look like a real one.
    zone = call.inputs.get("availabilityZone") or f"{call.region}-sim-{call.text('availabilityZoneId')}"
    return identity, {"arn": call.arn("ec2", f"subnet/{identity}"), "ownerId": ACCOUNT, "availabilityZone": zone}


def _subnet_facts(_graph: Graph, subnet: Resource) -> Iterable[str]:
    yield str(subnet.inputs.get("cidrBlock", ""))
    yield str(subnet.inputs.get("availabilityZoneId", ""))


def zones_of(graph: Graph, resource: Resource) -> str:
    """Return the zone ids of a resource's subnets; the subnets' ids when they are made elsewhere."""
    subnets = "subnetIds" if "subnetIds" in resource.inputs else "subnetId"
    urns = resource.property_dependencies.get(subnets, ())
    zones = [graph.by_urn[urn].inputs.get("availabilityZoneId") for urn in urns if urn in graph.by_urn]
    if found := sorted({str(zone) for zone in zones if zone}):
        return ", ".join(found)
    given = resource.inputs.get(subnets) or ()
    return given if isinstance(given, str) else ", ".join(map(str, given))


SUBNET = ResourceType(
    token="aws:ec2/subnet:Subnet",
    simulated=_subnet,
    replaced_by=(
        REGION,
        "vpcId",
        "cidrBlock",
        "availabilityZone",
        "availabilityZoneId",
        "ipv6Native",
        "outpostArn",
    ),
    seconds=12,
    shown=ShownType(_subnet_facts),
    holds=Holds("everything in it", Worth.GROUND),
    refuses_deletion=RefusesDeletion("DependencyViolation: The subnet '{id}' has dependencies and cannot be deleted."),
    understood=(Concern("mapPublicIpOnLaunch", concerns.switched_on, "instances get public addresses"),),
    creation="",
)

INTERNET_GATEWAY = ResourceType(
    token="aws:ec2/internetGateway:InternetGateway",
    simulated=_identified("igw", "internet-gateway"),
    replaced_by=(REGION,),
)


def _eip(call: Call) -> Answer:
    identity = call.sim("eipalloc")
    arn = call.arn("ec2", f"elastic-ip/{identity}")
    return identity, {
        "allocationId": identity,
        "publicIp": _documentation_address(call),
        "arn": arn,
        "domain": "vpc",
    }


EIP = ResourceType(
    token="aws:ec2/eip:Eip",
    simulated=_eip,
    replaced_by=(REGION, "domain", "publicIpv4Pool", "address", "networkBorderGroup"),
    price=_each(bill.public_addresses),
    creation="",
)


def _nat_gateway(call: Call) -> Answer:
    return call.sim("nat"), {
        "networkInterfaceId": call.sim("eni"),
        "publicIp": _documentation_address(call),
        "associationId": "eipassoc-sim",
    }


NAT_GATEWAY = ResourceType(
    token="aws:ec2/natGateway:NatGateway",
    simulated=_nat_gateway,
    replaced_by=(REGION, "subnetId", "allocationId", "connectivityType", "privateIp", "vpcId"),
    seconds=106,
    price=_each(bill.nat_gateways),
    shown=ShownType(nothing_more),
    creation="traffic leaves from another address",
)

ROUTE_TABLE = ResourceType(
    token="aws:ec2/routeTable:RouteTable",
    simulated=_identified("rtb", "route-table"),
    replaced_by=(REGION, "vpcId"),
    creation="",
)

ROUTE = ResourceType(
    token="aws:ec2/route:Route",
    simulated=_identified("r"),
    tagged=False,
    replaced_by=(
        REGION,
        "routeTableId",
        "destinationCidrBlock",
        "destinationIpv6CidrBlock",
        "destinationPrefixListId",
    ),
)

ROUTE_TABLE_ASSOCIATION = ResourceType(
    token="aws:ec2/routeTableAssociation:RouteTableAssociation",
    simulated=_identified("rtbassoc"),
    tagged=False,
    replaced_by=(REGION, "subnetId", "gatewayId"),
    creation="",
)

FLOW_LOG = ResourceType(
    token="aws:ec2/flowLog:FlowLog",
    simulated=_identified("fl", "vpc-flow-log"),
    replaced_by=(
        REGION,
        "vpcId",
        "subnetId",
        "eniId",
        "iamRoleArn",
        "logDestination",
        "logDestinationType",
        "logFormat",
        "maxAggregationInterval",
        "trafficType",
        "destinationOptions",
    ),
    price=BilledElsewhere("logs"),
    creation="",
    deletion="the network's flow logs",
)


def is_interface_endpoint(resource: Resource) -> bool:
    """Return whether a resource is a VPC endpoint with network interfaces (other endpoints are routes)."""
    return resource.type == VPC_ENDPOINT.token and resource.inputs.get("vpcEndpointType") == "Interface"


def _vpc_endpoint(call: Call) -> Answer:
    identity = call.sim("vpce")
    gateway = call.inputs.get("vpcEndpointType", "Gateway") == "Gateway"
    service = call.text("serviceName").rsplit(".", 1)[-1]
    return identity, {
        "arn": call.arn("ec2", f"vpc-endpoint/{identity}"),
        "ownerId": ACCOUNT,
        "state": "available",
        "prefixListId": call.sim("pl") if gateway else "",
        "networkInterfaceIds": [] if gateway else [call.sim("eni")],
        "dnsEntries": [] if gateway else [{"dnsName": f"{service}.{call.region}.sim", "hostedZoneId": "ZSIM"}],
    }


def _endpoint_price(_graph: Graph, endpoint: Resource, _catalogue: Catalogue) -> Iterator[Line]:
    if is_interface_endpoint(endpoint):
        yield bill.interface_endpoints(len(endpoint.inputs.get("subnetIds") or ()))


def _endpoint_facts(_graph: Graph, endpoint: Resource) -> Iterable[str]:
    yield str(endpoint.inputs.get("serviceName", "")).split(".", 3)[-1]
    yield str(endpoint.inputs.get("vpcEndpointType", "Gateway")).lower()


VPC_ENDPOINT = ResourceType(
    token="aws:ec2/vpcEndpoint:VpcEndpoint",
    simulated=_vpc_endpoint,
    replaced_by=(REGION, "vpcId", "serviceName", "serviceRegion", "vpcEndpointType"),
    seconds=lambda endpoint: 60 if is_interface_endpoint(endpoint) else 6,
    price=_endpoint_price,
    shown=ShownType(_endpoint_facts),
    understood=access.POLICY,
    creation="",
)
