"""Search for left-over compute: node groups, Auto Scaling groups, instances and clusters, which cost most."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trainium_eks.model.catalogue import prices
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.operate.cleanup.left_over import LeftOver, Where
from trainium_eks.operate.preflight.tags import cluster_of, tags_of

Json = Mapping[str, Any]

ALIVE = ("pending", "running", "stopping", "stopped")
"""States of an instance that has not been terminated."""


def search(where: Where) -> list[LeftOver]:
    """Return all left-over compute. A node group stands for its instances and Auto Scaling group; an instance is listed
    by itself only where no other leftover names it."""
    found: list[LeftOver] = []
    running = _instances(where)
    for name in where.account.pages("eks", "list_clusters", "clusters"):
        if where.marks.is_cluster(name):
            found += _of_cluster(where, name, running)
    found += _scaling_groups(where)
    found += (_instance(where, each) for each in running)
    return found


def _of_cluster(where: Where, name: str, running: Iterable[Json]) -> Iterator[LeftOver]:
    for group in where.account.pages("eks", "list_nodegroups", "nodegroups", clusterName=name):
        answer = where.account.call("eks", "describe_nodegroup", clusterName=name, nodegroupName=group)
        yield _node_group(where, answer["nodegroup"], running)
    cluster = where.account.call("eks", "describe_cluster", name=name)["cluster"]
    unlock = (
        (where.command("eks", "update-cluster-config", "--name", name, "--no-deletion-protection"),)
        if cluster.get("deletionProtection")
        else ()
    )
    yield LeftOver(
        "EKS cluster",
        name,
        f"of the cluster {name}",
        prices.EKS_CLUSTER_HOURLY,
        (*unlock, where.command("eks", "delete-cluster", "--name", name)),
        frozenset({name}),
        live=cluster.get("status") in ("ACTIVE", "UPDATING"),
        note="after its node groups; without it Kubernetes no longer removes its volumes and load balancers",
    )


def _node_group(where: Where, group: Json, running: Iterable[Json]) -> LeftOver:
    cluster, name = group["clusterName"], group["nodegroupName"]
    types = [
        each["InstanceType"]
        for each in running
        if _group_of(tags_of(each.get("Tags", ()))) == f"{cluster}:{name}" and each["State"]["Name"] != "stopped"
    ]
    kinds = sorted(set(types)) or list(group.get("instanceTypes", ()))
    return LeftOver(
        "node group",
        name,
        f"of the cluster {cluster}",
        _hourly(types),
        (where.command("eks", "delete-nodegroup", "--cluster-name", cluster, "--nodegroup-name", name),),
        frozenset({f"{cluster}:{name}", group.get("nodegroupArn", "")}) - {""},
        note=f"{len(types)} instances of {', '.join(kinds) or 'its launch template'}; {group.get('status', '')}",
    )


def _scaling_groups(where: Where) -> Iterator[LeftOver]:
    for group in where.account.pages("autoscaling", "describe_auto_scaling_groups", "AutoScalingGroups"):
        tags, name = tags_of(group.get("Tags", ())), group["AutoScalingGroupName"]
        why = where.marks.why("", tags)
        if not why or group.get("Status"):  # a status is only set while it is being deleted
            continue
        owner = _group_of(tags)
        yield LeftOver(
            "Auto Scaling group",
            name,
            why,
            _hourly(each.get("InstanceType", "") for each in group.get("Instances", ())),
            (
                where.command(
                    "autoscaling", "delete-auto-scaling-group", "--auto-scaling-group-name", name, "--force-delete"
                ),
            ),
            frozenset({name}),
            goes_with=frozenset({owner} - {""}),
            note=f"{len(group.get('Instances', ()))} instances; it starts new ones for those that are terminated",
        )


def _instances(where: Where) -> list[Json]:
    """Return the instances that carry the stack's marks."""
    alive = [{"Name": "instance-state-name", "Values": list(ALIVE)}]
    reservations = where.account.pages("ec2", "describe_instances", "Reservations", Filters=alive)
    return [
        each
        for reservation in reservations
        for each in reservation["Instances"]
        if where.marks.why("", tags_of(each.get("Tags", ())), each.get("VpcId", ""))
    ]


def _instance(where: Where, instance: Json) -> LeftOver:
    tags, identity = tags_of(instance.get("Tags", ())), instance["InstanceId"]
    stopped = instance["State"]["Name"] == "stopped"
    return LeftOver(
        "instance",
        identity,
        where.marks.why("", tags, instance.get("VpcId", "")),
        0.0 if stopped else _hourly([instance["InstanceType"]]),
        (where.command("ec2", "terminate-instances", "--instance-ids", identity),),
        frozenset({identity}),
        # Karpenter's nodes have no node group: the cluster's Karpenter removes them.
        owners=frozenset({cluster_of(tags)} - {""}) if "karpenter.sh/nodepool" in tags else frozenset(),
        goes_with=frozenset({_group_of(tags), tags.get("aws:autoscaling:groupName", "")} - {""}),
        note=f"{instance['InstanceType']}, {instance['State']['Name']}",
    )


def _group_of(tags: Mapping[str, str]) -> str:
    """Return ``cluster:group``, the name of a node group in the state; empty for a resource that no node group made."""
    group, cluster = tags.get("eks:nodegroup-name", ""), cluster_of(tags)
    return f"{cluster}:{group}" if group and cluster else ""


def _hourly(types: Iterable[str]) -> float | None:
    """Return the sum of the On-Demand prices, or None where a type has no price."""
    total = 0.0
    for each in types:
        price = CATALOGUE.price(each) if each in CATALOGUE else None
        if price is None:
            return None
        total += price.hourly_usd
    return total
