"""R24-R29 and R69: EFA, placement and the way a group gets its instances."""

from collections.abc import Iterator

from trainium_eks.plan.rules._facts import Interface, NodeGroup, interfaces
from trainium_eks.plan.rules._read import Json, at, given, items, known, number, show, text, user_data
from trainium_eks.plan.rules._rule import Judgement, judged, rule, unseen
from trainium_eks.plan.rules._view import View

PLACEMENT_GROUP = "aws:ec2/placementGroup:PlacementGroup"
SUBNETS_LATER = "subnetIds is known only during the update"
LOCKABLE_MEMORY = "LimitMEMLOCK=infinity"
"""The setting of containerd's unit, or of a drop-in."""


@rule("R24", "Give each EFA type all its EFA interfaces, laid out by card", "high", "EC2 EfaInfo, EFA user guide")
def efa_interfaces(view: View) -> Iterator[Judgement]:
    """As many EFA interfaces as the type has, one a card, never `efa-only` as the node's first interface. With fewer,
    collectives fall back to TCP or pods that ask for `vpc.amazonaws.com/efa` stay pending. Independent of
    `model/catalogue/instance_overrides.py`, which validates the config."""
    for group in view.accelerator_groups:
        yield from judged(group.resource, _interface_faults(group), _interface_summary(group))


@rule(
    "R25",
    "Let EFA nodes reach each other, and open nothing to everyone",
    "high",
    "CKV_AWS_23, CKV_AWS_24, CKV_AWS_25, CKV_AWS_260, CKV_AWS_277, AWS-0099, AWS-0107",
)
def efa_security_groups(view: View) -> Iterator[Judgement]:
    """EFA needs a rule for all traffic from the group to itself in both directions; a range instead of the group is not
    enough. Every rule has a description, and none lets in every address. Outbound to anywhere is allowed: nodes pull
    images and call AWS."""
    for group in view.efa_groups:
        yield from judged(group.resource, _self_rule_faults(view, group), "all traffic within its security group")
    for each in view.security_rules:
        faults = []
        prefix = f"{each.path}." if each.path else ""
        if not given(each.description):
            faults.append(f"{prefix}description is unset, wanted what the rule is for")
        if each.inbound and each.from_anywhere:
            faults.append(f"{prefix}cidr lets in {', '.join(map(show, each.cidrs))}, wanted named ranges or groups")
        yield from judged(each.resource, faults, "described, not open to everywhere")


@rule("R26", "Keep an EFA group in one subnet", "high", "eksctl efaEnabled validation")
def one_subnet(view: View) -> Iterator[Judgement]:
    """EFA traffic does not leave a zone: nodes of a group in two zones cannot reach each other over EFA."""
    for group in view.efa_groups:
        if not _subnets_known(group):
            yield unseen(group.resource, SUBNETS_LATER)
            continue
        ids = group.resource.inputs.get("subnetIds")
        faults = [] if len(items(ids)) == 1 else [f"subnetIds is {show(ids)}, wanted one subnet"]
        yield from judged(group.resource, faults, "one subnet")


@rule("R27", "Use a placement group only where the capacity allows it", "high", "terraform-aws-eks#3730")
def placement(view: View) -> Iterator[Judgement]:
    """A cluster placement group fits plain On-Demand in one subnet. With a reservation that was not made in the group,
    EC2 answers InsufficientInstanceCapacity; a group made by this program cannot be the reservation's. Independent of
    `model/config/node_groups.py`, which validates the config."""
    for group in view.accelerator_groups:
        yield from judged(group.resource, _placement_faults(view, group), "placement fits its capacity")


@rule("R28", "Configure a Capacity Block completely or not at all", "high", "EKS capacity-blocks-mng")
def capacity_blocks(view: View) -> Iterator[Judgement]:
    """EKS refuses half a configuration. It takes all of capacityType, marketType and the reservation in the template,
    the type in the template only, and one subnet in the block's zone. UltraServers are sold whole: their group has a
    multiple of an UltraServer's nodes. Only AWS knows whether the block is active. Independent of
    `model/config/capacity.py`, which validates the config."""
    for group in view.node_groups:
        market = at(group.settings, "instanceMarketOptions.marketType")
        if group.capacity_type == "CAPACITY_BLOCK" or market == "capacity-block":
            faults = list(_block_faults(view, group))
            if faults or _subnets_known(group):
                yield from judged(group.resource, faults, "all parts of the Capacity Block are set")
            else:
                yield unseen(group.resource, SUBNETS_LATER)


@rule("R29", "Train on Spot only on purpose", "medium", "EKS best practices AI/ML")
def spot(view: View) -> Iterator[Judgement]:
    """Spot takes one node with two minutes' notice, and the whole gang with it; a waiver says that it is meant. Types
    without EFA train alone and may use it. Spot and a reservation exclude each other. Independent of
    `model/config/capacity.py`, which validates the config."""
    for group in view.accelerator_groups:
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
def lockable_memory(view: View) -> Iterator[Judgement]:
    """EFA locks every buffer that it sends from. Containers inherit containerd's limit, 8 MiB by default, and
    CAP_IPC_LOCK does not help containers that do not run as root; user data raises the limit before containerd
    starts."""
    for group in view.efa_groups:
        raised = any(LOCKABLE_MEMORY in part for part in user_data(group.settings.get("userData")) or ())
        faults = [] if raised else [f"launch template: userData has no {LOCKABLE_MEMORY} for containerd, wanted one"]
        yield from judged(group.resource, faults, "containers may lock memory")


