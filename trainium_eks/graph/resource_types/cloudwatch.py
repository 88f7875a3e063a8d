"""CloudWatch: log groups."""

from collections.abc import Iterable

from trainium_eks.graph.graph import Graph, Resource
from trainium_eks.graph.recording.backend import Answer, Call
from trainium_eks.graph.resource_types.resource_type import (
    ALWAYS_DELETABLE,
    ONE_CALL,
    REGION,
    BilledElsewhere,
    Holds,
    ResourceType,
    Shown,
    Worth,
)


def _log_group(call: Call) -> Answer:
    name = call.name()
    return name, {"name": name, "arn": call.arn("logs", f"log-group:{name}")}


def _retention(_graph: Graph, group: Resource) -> Iterable[str]:
    days = group.inputs.get("retentionInDays")
    yield f"{days} days" if days else "kept for ever"


LOG_GROUP = ResourceType(
    token="aws:cloudwatch/logGroup:LogGroup",
    simulated=_log_group,
    named_by=("name",),
    tagged=True,
    replaced_by=(REGION, "name", "namePrefix", "logGroupClass"),
    seconds=ONE_CALL,
    price=BilledElsewhere("logs"),
    shown=Shown(_retention),
    holds=Holds("its logs", Worth.COPY, when_deleted=lambda _: "DELETED"),
    refuses_deletion=ALWAYS_DELETABLE,
    local="simulated",
)

TYPES = (LOG_GROUP,)
