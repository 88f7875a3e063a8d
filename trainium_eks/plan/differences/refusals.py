"""Changes that AWS refuses although a preview passes."""

import re
from collections.abc import Mapping

from trainium_eks.model.catalogue.versions import step_refusal
from trainium_eks.plan.differences.changes import ResourceChange
from trainium_eks.plan.graph import UNKNOWN, Graph, Resource
from trainium_eks.plan.reading import mapping
from trainium_eks.plan.resource_types.paths import covers
from trainium_eks.plan.resource_types.rows import eks, vpc


def refusals(
    before: Graph, after: Graph, old: Mapping[str, Resource], changes: Mapping[str, ResourceChange]
) -> dict[str, str]:
    """Return URN of a changed resource to the reason why AWS refuses the change. ``old`` are the resources of
    ``before``, by their URNs in ``after``."""
    gone = {urn for urn, change in changes.items() if change.kind in ("replace", "delete")}
    made = {urn for urn, change in changes.items() if change.kind in ("replace", "create")}
    found = {}
    for urn, change in changes.items():
        if change.kind != "update":
            if change.kind != "delete" and (reason := _older_group_refusal(after, change.resource)):
                found[urn] = reason
            continue
        standing, now = old[urn], change.resource
        # Subnets of the same VPC can be exchanged (UpdateClusterConfig takes subnetIds), another VPC's cannot.
        exchanged = now.type == eks.CLUSTER.token and any(
            covers("vpcConfig.subnetIds", path.path) for path in change.paths
        )
        if exchanged and (_vpcs(before, standing) & gone or _vpcs(after, now) & made):
            found[urn] = "EKS cannot move a cluster to another VPC: make a new environment, or destroy this one first"
        elif reason := (
            (_zone_refusal(before, standing, after, now) if exchanged else "")
            or _version_refusal(change)
            or _release_refusal(change)
            or _block_refusal(change, standing)
            or _key_refusal(change, made)
        ):
            found[urn] = reason
    return found


def _vpcs(graph: Graph, cluster: Resource) -> set[str]:
    """Return the URNs of the VPCs of a cluster's subnets."""
    subnets = (graph.by_urn.get(urn) for urn in cluster.property_dependencies.get("vpcConfig", ()))
    return {vpc for subnet in subnets if subnet for vpc in subnet.property_dependencies.get("vpcId", ())}


def _zone_refusal(before: Graph, standing: Resource, after: Graph, cluster: Resource) -> str:
    """Return the reason why EKS refuses subnets in other zones (EKS user guide, network requirements: subnets are
    exchanged within the zones that the cluster was made in); empty when it accepts them."""
    old, new = _zones(before, standing), _zones(after, cluster)
    added = sorted({zone for zone in new if zone not in old} - {""})
    if not added or "" in old:
        return ""
    began = ", ".join(sorted(set(old)))
    return (
        f"EKS takes subnets only in the zones that the cluster was made in, {began}, and not in {', '.join(added)}: "
        "leave them out, or make a new environment"
    )


def _zones(graph: Graph, cluster: Resource) -> list[str]:
    """Return the zone of each subnet of a cluster, empty when the program does not name it."""
    made = [graph.by_urn.get(urn) for urn in cluster.property_dependencies.get("vpcConfig", ())]
    subnets = [each.inputs for each in made if each and each.type == vpc.SUBNET.token]
    if subnets:
        return [str(each.get("availabilityZoneId") or each.get("availabilityZone") or "") for each in subnets]
    named = mapping(graph.config.get("existingNetwork"))
    given = {each["id"]: each["zoneId"] for kind in ("private", "public") for each in named.get(f"{kind}Subnets") or ()}
    ids = mapping(cluster.inputs.get("vpcConfig")).get("subnetIds")
    return [str(given.get(each, "")) for each in ids] if isinstance(ids, list) else [""]


