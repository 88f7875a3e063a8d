"""SQS: queues and their policies. A million messages a month are free; interruptions are a handful."""

from trainium_eks.plan.backend import Answer, Call
from trainium_eks.plan.resource_types import access
from trainium_eks.plan.resource_types.resource_type import REGION, ResourceType


def _queue(call: Call) -> Answer:
    name = call.name()
    url = f"https://sqs.{call.region}.amazonaws.com/000000000000/{name}"
    return url, {"name": name, "url": url, "arn": call.arn("sqs", name)}


QUEUE = ResourceType(
    token="aws:sqs/queue:Queue",
    simulated=_queue,
    named_by=("name",),
    replaced_by=(REGION, "name", "namePrefix", "fifoQueue"),
    seconds=25,
    creation="",
)

QUEUE_POLICY = ResourceType(
    token="aws:sqs/queuePolicy:QueuePolicy",
    simulated=lambda call: (call.text("queueUrl"), {}),
    tagged=False,
    replaced_by=(REGION, "queueUrl"),
    understood=access.POLICY,
    creation="",
)
