"""Application Auto Scaling: targets with a number between bounds, and policies that set it."""

from trainium_eks.plan.backend import Answer, Call
from trainium_eks.plan.resource_types.resource_type import (
    ALWAYS_DELETABLE,
    COUNTED,
    FREE,
    NO_DATA,
    ONE_CALL,
    REGION,
    ResourceType,
)

_PLACE = (REGION, "resourceId", "scalableDimension", "serviceNamespace")


def _target(call: Call) -> Answer:
    return call.text("resourceId"), {"arn": call.arn("application-autoscaling", f"scalable-target/{call.sim('t')}")}


def _policy(call: Call) -> Answer:
    name = call.name()
    return name, {"name": name, "arn": call.arn("autoscaling", f"scalingPolicy:{call.sim('p')}")}


TARGET = ResourceType(
    token="aws:appautoscaling/target:Target",
    simulated=_target,
    named_by=(),
    tagged=True,
    replaced_by=_PLACE,
    seconds=ONE_CALL,
    price=FREE,
    shown=COUNTED,
    holds=NO_DATA,
    refuses_deletion=ALWAYS_DELETABLE,
    local="simulated",
    creation="",
)

POLICY = ResourceType(
    token="aws:appautoscaling/policy:Policy",
    simulated=_policy,
    named_by=("name",),
    tagged=False,
    replaced_by=(*_PLACE, "name"),
    seconds=ONE_CALL,
    price=FREE,
    shown=COUNTED,
    holds=NO_DATA,
    refuses_deletion=ALWAYS_DELETABLE,
    local="simulated",
    creation="",
)

TYPES = (TARGET, POLICY)
