"""Amazon Managed Prometheus: workspaces."""

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


def _workspace(call: Call) -> Answer:
    identity = call.sim("ws")
    suffix = regions.dns_suffix(call.region)
    endpoint = f"https://aps-workspaces.{call.region}.{suffix}/workspaces/{identity}/"
    return identity, {"arn": call.arn("aps", f"workspace/{identity}"), "prometheusEndpoint": endpoint}


WORKSPACE = ResourceType(
    token="aws:amp/workspace:Workspace",
    simulated=_workspace,
    # An alias is no name: two workspaces may have the same.
    replaced_by=(REGION, "kmsKeyArn"),
    price=BilledElsewhere("samples in Amazon Managed Prometheus"),
    shown=ShownType(nothing_more),
    holds=Holds("its metrics", Worth.COPY, when_deleted=lambda _: "DELETED"),
    understood=("alias",),
    creation="billed by the sample, which the cost leaves out",
)
