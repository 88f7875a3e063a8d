"""Amazon Managed Grafana: workspaces."""

from trainium_eks.model.catalogue import regions
from trainium_eks.plan.backend import Answer, Call
from trainium_eks.plan.resource_types.resource_type import (
    REGION,
    BilledElsewhere,
    Holds,
    ResourceType,
    ShownType,
    Worth,
    nothing_more,
)

WORKSPACE_SECONDS = 120.0
"""From memory: a workspace is there within minutes."""


def _workspace(call: Call) -> Answer:
    identity = call.sim("g")
    endpoint = f"{identity}.grafana-workspace.{call.region}.{regions.dns_suffix(call.region)}"
    return identity, {
        "arn": call.arn("grafana", f"/workspaces/{identity}"),
        "endpoint": endpoint,
        "grafanaVersion": "12.4",
    }


WORKSPACE = ResourceType(
    token="aws:grafana/workspace:Workspace",
    simulated=_workspace,
    # Two workspaces may have the same name.
    replaced_by=(REGION,),
    seconds=WORKSPACE_SECONDS,
    price=BilledElsewhere("users of Amazon Managed Grafana"),
    shown=ShownType(nothing_more),
    holds=Holds("dashboards that people made there", Worth.COPY, when_deleted=lambda _: "DELETED"),
    creation="people log in from outside, and each is billed",
)
