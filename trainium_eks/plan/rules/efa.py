"""R25, R26, R28, R29 and R69: EFA, and the way a group gets its instances."""

from collections.abc import Iterator

from trainium_eks.model.finding import Finding
from trainium_eks.plan.graph import Graph
from trainium_eks.plan.reading import Json, at, given, items, known, number, show
from trainium_eks.plan.rules._rule import judged, rule, unseen
from trainium_eks.plan.subjects import NodeGroup

LOCKABLE_MEMORY = "LimitMEMLOCK=infinity"
"""The setting of containerd's unit, or of a drop-in."""


@rule(
    "R25",
    "Let EFA nodes reach each other, and open nothing to everyone",
    "high",
    "CKV_AWS_23, CKV_AWS_24, CKV_AWS_25, CKV_AWS_260, CKV_AWS_277, AWS-0099, AWS-0107",
)
def efa_security_groups(graph: Graph) -> Iterator[Finding]:
    """EFA needs a rule for all traffic from the group to itself in both directions; a range instead of the group is not
    enough. Every rule has a description, and none lets in every address. Outbound to anywhere is allowed: nodes pull
    images and call AWS."""
    for group in graph.efa_groups:
        yield from judged(group.resource, _self_rule_faults(graph, group), "all traffic within its security group")
    for each in graph.security_rules:
        faults = []
        prefix = f"{each.path}." if each.path else ""
        if not given(each.description):
            faults.append(f"{prefix}description is unset, wanted what the rule is for")
        if each.inbound and each.from_anywhere:
            faults.append(f"{prefix}cidr lets in {', '.join(map(show, each.cidrs))}, wanted named ranges or groups")
        yield from judged(each.resource, faults, "described, not open to everywhere")


@rule("R26", "Keep an EFA group in one subnet", "high", "eksctl efaEnabled validation")
def one_subnet(graph: Graph) -> Iterator[Finding]:
    """EFA traffic does not leave a zone: nodes of a group in two zones cannot reach each other over EFA."""
    for group in graph.efa_groups:
        ids = group.resource.inputs.get("subnetIds")
        if ids is not None and not known(ids):
            yield unseen(group.resource, "subnetIds is known only during the update")
            continue
        faults = [] if len(items(ids)) == 1 else [f"subnetIds is {show(ids)}, wanted one subnet"]
        yield from judged(group.resource, faults, "one subnet")


@rule("R28", "Take UltraServers whole", "high", "EKS capacity-blocks-mng, EC2 UltraServers")
def whole_ultraservers(graph: Graph) -> Iterator[Finding]:
    """A Capacity Block of UltraServers is sold in whole UltraServers, and a part is paid for like the whole: the
    group's maximum is a multiple of an UltraServer's nodes."""
    for group in graph.node_groups:
        if group.capacity_type == "CAPACITY_BLOCK":
            size = (group.instance.ultraserver_nodes if group.instance is not None else 0) or 1
            found = f"scalingConfig.maxSize is {show(group.max_size)}"
            part = (number(group.max_size) or 0) % size
            faults = [f"{found}, wanted a multiple of an UltraServer's {size} nodes"] if part else []
            yield from judged(group.resource, faults, found)


@rule("R29", "Train on Spot only on purpose", "medium", "EKS best practices AI/ML")
def spot(graph: Graph) -> Iterator[Finding]:
    """Spot takes one node with two minutes' notice, and the whole gang with it; a waiver says that it is meant. Types
    without EFA train alone and may use it. Spot and a reservation exclude each other. Independent of
    `model/config/capacity.py`, which validates the config."""
    for group in graph.accelerator_groups:
        on_spot = group.capacity_type == "SPOT" or at(group.settings, "instanceMarketOptions.marketType") == "spot"
        faults = []
        if on_spot and (group.has_efa or group.instance is None):
            faults.append('capacityType is "SPOT" on a group for gangs, wanted ON_DEMAND or CAPACITY_BLOCK')
        if on_spot and group.reservation is not None:
            faults.append(f"capacityReservationTarget is {show(group.reservation)} beside Spot, wanted one of the two")
        if not known(group.capacity_type):
            faults.append(f"capacityType is {show(group.capacity_type)}, wanted ON_DEMAND or CAPACITY_BLOCK")
        yield from judged(group.resource, faults, f"capacity type {group.capacity_type}")


@rule("R69", "Let EFA containers lock memory", "high", "EFA user guide, nvidia-container-toolkit#2037")
def lockable_memory(graph: Graph) -> Iterator[Finding]:
    """EFA locks every buffer that it sends from. Containers inherit containerd's limit, 8 MiB by default, and
    CAP_IPC_LOCK does not help containers that do not run as root; user data raises the limit before containerd
    starts."""
    for group in graph.efa_groups:
        raised = any(LOCKABLE_MEMORY in part for part in group.scripts)
        faults = [] if raised else [f"launch template: userData has no {LOCKABLE_MEMORY} for containerd, wanted one"]
        yield from judged(group.resource, faults, "containers may lock memory")


def _self_rule_faults(graph: Graph, group: NodeGroup) -> Iterator[str]:
    ids: dict[str, Json] = {str(each): each for face in group.interfaces for each in items(at(face, "securityGroups"))}
    ids.update({str(each): each for each in items(group.settings.get("vpcSecurityGroupIds"))})
    if not ids:
        yield "networkInterfaces[0].securityGroups is unset, wanted the cluster's security group"
        return
    for inbound, word in ((True, "inbound"), (False, "outbound")):
        within = [
            each
            for name in ids.values()
            for each in graph.rules_of(name)
            if each.inbound is inbound and each.all_protocols and each.to_itself
        ]
        if not within:
            yield f"security groups {', '.join(ids)} have no {word} rule for all traffic to themselves, wanted one"
