"""CloudWatch: log groups and alarms; EventBridge rules, which have its API."""

from collections.abc import Iterable

from trainium_eks.plan.backend import Answer, Call, named
from trainium_eks.plan.graph import Graph, Resource
from trainium_eks.plan.resource_types import concerns
from trainium_eks.plan.resource_types.resource_type import (
    REGION,
    BilledElsewhere,
    Concern,
    Holds,
    RefusesDeletion,
    ResourceType,
    ShownType,
    Worth,
)


def _retention(_graph: Graph, group: Resource) -> Iterable[str]:
    days = group.inputs.get("retentionInDays")
    yield f"{days} days" if days else "kept for ever"


LOG_GROUP = ResourceType(
    token="aws:cloudwatch/logGroup:LogGroup",
    simulated=named("logs", "log-group:"),
    named_by=("name",),
    replaced_by=(REGION, "name", "namePrefix", "logGroupClass"),
    price=BilledElsewhere("logs"),
    shown=ShownType(_retention),
    holds=Holds("its logs", Worth.COPY, when_deleted=lambda _: "DELETED"),
    understood=(Concern("retentionInDays", concerns.sooner, "logs are kept for a shorter time"),),
    creation="",
)


def _event_target(call: Call) -> Answer:
    target = call.text("targetId") or call.sim("target")
    return f"{call.text('rule')}-{target}", {"targetId": target}


EVENT_TARGET = ResourceType(
    token="aws:cloudwatch/eventTarget:EventTarget",
    simulated=_event_target,
    tagged=False,
    replaced_by=(REGION, "rule", "eventBusName", "targetId"),
    creation="",
)

EVENT_RULE = ResourceType(
    token="aws:cloudwatch/eventRule:EventRule",
    simulated=named("events", "rule/"),
    named_by=("name",),
    replaced_by=(REGION, "name", "namePrefix", "eventBusName"),
    refuses_deletion=RefusesDeletion(
        "ValidationException: Rule can't be deleted since it has targets.", for_=(EVENT_TARGET.token,)
    ),
    creation="",
)


ALARM = ResourceType(
    token="aws:cloudwatch/metricAlarm:MetricAlarm",
    simulated=named("cloudwatch", "alarm:"),
    named_by=("name",),
    replaced_by=(REGION, "name"),
    price=BilledElsewhere("alarms"),
    creation="",
)
