"""Search for left-over compute, which costs most: node groups, Auto Scaling groups, instances, clusters, endpoints of
SageMaker."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trainium_eks.aws.tags import cluster_of, tags_of
from trainium_eks.model.catalogue import prices, sagemaker_hosting
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.operate.cleanup import kinds
from trainium_eks.operate.cleanup.left_over import LeftOver, Where

Json = Mapping[str, Any]

ALIVE = ("pending", "running", "stopping", "stopped")


def search(where: Where) -> list[LeftOver]:
    """Return all left-over compute. A node group stands for its instances and Auto Scaling group; an instance is listed
    by itself only where no other leftover names it."""
    found: list[LeftOver] = []
    running = _instances(where)
    for name in where.account.pages("eks", "list_clusters", "clusters"):
        if where.marks.is_cluster(name):
            found += _of_cluster(where, name, running)
    found += kinds.search(where, kinds.SCALING_GROUP)
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
        (name,),
        live=cluster.get("status") in ("ACTIVE", "UPDATING"),
        note="after its node groups; without it Kubernetes no longer removes its volumes and load balancers",
    )


def _node_group(where: Where, group: Json, running: Iterable[Json]) -> LeftOver:
    cluster, name = group["clusterName"], group["nodegroupName"]
    types = [
        each["InstanceType"]
        for each in running
        if kinds.group_of(tags_of(each.get("Tags", ()))) == f"{cluster}:{name}" and each["State"]["Name"] != "stopped"
    ]
    shown = sorted(set(types)) or list(group.get("instanceTypes", ()))
    return LeftOver(
        "node group",
        name,
        f"of the cluster {cluster}",
        kinds.on_demand_hourly(types),
        (where.command("eks", "delete-nodegroup", "--cluster-name", cluster, "--nodegroup-name", name),),
        (f"{cluster}:{name}", group.get("nodegroupArn", "")),
        note=f"{len(types)} instances of {', '.join(shown) or 'its launch template'}; {group.get('status', '')}",
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
        0.0 if stopped else kinds.on_demand_hourly([instance["InstanceType"]]),
        (where.command("ec2", "terminate-instances", "--instance-ids", identity),),
        (identity,),
        # Karpenter's nodes have no node group: the cluster's Karpenter removes them.
        owners=(cluster_of(tags),) if "karpenter.sh/nodepool" in tags else (),
        goes_with=(kinds.group_of(tags), tags.get("aws:autoscaling:groupName", "")),
        note=f"{instance['InstanceType']}, {instance['State']['Name']}",
    )


def endpoints(where: Where) -> Iterator[LeftOver]:
    """Yield SageMaker endpoints of ``trn serve``, which are in no state: those whose models run as the stack's
    researchers do."""
    if not where.marks.stack:
        return
    role = f"{where.marks.prefix}sagemaker-execution"
    for each in where.account.pages("sagemaker", "list_endpoints", "Endpoints"):
        name = each["EndpointName"]
        used = where.account.call("sagemaker", "describe_endpoint", EndpointName=name)["EndpointConfigName"]
        config = where.account.call("sagemaker", "describe_endpoint_config", EndpointConfigName=used)
        variants = config["ProductionVariants"]
        models = tuple(variant["ModelName"] for variant in variants if "ModelName" in variant)
        found = [where.account.call("sagemaker", "describe_model", ModelName=model) for model in models]
        roles = [model.get("ExecutionRoleArn", "").rpartition("/")[2] for model in found]
        # Pulumi ends the role's name with seven digits.
        if not any(held.startswith(role) for held in roles):
            continue
        types = [
            variant.get("InstanceType", "").removeprefix(sagemaker_hosting.PREFIX)
            for variant in variants
            for _ in range(variant.get("InitialInstanceCount", 1))
        ]
        hourly = kinds.on_demand_hourly(types, sagemaker_hosting.types(CATALOGUE))
        yield LeftOver(
            "SageMaker endpoint",
            name,
            f"its models run as {roles[0]}",
            None if hourly is None else hourly * prices.SAGEMAKER_FACTOR,
            (
                where.command("sagemaker", "delete-endpoint", "--endpoint-name", name),
                where.command("sagemaker", "delete-endpoint-config", "--endpoint-config-name", used),
                *(where.command("sagemaker", "delete-model", "--model-name", model) for model in models),
            ),
            (name, each["EndpointArn"]),
            # While the state holds the role, the endpoint is a researcher's in use.
            owners=tuple(roles),
            note=f"made by `trn serve`; {each['EndpointStatus']}",
        )
