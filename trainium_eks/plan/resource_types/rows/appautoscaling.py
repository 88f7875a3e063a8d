"""Application Auto Scaling: targets with a number between bounds, and policies that set it."""

from trainium_eks.plan.backend import Answer, Call
from trainium_eks.plan.resource_types.resource_type import REGION, ResourceType

_PLACE = (REGION, "resourceId", "scalableDimension", "serviceNamespace")


def _target(call: Call) -> Answer:
    return call.text("resourceId"), {"arn": call.arn("application-autoscaling", f"scalable-target/{call.sim('t')}")}


def _policy(call: Call) -> Answer:
    name = call.name()
    return name, {"name": name, "arn": call.arn("autoscaling", f"scalingPolicy:{call.sim('p')}")}


TARGET = ResourceType(
    token="aws:appautoscaling/target:Target",
    simulated=_target,
    replaced_by=_PLACE,
    creation="",
)

POLICY = ResourceType(
    token="aws:appautoscaling/policy:Policy",
    simulated=_policy,
    named_by=("name",),
    tagged=False,
    replaced_by=(*_PLACE, "name"),
    creation="",
)
