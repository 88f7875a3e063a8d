"""Kinds of resources that a service lists whole, each with its tags: the network, volumes, backups, aliases of keys.

One table and one search for all. Services' own lists, not the tagging API: that one goes on naming resources which were
deleted, and names none that carries no tag but is in the stack's VPC.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainium_eks.aws import market, reservations
from trainium_eks.aws.tags import cluster_of, tags_of
from trainium_eks.model.catalogue import prices
from trainium_eks.model.catalogue.instances import CATALOGUE, Catalogue
from trainium_eks.operate.cleanup.left_over import FREE, LeftOver, Where, monthly

Json = Mapping[str, Any]
Tags = Mapping[str, str]

CLAIM = ("kubernetes.io/created-for/pvc/namespace", "kubernetes.io/created-for/pvc/name")
"""Tags in which the CSI driver notes the claim that a volume was made for."""

CLAIM_RACE = "the CSI driver was deleted before it had deleted the volume of a deleted claim"

GIB = 1024**3


@dataclass(frozen=True)
class ResourceKind:
    """A kind of resource, with its list and the command that removes one."""

    name: str
    service: str
    operation: str
    key: str
    id: str
    remove: tuple[str, ...]
    """Operation of the AWS CLI with its options; the id follows."""
    hourly: Callable[[Json], float | None] = lambda _: FREE
    counts: Callable[[Json], bool] = lambda _: True
    """Whether an entry can be a leftover."""
    called: str = ""
    """Field of the name; empty for none."""
    note: Callable[[Json, Tags], str] = lambda *_: ""
    owners: Callable[[Json, Tags], tuple[str, ...]] = lambda _, tags: (cluster_of(tags),)
    """Names of its makers, which use it while the state holds them."""
    goes_with: Callable[[Json, Tags], tuple[str, ...]] = lambda *_: ()
    """Names of resources that take it along."""
    race: Callable[[Json, Tags], str] = lambda *_: ""
    """Why AWS leaves it although its maker was deleted in order."""

    @property
    def plural(self) -> str:
        """Return the plural of the name (``public addresses``)."""
        return f"{self.name}es" if self.name.endswith("s") else f"{self.name}s"


def group_of(tags: Tags) -> str:
    """Return ``cluster:group``, the name of a node group in the state; empty for a resource that no node group made."""
    group, cluster = tags.get("eks:nodegroup-name", ""), cluster_of(tags)
    return f"{cluster}:{group}" if group and cluster else ""


def on_demand_hourly(types: Iterable[str], catalogue: Catalogue = CATALOGUE) -> float | None:
    """Return the sum of the On-Demand prices, or None where a type has no price."""
    found = [catalogue.price(each) if each in catalogue else None for each in types]
    known = [price.hourly_usd for price in found if price is not None]
    return sum(known) if len(known) == len(found) else None


def _claim(tags: Tags) -> str:
    return "/".join(tags[key] for key in CLAIM if key in tags)


def _volume_hourly(volume: Json) -> float | None:
    if volume.get("VolumeType") != "gp3":
        return None
    throughput, iops = volume.get("Throughput", prices.GP3_FREE_MIBPS), volume.get("Iops", prices.GP3_FREE_IOPS)
    return monthly(prices.gp3_monthly_usd(volume["Size"], throughput, iops))


def _instances(volume: Json, tags: Tags) -> tuple[str, ...]:
    """Return the instances that take a volume along: the volume of a claim stays, a root volume does not."""
    return () if _claim(tags) else tuple(each.get("InstanceId", "") for each in volume.get("Attachments", ()))


def _volume_note(volume: Json, tags: Tags) -> str:
    claim = _claim(tags)
    return f"{volume['Size']} GiB" + (f", of the claim {claim}: its data is lost with it" if claim else "")


def _source(backup: Json) -> str:
    return str((backup.get("FileSystem") or {}).get("FileSystemId", ""))


def _reserved_note(reservation: Json, tags: Tags) -> str:
    what = f"{reservation['TotalInstanceCount']} {reservation['InstanceType']}"
    made = f"{reservation['CreateDate']:%Y-%m-%d %H:%M} UTC"
    ends = f"{reservation['EndDate']:%Y-%m-%d %H:%M} UTC" if "EndDate" in reservation else "its end is set"
    whose = f"`trn scale` or `trn train` of {tags.get(reservations.CALLER_TAG, '?')}"
    return f"{what}, made at {made} for {whose}, who may still use it; EC2 ends it within the hour after {ends}"


SCALING_GROUP = ResourceKind(
    "Auto Scaling group", "autoscaling", "describe_auto_scaling_groups", "AutoScalingGroups", "AutoScalingGroupName",
    ("delete-auto-scaling-group", "--force-delete", "--auto-scaling-group-name"),
    hourly=lambda each: on_demand_hourly(one.get("InstanceType", "") for one in each.get("Instances", ())),
    counts=lambda each: not each.get("Status"),  # only set while it is being deleted
    note=lambda each, _: f"{len(each.get('Instances', ()))} instances; it starts new ones for those that end",
    owners=lambda *_: (),
    goes_with=lambda _, tags: (group_of(tags),),
)  # fmt: skip

KINDS = (
    ResourceKind(
        "volume", "ec2", "describe_volumes", "Volumes", "VolumeId", ("delete-volume", "--volume-id"),
        hourly=_volume_hourly,
        counts=lambda each: each["State"] not in ("deleting", "deleted"),
        note=_volume_note,
        owners=lambda _, tags: (cluster_of(tags),) if _claim(tags) else (),
        goes_with=_instances,
        race=lambda each, tags: CLAIM_RACE if _claim(tags) and each["State"] == "available" else "",
    ),
    ResourceKind(
        "capacity reservation", "ec2", "describe_capacity_reservations", "CapacityReservations",
        "CapacityReservationId", ("cancel-capacity-reservation", "--capacity-reservation-id"),
        hourly=lambda each: on_demand_hourly([each["InstanceType"]] * each.get("AvailableInstanceCount", 0)),
        counts=lambda each: each["State"] not in market.OVER
        and reservations.NODES_TAG in tags_of(each.get("Tags", ())),
        note=_reserved_note,
        owners=lambda *_: (),  # in no state, and costly: shown beside a stack in service, too
    ),
    ResourceKind(
        "backup", "fsx", "describe_backups", "Backups", "BackupId", ("delete-backup", "--backup-id"),
        hourly=lambda each: monthly(each["SizeInBytes"] / GIB * prices.FSX_BACKUP_GIB_MONTH)
        if "SizeInBytes" in each else None,
        counts=lambda each: each.get("Lifecycle") != "DELETED",
        note=lambda each, _: f"kept on purpose: perhaps the last copy of {_source(each) or 'a file system'}; "
        f"${prices.FSX_BACKUP_GIB_MONTH:.2f} a month for each GiB",
        owners=lambda each, _: (_source(each),),
    ),
    ResourceKind(
        "NAT gateway", "ec2", "describe_nat_gateways", "NatGateways", "NatGatewayId",
        ("delete-nat-gateway", "--nat-gateway-id"),
        hourly=lambda _: prices.NAT_GATEWAY_HOURLY,
        counts=lambda each: each["State"] in ("pending", "available"),
    ),
    ResourceKind(
        "VPC endpoint", "ec2", "describe_vpc_endpoints", "VpcEndpoints", "VpcEndpointId",
        ("delete-vpc-endpoints", "--vpc-endpoint-ids"),
        hourly=lambda each: len(each.get("SubnetIds", ())) * prices.INTERFACE_ENDPOINT_HOURLY
        if each.get("VpcEndpointType") == "Interface" else FREE,
        counts=lambda each: each.get("State", "").lower() not in ("deleting", "deleted"),
    ),
    ResourceKind(
        "public address", "ec2", "describe_addresses", "Addresses", "AllocationId",
        ("release-address", "--allocation-id"),
        hourly=lambda _: prices.PUBLIC_IPV4_HOURLY,
        note=lambda *_: "after the NAT gateway that uses it",
    ),
    ResourceKind(
        "network interface", "ec2", "describe_network_interfaces", "NetworkInterfaces", "NetworkInterfaceId",
        ("delete-network-interface", "--network-interface-id"),
        # An interface in use is deleted with its user; only AWS can remove its own interfaces.
        counts=lambda each: each["Status"] == "available" and not each.get("RequesterManaged"),
        note=lambda *_: "holds up its subnet and its security groups",
    ),
    ResourceKind(
        "security group", "ec2", "describe_security_groups", "SecurityGroups", "GroupId",
        ("delete-security-group", "--group-id"),
        counts=lambda each: each["GroupName"] != "default",
        called="GroupName",
        # A cluster removes its own.
        goes_with=lambda each, tags: (cluster_of(tags),) if each["GroupName"].startswith("eks-cluster-sg-") else (),
    ),
    ResourceKind(
        "launch template", "ec2", "describe_launch_templates", "LaunchTemplates", "LaunchTemplateId",
        ("delete-launch-template", "--launch-template-id"),
        called="LaunchTemplateName",
    ),
    ResourceKind(
        "placement group", "ec2", "describe_placement_groups", "PlacementGroups", "GroupName",
        ("delete-placement-group", "--group-name"),
        counts=lambda each: each.get("State") in ("pending", "available"),
        called="GroupName",
    ),
    ResourceKind(
        "internet gateway", "ec2", "describe_internet_gateways", "InternetGateways", "InternetGatewayId",
        ("delete-internet-gateway", "--internet-gateway-id"),
    ),
    ResourceKind("subnet", "ec2", "describe_subnets", "Subnets", "SubnetId", ("delete-subnet", "--subnet-id")),
    ResourceKind(
        "route table", "ec2", "describe_route_tables", "RouteTables", "RouteTableId",
        ("delete-route-table", "--route-table-id"),
        counts=lambda each: not any(one.get("Main") for one in each.get("Associations", ())),
        note=lambda *_: "after its subnets",
    ),
    ResourceKind(
        "VPC", "ec2", "describe_vpcs", "Vpcs", "VpcId", ("delete-vpc", "--vpc-id"),
        note=lambda *_: "last: after all that is in it",
    ),
    ResourceKind(
        "key alias", "kms", "list_aliases", "Aliases", "AliasName", ("delete-alias", "--alias-name"),
        called="AliasName",
    ),
)  # fmt: skip
"""Kinds in the order in which they can be removed."""


def search(where: Where, kind: ResourceKind) -> Iterator[LeftOver]:
    """Yield leftovers of one kind."""
    for each in where.account.pages(kind.service, kind.operation, kind.key):
        # Network interfaces have a TagSet; an automatic backup may have no tags but its file system's.
        own = each.get("Tags") or each.get("TagSet") or (each.get("FileSystem") or {}).get("Tags", ())
        tags, identity = tags_of(own), str(each.get(kind.id, ""))
        called = str(each.get(kind.called, ""))
        vpc = "" if kind.name == "VPC" else each.get("VpcId", "")
        why = where.marks.why(called, tags, vpc)
        if not why or not identity or not kind.counts(each):
            continue
        shown = called or tags.get("Name", "")
        detached = (
            where.command("ec2", "detach-internet-gateway", kind.remove[1], identity, "--vpc-id", one["VpcId"])
            for one in each.get("Attachments", ())
            if kind.name == "internet gateway"
        )
        yield LeftOver(
            kind.name,
            f"{identity} ({shown})" if shown and shown != identity else identity,
            why,
            kind.hourly(each),
            (*detached, where.command(kind.service, *kind.remove, identity)),
            (identity, called),
            kind.owners(each, tags),
            kind.goes_with(each, tags),
            kind.note(each, tags),
            race=kind.race(each, tags),
        )
