"""Auto Scaling: tags of the groups that EKS makes."""

from trainium_eks.graph.recording.backend import Answer, Call
from trainium_eks.graph.resource_types.resource_type import (
    ALWAYS_DELETABLE,
    COUNTED,
    FREE,
    NO_DATA,
    ONE_CALL,
    REGION,
    ResourceType,
)


def _tag(call: Call) -> Answer:
    return f"{call.text('autoscalingGroupName')},{call.mapping('tag').get('key', '')}", {}


TAG = ResourceType(
    token="aws:autoscaling/tag:Tag",
    simulated=_tag,
    named_by=(),
    tagged=False,
    replaced_by=(REGION, "autoscalingGroupName", "tag.key"),
    seconds=ONE_CALL,
    price=FREE,
    shown=COUNTED,
    holds=NO_DATA,
    refuses_deletion=ALWAYS_DELETABLE,
    local="simulated",
    understood=("tag.value",),
    creation="",
)

TYPES = (TAG,)
