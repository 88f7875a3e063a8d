"""Purchase options of a node group's instances: a tagged union, because each option has other fields."""

from typing import Annotated, Literal

import pydantic

from trainium_eks.model.catalogue.instances import InstanceType
from trainium_eks.model.config.network import zone_problems
from trainium_eks.model.validation import formats
from trainium_eks.model.validation.config_model import ConfigModel, OutputText
from trainium_eks.model.validation.problems import Problem


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


class CapacityBlock(ConfigModel):
    """A Capacity Block for ML: bought ahead for fixed days, all or nothing. EKS drains its nodes 40 minutes before its
    end, EC2 begins to end them 30 minutes before, those of UltraServers 60 minutes before (docs/ultraservers.md)."""

    type: Literal["capacity-block"] = "capacity-block"
    id: OutputText
    """The block's reservation, ``cr-`` and 17 hexadecimal digits."""
    zone_id: str
    """Zone id of the block."""


Capacity = Annotated[OnDemand | Spot | Reservation | CapacityBlock, pydantic.Field(discriminator="type")]


def eks_capacity_type(capacity: OnDemand | Spot | Reservation | CapacityBlock) -> str:
    """Return the value of EKS' ``capacityType``: ON_DEMAND, SPOT or CAPACITY_BLOCK (botocore's CapacityTypes)."""
    return {"spot": "SPOT", "capacity-block": "CAPACITY_BLOCK"}.get(capacity.type, "ON_DEMAND")


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
    return found


def sells(instance: InstanceType, capacity: OnDemand | Spot | Reservation | CapacityBlock) -> bool:
    """Return whether EC2 offers the type so; an On-Demand Capacity Reservation is On-Demand capacity, paid ahead."""
    return ("on-demand" if isinstance(capacity, Reservation) else capacity.type) in instance.usage
