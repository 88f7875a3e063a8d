"""What AWS refuses although a preview passes."""

import re
from collections.abc import Mapping

from trainium_eks.graph.graph import Graph, Resource
from trainium_eks.graph.judging.changes import ResourceChange
from trainium_eks.graph.resource_types import eks, replacements
from trainium_eks.model.versions import step_refusal


def refusals(
    before: Graph, after: Graph, old: Mapping[str, Resource], changes: Mapping[str, ResourceChange]
) -> dict[str, str]:
    """URN of a changed resource to why AWS refuses the change.

    Args:
        before: the program that is built.
        after: the program that is to be.
        old: the resources of ``before`` by the URNs that they have afterwards.
        changes: all changes, by the same URNs.
    """
    gone = {urn for urn, change in changes.items() if change.kind in ("replace", "delete")}
    made = {urn for urn, change in changes.items() if change.kind in ("replace", "create")}
    found = {}
    for urn, change in changes.items():
        if change.kind != "update":
            continue
        # Subnets of the same VPC can be exchanged (UpdateClusterConfig takes subnetIds), another VPC's cannot.
        exchanged = change.resource.type == eks.CLUSTER.token and any(
            replacements.covers("vpcConfig.subnetIds", path.path) for path in change.paths
        )
        if exchanged and (_vpcs(before, old[urn]) & gone or _vpcs(after, change.resource) & made):
            found[urn] = "EKS cannot move a cluster to another VPC: make a new environment, or destroy this one first"
        elif reason := _version_refusal(change) or _release_refusal(change) or _block_refusal(change, old[urn]):
            found[urn] = reason
    return found


def _vpcs(graph: Graph, cluster: Resource) -> set[str]:
    """URNs of the VPCs that a cluster's subnets are made in."""
    subnets = (graph.by_urn.get(urn) for urn in cluster.property_dependencies.get("vpcConfig", ()))
    return {vpc for subnet in subnets if subnet for vpc in subnet.property_dependencies.get("vpcId", ())}


def _version_refusal(change: ResourceChange) -> str:
    if change.resource.type not in (eks.CLUSTER.token, eks.NODE_GROUP.token):
        return ""
    found = next((path for path in change.paths if path.path == "version"), None)
    is_control_plane = change.resource.type == eks.CLUSTER.token
    return step_refusal(found.before, found.after, is_control_plane=is_control_plane) if found else ""


def _release_refusal(change: ResourceChange) -> str:
    """Why EKS refuses an AMI release: a group never goes back to an older one (EKS API, UpdateNodegroupVersion)."""
    found = next((path for path in change.paths if path.path == "releaseVersion"), None)
    before, after = (_release(found.before), _release(found.after)) if found else (None, None)
    if found is None or before is None or after is None or before[0] != after[0] or after[1] >= before[1]:
        return ""
    return (
        f"EKS never goes back from AMI release {found.before} to {found.after}: keep it, or add a group of another "
        "name with the older release"
    )


def _block_refusal(change: ResourceChange, standing: Resource) -> str:
    """Why the nodes of a Capacity Block group cannot be exchanged while it has some. There is no instance outside the
    block to start the new node on, and the provider updates the version before the size, so that a smaller size in the
    same ``up`` comes too late (EKS user guide, Capacity Blocks with managed node groups)."""
    nodes = (standing.inputs.get("scalingConfig") or {}).get("desiredSize")
    if not change.rolls_nodes or not nodes or standing.inputs.get("capacityType") != "CAPACITY_BLOCK":
        return ""
    return (
        f"EKS exchanges the nodes of a Capacity Block group only while it has none, and this one is to have {nodes}. "
        "Once its jobs have saved, set desiredSize and minSize to 0 and bring that up by itself; then this change; "
        "then set the size again"
    )


def _release(release: object) -> tuple[str, str] | None:
    """Minor version and day of an AMI release: ``1.35`` and ``20260818`` of ``1.35.6-20260818``."""
    match = re.fullmatch(r"([0-9]+\.[0-9]+)\.[0-9]+-([0-9]{8})", release) if isinstance(release, str) else None
    return (match[1], match[2]) if match else None
