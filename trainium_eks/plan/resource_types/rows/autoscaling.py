"""Auto Scaling: tags and scheduled actions of the groups that EKS makes."""

from collections.abc import Mapping

from trainium_eks.model.catalogue import versions
from trainium_eks.model.validation import formats
from trainium_eks.plan.backend import Answer, Call
from trainium_eks.plan.graph import Resource
from trainium_eks.plan.reading import text
from trainium_eks.plan.resource_types.resource_type import REGION, ResourceType


def _removal_effect(tag: Resource) -> str:
    """Return the effect of removing a group's tag: none for a tag that its nodes inherit, which names their payer."""
    handed_on = isinstance(tag.inputs.get("tag"), Mapping) and tag.inputs["tag"].get("propagateAtLaunch") is True
    return "" if handed_on else "Cluster Autoscaler finds it no more"


TAG = ResourceType(
    token="aws:autoscaling/tag:Tag",
    simulated=lambda call: (f"{call.text('autoscalingGroupName')},{call.mapping('tag').get('key', '')}", {}),
    tagged=False,
    replaced_by=(REGION, "autoscalingGroupName", "tag.key"),
    understood=("tag.value",),
    creation="",
    deletion=_removal_effect,
)


def _schedule(call: Call) -> Answer:
    name = call.text("scheduledActionName")
    return name, {"arn": call.arn("autoscaling", f"scheduledUpdateGroupAction:{call.sim('s')}")}


def _is_missed(action: Resource) -> str:
    """Return the effect of removing an action; none for one that has run, which Auto Scaling has removed itself."""
    start, present = text(action.inputs.get("startTime")), versions.now()
    return "the size of its group stays as it is then" if start > formats.utc_text(present) else ""


SCHEDULE = ResourceType(
    token="aws:autoscaling/schedule:Schedule",
    simulated=_schedule,
    named_by=("scheduledActionName",),
    tagged=False,
    replaced_by=(REGION, "autoscalingGroupName", "scheduledActionName"),
    understood=("desiredCapacity", "startTime"),
    creation="",
    deletion=_is_missed,
)