def _older_group_refusal(after: Graph, group: Resource) -> str:
    """Return the refusal of a group with another version than its cluster's; else "" (EKS API, CreateNodegroup)."""
    urns = group.property_dependencies.get("clusterName", ())
    made = (after.by_urn.get(urn) for urn in urns) if group.type == eks.NODE_GROUP.token else ()
    cluster = next((each for each in made if each and each.type == eks.CLUSTER.token), None)
    wanted, has = group.inputs.get("version"), cluster.inputs.get("version") if cluster else None
    if not wanted or not has or UNKNOWN in (wanted, has) or wanted == has:
        return ""
    return (
        f"EKS makes a group with the version of its cluster alone, {has}, and not with {wanted}, which a group "
        "can only keep while its cluster is upgraded: leave the version of this group out"
    )


def _version_refusal(change: ResourceChange) -> str:
    if change.resource.type not in (eks.CLUSTER.token, eks.NODE_GROUP.token):
        return ""
    found = next((path for path in change.paths if path.path == "version"), None)
    is_control_plane = change.resource.type == eks.CLUSTER.token
    return step_refusal(found.before, found.after, is_control_plane=is_control_plane) if found else ""


def _release_refusal(change: ResourceChange) -> str:
    """Return the refusal of an AMI release older than the group's present one; else "" (EKS API,
    UpdateNodegroupVersion)."""
    found = next((path for path in change.paths if path.path == "releaseVersion"), None)
    before, after = (_release(found.before), _release(found.after)) if found else (None, None)
    if found is None or before is None or after is None or before[0] != after[0] or after[1] >= before[1]:
        return ""
    return (
        f"EKS never goes back from AMI release {found.before} to {found.after}: keep it, or add a group of another "
        "name with the older release"
    )


def _block_refusal(change: ResourceChange, standing: Resource) -> str:
    """Return the refusal to exchange the nodes of a Capacity Block group that has some; else "". No instance outside
    the block can start the new node, and the provider updates the version before the size, so that a smaller size in
    the same ``up`` comes too late (EKS user guide, Capacity Blocks with managed node groups)."""
    nodes = (standing.inputs.get("scalingConfig") or {}).get("desiredSize")
    if not change.rolls_nodes or not nodes or standing.inputs.get("capacityType") != "CAPACITY_BLOCK":
        return ""
    return (
        f"EKS exchanges the nodes of a Capacity Block group only while it has none, and this one is to have {nodes}. "
        "Once its jobs have saved, set desiredSize and minSize to 0 and bring that up by itself; then this change; "
        "then set the size again"
    )


def _key_refusal(change: ResourceChange, made: set[str]) -> str:
    """Return the refusal of another key for a cluster's secrets; else "". EKS keeps the first one for ever. Its
    provider asks for no change then (terraform-provider-aws, ``eks/cluster.go``: a first configuration is associated,
    no later one), so the ``up`` passes, and the state names a key that encrypts nothing."""
    path = "encryptionConfig.provider.keyArn"
    found = next((each for each in change.paths if each.path == path), None)
    if change.resource.type != eks.CLUSTER.token or found is None:
        return ""
    unknown = found.cause or found.after == UNKNOWN
    if unknown and not made & set(change.resource.property_dependencies.get("encryptionConfig", ())):
        return ""
    if not unknown and not (found.before and found.after):
        return ""
    return (
        f"EKS keeps the key {found.before or 'that the cluster was made with'} for a cluster's secrets, whatever the "
        "program says: leave keptKeyArn as it was, or make a new environment"
    )


def _release(release: object) -> tuple[str, str] | None:
    """Return minor version and day of an AMI release: ``1.35`` and ``20260818`` of ``1.35.6-20260818``."""
    match = re.fullmatch(r"([0-9]+\.[0-9]+)\.[0-9]+-([0-9]{8})", release) if isinstance(release, str) else None
    return (match[1], match[2]) if match else None
