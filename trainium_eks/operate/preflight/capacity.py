"""Checks of EC2 capacity: zones that offer a type, Capacity Reservations, Capacity Blocks, placement groups."""

import datetime
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from trainium_eks.model.finding import Finding
from trainium_eks.model.validation.formats import utc_text
from trainium_eks.model.validation.problems import config_path, config_set, join
from trainium_eks.operate.preflight.existing_resources import AccountState
from trainium_eks.operate.preflight.needs import Group
from trainium_eks.operate.preflight.question import Checks, Question, failed, passed, warned

Clock = Callable[[], datetime.datetime]

STATES: Mapping[str, str] = MappingProxyType(
    {
        "active": "usable",
        **dict.fromkeys(("scheduled", "payment-pending", "pending", "assessing", "delayed"), "coming"),
        **dict.fromkeys(("expired", "cancelling", "cancelled", "failed", "payment-failed"), "over"),
        # No instance starts in these, and EC2's API says no more about them.
        **dict.fromkeys(("unsupported", "unavailable"), "over"),
    }
)
"""State of a reservation (EC2's CapacityReservationState, botocore 1.44.8) to what it is for a group that asks for
nodes: usable, coming (it will be there, and is not yet) or over."""


def questions(present: AccountState, now: Clock) -> Iterator[Question]:
    """Yield a question for each type and its zones, each reservation, each existing placement group."""
    needs, checks = present.needs, _CapacityChecks(present, now)
    for type_ in dict.fromkeys(group.instance_type for group in needs.groups if group.instance_type):
        groups = [group for group in needs.groups if group.instance_type == type_]
        yield Question(f"capacity/{type_}", f"{type_} in its zones", partial(checks.offered, type_, groups))
    for group in needs.groups:
        if group.reservation:
            yield Question(
                f"capacity/{group.reservation}", f"{group.reservation} of {group.name}", partial(checks.reserved, group)
            )
    for name in sorted(needs.placement_groups):
        yield Question(f"capacity/{name}", f"placement group {name}", partial(checks.placement, name))


