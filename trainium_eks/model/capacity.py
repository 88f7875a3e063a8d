"""How a node group gets its instances: a tagged value, because each way needs other facts."""

from typing import Annotated, Literal

import pydantic

from trainium_eks.model.shape import Shape


class OnDemand(Shape):
    """Whatever EC2 has free when the group grows. The only way in which a placement group is made by default."""

    type: Literal["on-demand"] = "on-demand"


class Spot(Shape):
    """Spare capacity that EC2 takes back with two minutes' notice; a gang dies whole, so rule R29 must be waived."""

    type: Literal["spot"] = "spot"


class Reservation(Shape):
    """An On-Demand Capacity Reservation: paid from the moment it is made, used or not."""

    type: Literal["reservation"] = "reservation"
    id: str
    """The reservation, ``cr-`` and 17 hexadecimal digits."""
    zone_id: str
    """Zone id of the reservation (``usw2-az4``); the group's nodes go there."""
    placement_group: str | None = None
    """Name of the cluster placement group the reservation was made in; None when it was made without one.
    With a group that the reservation was not made in, EC2 answers InsufficientInstanceCapacity
    (terraform-aws-eks#3730)."""


class CapacityBlock(Shape):
    """A Capacity Block for ML: bought ahead for fixed days, all or nothing, drained 40 minutes before its end."""

    type: Literal["capacity-block"] = "capacity-block"
    id: str
    """The block's reservation, ``cr-`` and 17 hexadecimal digits."""
    zone_id: str
    """Zone id of the block."""


Capacity = Annotated[OnDemand | Spot | Reservation | CapacityBlock, pydantic.Field(discriminator="type")]


def eks_capacity_type(capacity: OnDemand | Spot | Reservation | CapacityBlock) -> str:
    """The value of EKS' ``capacityType``: ON_DEMAND, SPOT or CAPACITY_BLOCK (botocore's CapacityTypes)."""
    return {"spot": "SPOT", "capacity-block": "CAPACITY_BLOCK"}.get(capacity.type, "ON_DEMAND")
