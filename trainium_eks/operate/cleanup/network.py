"""Search for left-over network resources: load balancers, NAT gateways, addresses, endpoints, interfaces, and their
VPC."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainium_eks.aws.account import Account
from trainium_eks.model.catalogue import prices
from trainium_eks.operate.cleanup.left_over import FREE, LeftOver, Where
from trainium_eks.operate.cleanup.marks import Marks
from trainium_eks.operate.preflight.tags import cluster_of, tags_of

Json = Mapping[str, Any]

TAGS_AT_ONCE = 20
"""Load balancers in one call that describes tags."""


def own_vpcs(account: Account, marks: Marks) -> frozenset[str]:
    """Return the ids of the VPCs that the stack made, by their tags; VPCs that the stack only uses are left out."""
    found = account.pages("ec2", "describe_vpcs", "Vpcs")
    return frozenset(each["VpcId"] for each in found if marks.why("", tags_of(each.get("Tags", ()))))


def load_balancers(where: Where) -> Iterator[LeftOver]:
    """Yield load balancers that Kubernetes made for Services and Ingresses: they, and their interfaces, hold up a VPC's
    deletion."""
    account = where.account
    found = account.pages("elbv2", "describe_load_balancers", "LoadBalancers")
    for some in _batches(found):
        arns = [each["LoadBalancerArn"] for each in some]
        answer = account.call("elbv2", "describe_tags", ResourceArns=arns)
        tags = {each["ResourceArn"]: tags_of(each["Tags"]) for each in answer["TagDescriptions"]}
        for each in some:
            arn = each["LoadBalancerArn"]
            command = where.command("elbv2", "delete-load-balancer", "--load-balancer-arn", arn)
            own = tags.get(arn, {})
            yield from _balancer(where, each, own, each.get("VpcId", ""), command, prices.LOAD_BALANCER_HOURLY)
    classic = account.pages("elb", "describe_load_balancers", "LoadBalancerDescriptions")
    for some in _batches(classic):
        names = [each["LoadBalancerName"] for each in some]
        answer = account.call("elb", "describe_tags", LoadBalancerNames=names)
        tags = {each["LoadBalancerName"]: tags_of(each["Tags"]) for each in answer["TagDescriptions"]}
        for each in some:
            name = each["LoadBalancerName"]
            command = where.command("elb", "delete-load-balancer", "--load-balancer-name", name)
            own = tags.get(name, {})
            yield from _balancer(where, each, own, each.get("VPCId", ""), command, prices.CLASSIC_LOAD_BALANCER_HOURLY)


def _balancer(
    where: Where, balancer: Json, tags: Mapping[str, str], vpc: str, command: str, hourly: float
) -> Iterator[LeftOver]:
    why, name = where.marks.why("", tags, vpc), balancer["LoadBalancerName"]
    if why:
        service = tags.get("kubernetes.io/service-name") or tags.get("service.k8s.aws/stack", "")
        yield LeftOver(
            "load balancer",
            name,
            why,
            hourly,
            (command,),
            frozenset({name, balancer.get("LoadBalancerArn", "")} - {""}),
            owners=frozenset({cluster_of(tags)} - {""}),
            note=f"made for {service}" if service else "",
        )


def _batches(found: list[Json]) -> Iterator[list[Json]]:
    return (found[start : start + TAGS_AT_ONCE] for start in range(0, len(found), TAGS_AT_ONCE))


@dataclass(frozen=True)
class Kind:
    """A kind of EC2 resource, listed with its id, its tags and mostly its VPC."""

    name: str
    operation: str
    key: str
    """Key of the list in the answer."""
    id: str
    """Field of the id."""
    remove: tuple[str, str]
    """Operation of the AWS CLI and the option for the id."""
    hourly: Callable[[Json], float] = lambda _: FREE
    counts: Callable[[Json], bool] = lambda _: True
    """Whether an entry can be a leftover."""
    called: str = ""
    """Field of the name; empty for none."""
    note: str = ""
    detach: tuple[str, str] | None = None
    """Operation that must come first, and its option for the VPC."""

    @property
    def plural(self) -> str:
        """Return the plural of the name (``public addresses``)."""
        return f"{self.name}es" if self.name.endswith("s") else f"{self.name}s"


KINDS = (
    Kind(
        "NAT gateway", "describe_nat_gateways", "NatGateways", "NatGatewayId",
        ("delete-nat-gateway", "--nat-gateway-id"),
        hourly=lambda _: prices.NAT_GATEWAY_HOURLY,
        counts=lambda each: each["State"] in ("pending", "available"),
    ),
    Kind(
        "VPC endpoint", "describe_vpc_endpoints", "VpcEndpoints", "VpcEndpointId",
        ("delete-vpc-endpoints", "--vpc-endpoint-ids"),
        hourly=lambda each: len(each.get("SubnetIds", ())) * prices.INTERFACE_ENDPOINT_HOURLY
        if each.get("VpcEndpointType") == "Interface" else FREE,
        counts=lambda each: each.get("State", "").lower() not in ("deleting", "deleted"),
    ),
    Kind(
        "public address", "describe_addresses", "Addresses", "AllocationId",
        ("release-address", "--allocation-id"),
        hourly=lambda _: prices.PUBLIC_IPV4_HOURLY,
        note="after the NAT gateway that uses it",
    ),
    Kind(
        "network interface", "describe_network_interfaces", "NetworkInterfaces", "NetworkInterfaceId",
        ("delete-network-interface", "--network-interface-id"),
        # An interface in use goes with its user; only AWS can remove its own interfaces.
        counts=lambda each: each["Status"] == "available" and not each.get("RequesterManaged"),
        note="holds up its subnet and its security groups",
    ),
    Kind(
        "security group", "describe_security_groups", "SecurityGroups", "GroupId",
        ("delete-security-group", "--group-id"),
        counts=lambda each: each["GroupName"] != "default",
        called="GroupName",
    ),
    Kind(
        "launch template", "describe_launch_templates", "LaunchTemplates", "LaunchTemplateId",
        ("delete-launch-template", "--launch-template-id"),
        called="LaunchTemplateName",
    ),
    Kind(
        "placement group", "describe_placement_groups", "PlacementGroups", "GroupName",
        ("delete-placement-group", "--group-name"),
        counts=lambda each: each.get("State") in ("pending", "available"),
        called="GroupName",
    ),
    Kind(
        "internet gateway", "describe_internet_gateways", "InternetGateways", "InternetGatewayId",
        ("delete-internet-gateway", "--internet-gateway-id"),
        detach=("detach-internet-gateway", "--vpc-id"),
    ),
    Kind("subnet", "describe_subnets", "Subnets", "SubnetId", ("delete-subnet", "--subnet-id")),
    Kind(
        "route table", "describe_route_tables", "RouteTables", "RouteTableId",
        ("delete-route-table", "--route-table-id"),
        counts=lambda each: not any(one.get("Main") for one in each.get("Associations", ())),
        note="after its subnets",
    ),
    Kind(
        "VPC", "describe_vpcs", "Vpcs", "VpcId", ("delete-vpc", "--vpc-id"), note="last: after all that is in it"
    ),
)  # fmt: skip
"""Kinds in the order in which they can be removed."""


def search(where: Where, kind: Kind) -> Iterator[LeftOver]:
    """Yield leftovers of one kind of EC2 resource."""
    for each in where.account.pages("ec2", kind.operation, kind.key):
        tags, identity = tags_of(each.get("Tags", ())), str(each.get(kind.id, ""))
        called = str(each.get(kind.called, "")) if kind.called else ""
        vpc = "" if kind.name == "VPC" else each.get("VpcId", "")
        why = where.marks.why(called, tags, vpc)
        if not why or not identity or not kind.counts(each):
            continue
        shown = called or tags.get("Name", "")
        yield LeftOver(
            kind.name,
            f"{identity} ({shown})" if shown and shown != identity else identity,
            why,
            kind.hourly(each),
            (*_detached(where, kind, each), where.command("ec2", kind.remove[0], kind.remove[1], identity)),
            frozenset({identity, called} - {""}),
            owners=frozenset({cluster_of(tags)} - {""}),
            goes_with=_made_with(called, tags),
            note=kind.note,
        )


def _made_with(called: str, tags: Mapping[str, str]) -> frozenset[str]:
    """Return the cluster that removes its own security group, by the group's name and tags."""
    return frozenset({cluster_of(tags)} - {""}) if called.startswith("eks-cluster-sg-") else frozenset()


def _detached(where: Where, kind: Kind, thing: Json) -> Iterable[str]:
    if kind.detach is None:
        return
    operation, option = kind.detach
    for each in thing.get("Attachments", ()):
        yield where.command("ec2", operation, kind.remove[1], thing[kind.id], option, each["VpcId"])