class _CapacityChecks(Checks):
    """Checks of EC2's capacity."""

    def __init__(self, present: AccountState, now: Clock) -> None:
        super().__init__(present)
        self._now = now

    def offered(self, type_: str, groups: list[Group]) -> Finding:
        """Check that every zone of the groups offers the type to this account. Of a reservation EC2 says itself what it
        is and where; UltraServers are sold in zones that the list of offerings may lack (EC2 user guide)."""
        by_id = all(zone.rpartition("-")[2].startswith("az") for group in groups for zone in group.zones)
        offers = self._account.pages(
            "ec2",
            "describe_instance_type_offerings",
            "InstanceTypeOfferings",
            LocationType="availability-zone-id" if by_id else "availability-zone",
            Filters=[{"Name": "instance-type", "Values": [type_]}],
        )
        zones = sorted(each["Location"] for each in offers)
        wanted = dict.fromkeys(zone for group in groups for zone in group.zones)
        lacking = [zone for zone in wanted if zone not in zones]
        unreserved = {zone for group in groups if not group.reservation for zone in group.zones}
        if not unreserved & {*lacking}:
            reserved = f"; EC2's list lacks {', '.join(lacking)}, where it is reserved" if lacking else ""
            return passed(f"offered in {', '.join(zone for zone in wanted if zone in zones) or 'no zone'}{reserved}")
        where = f"not offered in {', '.join(lacking)}"
        if not zones:
            return failed(f"{where}, nor anywhere in {self._account.region}", "take another region or another type")
        return failed(f"{where}; offered in {', '.join(zones)}", _move(groups, lacking, zones))

    def reserved(self, group: Group) -> Finding:
        """Check that a reservation is there when the group starts, for its type, in its zone, for its size."""
        ids = [group.reservation]
        absent = ".*(NotFound|Malformed).*"
        answer = self._account.find("ec2", "describe_capacity_reservations", absent=absent, CapacityReservationIds=ids)
        if not answer or not answer["CapacityReservations"]:
            remedy = f"set {_key(group, 'capacity.id')} to one of `aws ec2 describe-capacity-reservations`"
            return failed(f"this account has no such reservation in {self._account.region}", remedy)
        found = answer["CapacityReservations"][0]
        return (
            self._of_another_kind(group, found)
            or self._elsewhere(group, found)
            or self._of_other_times(group, found)
            or self._at_another_time(group, found)
            or self._no_ultraserver(group, found)
            or self._too_small(group, found)
            or passed(_describe_reservation(found))
        )

    def _of_another_kind(self, group: Group, found: Mapping[str, Any]) -> Finding | None:
        block = found.get("ReservationType") == "capacity-block"
        if block != (group.buying == "capacity-block") and not group.karpenters:  # which takes either
            kind, good = ("a Capacity Block", "capacity-block") if block else ("a Capacity Reservation", "reservation")
            return failed(f"it is {kind}", _set(group, "capacity.type", good))
        has = found.get("InstanceType", "")
        if has != group.instance_type:
            return failed(f"it is of {has}, the group of {group.instance_type}", _set(group, "instance_type", has))
        return None

    def _elsewhere(self, group: Group, found: Mapping[str, Any]) -> Finding | None:
        zones = (found.get("AvailabilityZoneId", ""), found.get("AvailabilityZone", ""))
        if group.zones and not set(zones) & set(group.zones):
            return failed(
                f"it is in {zones[0]}, the group in {', '.join(group.zones)}", _set(group, "capacity.zone_id", zones[0])
            )
        placed = str(found.get("PlacementGroupArn", "")).rpartition("placement-group/")[2]
        if placed == group.placement_group:
            return None
        if not placed:
            # EC2 then answers InsufficientInstanceCapacity, although the reservation is free
            # (terraform-aws-modules/terraform-aws-eks, issue 3730).
            detail = f"it was made without a placement group, and the group names {group.placement_group}"
            return failed(
                detail, f"remove {_key(group, 'capacity.placement_group')} and {_key(group, 'placement_group')}"
            )
        detail = f"it was made in the placement group {placed}"
        if group.karpenters:
            return failed(detail, f"set {_key(group, 'capacity.id')} to one that was made without a placement group")
        return failed(detail, _set(group, "capacity.placement_group", placed))

    def _of_other_times(self, group: Group, found: Mapping[str, Any]) -> Finding | None:
        """Compare the config's start, end and nodes of a block with EC2's; a block that is over has its own finding."""
        blocks, ends = self._needs.blocks, found.get("EndDate")
        block = blocks.get(group.name)
        if block is None or ends is None or ends <= self._now():
            return None
        others = sum(each.nodes or 0 for name, each in blocks.items() if each.id == block.id and name != group.name)
        wanted: dict[str, str | int] = {"ends": utc_text(ends), "nodes": found.get("TotalInstanceCount", 0) - others}
        if found.get("StartDate") is not None:
            wanted["starts"] = utc_text(found["StartDate"])
        wrong = {key: value for key, value in sorted(wanted.items()) if getattr(block, key) != value}
        if not wrong:
            return None
        told = " and ".join(
            f"EC2 has {value} as its {key}, the config {getattr(block, key)}" for key, value in wrong.items()
        )
        if int(wrong.get("nodes", 1)) < 1:
            return failed(f"{told}: other groups take all its nodes", f"remove {group.name}, or lower their nodes")
        return failed(told, " && ".join(_set(group, f"capacity.{key}", value) for key, value in wrong.items()))

    def _at_another_time(self, group: Group, found: Mapping[str, Any]) -> Finding | None:
        state, begins, ends = found.get("State", ""), found.get("StartDate"), found.get("EndDate")
        now = self._now()
        if (ends is not None and ends <= now) or STATES.get(state) == "over":
            told = f"it ended {_date(ends)}" if ends is not None and ends <= now else f"it is {state}"
            return failed(told, f"make a new reservation and set {_key(group, 'capacity.id')}, or remove the group")
        if STATES.get(state) == "coming" or (begins is not None and begins > now):
            # The time of a delayed one may be over.
            told = f"it is {state}"
            if begins is not None and begins > now:
                told = f"it starts {_date(begins)} ({_until(begins, now)})"
            if group.desired and group.name in self._needs.blocks:
                return failed(f"{told}, and a new group would wait for its nodes in vain", "run `up` when it is active")
            if group.desired:
                return failed(f"{told}: no node can start before", _set(group, "desired_size", 0) + " until then")
            return passed(f"{told}; no node is asked for before")
        if state not in STATES:
            detail = f"it is {state}, and this release does not know whether nodes start then"
            return warned(detail, "take a newer release of this library")
        return None

    def _no_ultraserver(self, group: Group, found: Mapping[str, Any]) -> Finding | None:
        """Check a block for nodes of UltraServers: it must be one of UltraServers, whose nodes start and reach each
        other by NeuronLink (fields of EC2's ``CapacityReservation``, ``CapacityBlock`` and ``CapacityBlockStatus``)."""
        block = str(found.get("CapacityBlockId") or "")
        if group.instance is None or not group.instance.ultraserver_nodes or not block:
            return None
        blocks = self._account.call("ec2", "describe_capacity_blocks", CapacityBlockIds=[block])["CapacityBlocks"]
        if not any(each.get("UltraserverType") for each in blocks):
            detail = f"{block} is a block of instances, whose nodes may be of many UltraServers"
            remedy = "aws ec2 describe-capacity-block-offerings --ultraserver-type … --ultraserver-count … has those"
            return failed(detail, f"{remedy}; set {_key(group, 'capacity.id')} to the new block's reservation")
        if found.get("LaunchStatus") == "unlaunchable":
            return failed("EC2 starts no instance in it now", f"ask AWS Support why, and name {block}")
        asked = self._account.call("ec2", "describe_capacity_block_status", CapacityBlockIds=[block])
        states = [each.get("InterconnectStatus") for each in asked["CapacityBlockStatuses"]]
        if "impaired" in states:
            detail = "EC2 calls its accelerator interconnect impaired: gangs over several of its nodes may fail"
            return warned(detail, f"ask AWS Support, and name {block}")
        return None

    def _too_small(self, group: Group, found: Mapping[str, Any]) -> Finding | None:
        total, free = found.get("TotalInstanceCount", 0), found.get("AvailableInstanceCount", 0)
        told = _describe_reservation(found)
        if group.desired > total:
            return failed(f"{told}; {group.desired} are asked for", _set(group, "desired_size", total))
        if group.maximum > total:
            return warned(f"{told}; the group may grow to {group.maximum}", _set(group, "max_size", max(total, 1)))
        if group.desired > free:
            detail = f"{told}; {group.desired} are asked for. What is in use may be this group's own"
            return warned(detail, "if it is not, free it, or ask for fewer nodes")
        return None

    def placement(self, name: str) -> Finding:
        """Check that an existing placement group is there, and a cluster one."""
        absent = r"InvalidPlacementGroup\.Unknown"
        answer = self._account.find("ec2", "describe_placement_groups", absent=absent, GroupNames=[name])
        if answer is None:
            remedy = f"aws ec2 create-placement-group --group-name {name} --strategy cluster"
            return failed(f"there is none in {self._account.region}", remedy)
        strategy = answer["PlacementGroups"][0].get("Strategy", "")
        if strategy != "cluster":
            remedy = "EFA nodes belong close together: take one of strategy cluster"
            return warned(f"its strategy is {strategy}", remedy)
        return passed("a cluster placement group")