def _interface_summary(group: NodeGroup) -> str:
    return f"{sum(each.is_efa for each in interfaces(group))} EFA interfaces on {group.type_name}"


def _interface_faults(group: NodeGroup) -> Iterator[str]:
    if group.instance is None:
        yield f"instance type {group.type_name or 'unknown'} is not in the catalogue, so its EFA interfaces are unknown"
        return
    found = interfaces(group)
    efa = [each for each in found if each.is_efa]
    wanted = group.instance.efa_interfaces
    if len(efa) != wanted:
        yield f"networkInterfaces has {len(efa)} of type efa or efa-only, wanted {wanted} on {group.type_name}"
    if not found:
        return
    first = group.instance.first_efa_card
    cards = [each.card for each in efa]
    outside = sorted({str(card) for card in cards if card not in range(first, first + max(wanted, 1))})
    if outside:
        yield f"networkInterfaces has EFA on card {', '.join(outside)}, wanted cards {first} to {first + wanted - 1}"
    if len(set(map(str, cards))) != len(cards):
        yield "networkInterfaces has two EFA interfaces on one card, wanted one a card"
    places = [(str(each.card), str(each.device)) for each in found]
    if len(set(places)) != len(places):
        yield "networkInterfaces has two interfaces with one networkCardIndex and deviceIndex"
    yield from _primary_faults(found)


def _primary_faults(found: tuple[Interface, ...]) -> Iterator[str]:
    primary = next((each for each in found if each.card == 0 and each.device == 0), None)
    if primary is None:
        yield "networkInterfaces has none with networkCardIndex 0 and deviceIndex 0, wanted the node's first interface"
    elif primary.type == "efa-only":
        yield f'{primary.path}.interfaceType is "efa-only" on card 0 device 0, wanted "efa" or "interface"'


def _self_rule_faults(view: View, group: NodeGroup) -> Iterator[str]:
    ids: dict[str, Json] = {str(each): each for face in interfaces(group) for each in face.security_groups}
    ids.update({str(each): each for each in items(group.settings.get("vpcSecurityGroupIds"))})
    if not ids:
        yield "networkInterfaces[0].securityGroups is unset, wanted the cluster's security group"
        return
    for inbound, word in ((True, "inbound"), (False, "outbound")):
        within = [
            each
            for name in ids.values()
            for each in view.rules_of(name)
            if each.inbound is inbound and each.all_protocols and each.to_itself
        ]
        if not within:
            yield f"security groups {', '.join(ids)} have no {word} rule for all traffic to themselves, wanted one"


def _placement_faults(view: View, group: NodeGroup) -> Iterator[str]:
    name = at(group.settings, "placement.groupName")
    if not given(name):
        return
    if group.capacity_type != "ON_DEMAND":
        yield f"placement.groupName is {show(name)} with capacityType {show(group.capacity_type)}, wanted none"
    template = group.template
    made_here = view.refers(template, "placement.groupName", PLACEMENT_GROUP) if template is not None else ()
    if group.reservation is not None and (made_here or not known(name)):
        yield (
            f"placement.groupName is {show(name)} with reservation {show(group.reservation)}, "
            "wanted none, or the existing group that the reservation was made in"
        )
    if len(items(group.resource.inputs.get("subnetIds"))) > 1:
        yield "placement.groupName is set with several subnetIds, wanted one subnet"


def _block_faults(view: View, group: NodeGroup) -> Iterator[str]:
    inputs, settings = group.resource.inputs, group.settings
    target = at(settings, "capacityReservationSpecification.capacityReservationTarget.capacityReservationId")
    market = at(settings, "instanceMarketOptions.marketType")
    if group.capacity_type != "CAPACITY_BLOCK":
        yield f'capacityType is {show(group.capacity_type)}, wanted "CAPACITY_BLOCK"'
    if market != "capacity-block":
        yield f'launch template: instanceMarketOptions.marketType is {show(market)}, wanted "capacity-block"'
    if not given(target):
        yield "launch template: capacityReservationTarget.capacityReservationId is unset, wanted the block's id"
    if not given(settings.get("instanceType")):
        yield "launch template: instanceType is unset, wanted the block's type"
    if given(inputs.get("instanceTypes")):
        yield f"instanceTypes is {show(inputs.get('instanceTypes'))}, wanted unset (the template names the type)"
    size = group.instance.ultraserver_nodes if group.instance is not None else 0
    if size and (number(group.max_size) or 0) % size:
        yield f"scalingConfig.maxSize is {show(group.max_size)}, wanted a multiple of an UltraServer's {size} nodes"
    subnets = items(inputs.get("subnetIds"))
    if not _subnets_known(group):
        return
    if len(subnets) != 1:
        yield f"subnetIds is {show(inputs.get('subnetIds'))}, wanted one subnet in the block's zone"
        return
    wanted = _block_zone(view, target)
    found = view.zone_of(subnets[0])
    if wanted and found and wanted != found:
        yield f"subnetIds[0] is in {found}, wanted the block's zone {wanted}"


def _subnets_known(group: NodeGroup) -> bool:
    """Return whether a group's subnets are known or unset."""
    ids = group.resource.inputs.get("subnetIds")
    return ids is None or known(ids)


def _block_zone(view: View, target: Json) -> str:
    """Return the zone that the config names for a reservation, or empty."""
    capacities = [at(each, "capacity") for each in items(view.graph.config.get("nodeGroups"))]
    return next((text(at(each, "zoneId")) for each in capacities if known(target) and at(each, "id") == target), "")
