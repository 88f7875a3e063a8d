"""Purchase options of a node group's instances: a tagged union, because each option has other fields."""

import datetime
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

import pydantic

from trainium_eks.model.catalogue import versions
from trainium_eks.model.catalogue.instances import InstanceType
from trainium_eks.model.config.network import zone_problems
from trainium_eks.model.sizing.block_times import LARGEST_BLOCK, BlockTimes
from trainium_eks.model.validation import formats
from trainium_eks.model.validation.config_model import ConfigModel, OutputText, StrictInt
from trainium_eks.model.validation.limits import Bounds, Form
from trainium_eks.model.validation.problems import Problem, Severity


class OnDemand(ConfigModel):
    """On-Demand capacity that EC2 has free when the group grows. Only with it is a placement group made by default."""

    type: Literal["on-demand"] = "on-demand"


class Spot(ConfigModel):
    """Spare capacity that EC2 takes back with two minutes' notice; a gang dies whole, so rule R29 must be waived."""

    type: Literal["spot"] = "spot"


class Reservation(ConfigModel):
    """An On-Demand Capacity Reservation: paid from the moment it is made, used or not."""

    type: Literal["reservation"] = "reservation"
    id: OutputText
    """The reservation, ``cr-`` and 17 hexadecimal digits."""
    zone_id: str
    """Zone id of the reservation (``usw2-az4``); the group's nodes go there."""
    placement_group: OutputText | None = None
    """Name of the cluster placement group the reservation was made in; None when it was made without one. With a group
    that the reservation was not made in, EC2 returns InsufficientInstanceCapacity (terraform-aws-eks#3730)."""


def _in_utc(value: object) -> object:
    """Return a moment in UTC in the one form that Auto Scaling takes; any other value as it is. EC2's answers end with
    ``+00:00``, and without quotes YAML makes a datetime of one."""
    try:
        moment = datetime.datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        return value
    is_utc = isinstance(moment, datetime.datetime) and moment.utcoffset() == datetime.timedelta(0)
    return formats.utc_text(moment) if is_utc and isinstance(moment, datetime.datetime) else value


_Moment = Annotated[str, pydantic.BeforeValidator(_in_utc), Form(formats.utc_time)]


class CapacityBlock(ConfigModel):
    """A Capacity Block for ML: bought ahead for fixed days, all or nothing. EKS drains its nodes 40 minutes before its
    end, EC2 begins to end them 30 minutes before, those of UltraServers 60 minutes before (docs/ultraservers.md)."""

    type: Literal["capacity-block"] = "capacity-block"
    id: OutputText
    """The block's reservation, ``cr-`` and 17 hexadecimal digits."""
    zone_id: str
    """Zone id of the block."""
    starts: _Moment | None = None
    """Start of the block, its ``StartDate``: RFC 3339 in UTC, ``2027-01-11T11:30:00Z``. With ``starts``, ``ends`` and
    ``nodes`` the group grows by itself when the block starts, and trainings know its end; all three or none."""
    ends: _Moment | None = None
    """End of the block, its ``EndDate``; after an extension the new one."""
    nodes: Annotated[StrictInt, Bounds(1, LARGEST_BLOCK, "nodes", "a Capacity Block has at most these")] | None = None
    """Nodes that start with the block, at most ``max_size``; the block's instances."""


Capacity = Annotated[OnDemand | Spot | Reservation | CapacityBlock, pydantic.Field(discriminator="type")]


def eks_capacity_type(capacity: OnDemand | Spot | Reservation | CapacityBlock) -> str:
    """Return the value of EKS' ``capacityType``: ON_DEMAND, SPOT or CAPACITY_BLOCK (botocore's CapacityTypes)."""
    return {"spot": "SPOT", "capacity-block": "CAPACITY_BLOCK"}.get(capacity.type, "ON_DEMAND")


def block_times(
    capacity: OnDemand | Spot | Reservation | CapacityBlock, instance: InstanceType | None
) -> BlockTimes | None:
    """Return the times of a valid Capacity Block; None for other capacity, and where the config does not give them."""
    if not isinstance(capacity, CapacityBlock) or not (capacity.starts and capacity.ends and capacity.nodes):
        return None
    starts, ends = map(datetime.datetime.fromisoformat, (capacity.starts, capacity.ends))
    return BlockTimes(starts, ends, capacity.nodes, is_ultraserver=bool(instance and instance.ultraserver_nodes))


def validate(
    capacity: OnDemand | Spot | Reservation | CapacityBlock, *, region: str, instance: InstanceType | None
) -> list[Problem]:
    """Return the problems of a group's capacity. Paths are relative to it; ``instance``: None for an unknown type."""
    found = []
    if instance is not None and not sells(instance, capacity):
        reason = f"the catalogue does not have {instance.name} as {capacity.type}"
        good = "capacity-block" if instance.usage == {"capacity-block"} else "on-demand"
        return [Problem("type", reason, value=capacity.type, allowed=tuple(sorted(instance.usage)), good=good)]
    if isinstance(capacity, Spot) and (instance is None or instance.has_efa):
        reason = "EC2 takes Spot nodes back with two minutes' notice, and one node's loss restarts the whole gang"
        found.append(Problem("type", reason, rule="R29", value="spot", good="on-demand"))
    if isinstance(capacity, Reservation | CapacityBlock):
        found += formats.reservation_id("id", capacity.id) if isinstance(capacity.id, str) else []
        found += zone_problems("zone_id", capacity.zone_id, region)
    if isinstance(capacity, CapacityBlock):
        found += _time_problems(capacity, instance)
    return found


def _time_problems(block: CapacityBlock, instance: InstanceType | None) -> list[Problem]:
    """Return the problems of a block's times; text that is no time is found by its form."""
    given = {"starts": block.starts, "ends": block.ends, "nodes": block.nodes}
    missing = [name for name, value in given.items() if value is None]
    if 0 < len(missing) < len(given):
        reason = "it is missing, and `starts`, `ends` and `nodes` of a block belong together"
        return [Problem(name, reason, f"{_SHOWN} has it", good=f"<{_EC2_NAME[name]}>") for name in missing]
    if any(formats.utc_time("", value) for value in (block.starts, block.ends) if value):
        return []
    times = block_times(block, instance)
    if times is None:
        return []
    if times.starts >= times.ends:
        reason = f"it must be after `starts`, {block.starts}"
        return [Problem("ends", reason, f"{_SHOWN} has both", value=block.ends)]
    if times.ends <= versions.now():
        reason = "the block is over, and no node starts in it"
        fix = "write the next block's `id`, `starts`, `ends` and `nodes`, or remove the group"
        return [Problem("ends", reason, fix, severity=Severity.WARN, value=block.ends)]
    if times.ends.time() != _LAST_TIME:
        reason = f"EC2 ends every Capacity Block at {_LAST_TIME:%H:%M} UTC, and its nodes are drained by its own end"
        return [Problem("ends", reason, f"{_SHOWN} has it", severity=Severity.WARN, value=block.ends)]
    return []


_LAST_TIME = datetime.time(11, 30)
_SHOWN = "aws ec2 describe-capacity-reservations"
_EC2_NAME: Mapping[str, str] = MappingProxyType(
    {"starts": "StartDate", "ends": "EndDate", "nodes": "TotalInstanceCount"}
)


def sells(instance: InstanceType, capacity: OnDemand | Spot | Reservation | CapacityBlock) -> bool:
    """Return whether EC2 offers the type so; an On-Demand Capacity Reservation is On-Demand capacity, paid ahead."""
    return ("on-demand" if isinstance(capacity, Reservation) else capacity.type) in instance.usage