def _move(groups: list[Group], lacking: list[str], zones: list[str]) -> str:
    moved = next(group for group in groups if set(group.zones) & set(lacking))
    if moved.path.startswith("node_groups") or (moved.karpenters and moved.path):
        return _set(moved, "zone_id", zones[0])
    return "put these zones into network.zoneIds, or take another type"


def _key(group: Group, field: str) -> str:
    named = group.field(field)
    return config_path(join(group.path, named)) if group.path else f"{group.name}'s {config_path(named)}"


def _set(group: Group, field: str, value: str | int) -> str:
    if not group.path or group.field(field) == "capacity_reservation_ids":
        return f"set {_key(group, field)} to {value}"
    return config_set(join(group.path, group.field(field)), value)


def _describe_reservation(found: Mapping[str, Any]) -> str:
    told = f"{found.get('AvailableInstanceCount', 0)} of {found.get('TotalInstanceCount', 0)} instances free"
    return f"{told} until {_date(found['EndDate'])}" if found.get("EndDate") else told


def _date(when: datetime.datetime) -> str:
    return f"{when.astimezone(datetime.UTC):%Y-%m-%dT%H:%MZ}"


def _until(when: datetime.datetime, now: datetime.datetime) -> str:
    """Return the time until then: ``in 9 days``."""
    hours = int((when - now).total_seconds() // 3600)
    if hours < 48:
        return f"in {max(hours, 1)} {'hour' if hours <= 1 else 'hours'}"
    return f"in {hours // 24} days"
