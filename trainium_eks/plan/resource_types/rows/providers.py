"""Providers: the settings by which a program reaches a cloud. They are made locally."""

import json
import uuid
from typing import Any

from trainium_eks.plan.graph import Resource
from trainium_eks.plan.resource_types import access
from trainium_eks.plan.resource_types.resource_type import REGION, Concern, ResourceType, When


def _may_be_another_cluster(provider: Resource, _before: object, _after: object) -> bool:
    """Return whether another kubeconfig may be another cluster, as the provider cannot know without an identifier."""
    return "clusterIdentifier" not in provider.inputs


def _more_accounts(before: Any, after: Any) -> str:
    """Return the newly allowed accounts; no given account means every account."""
    old, new = ([] if each is None else json.loads(each) if isinstance(each, str) else each for each in (before, after))
    return "any" if not new else access.lists_more(old or new, new)


def _row(token: str, replaced_by: tuple[str | When, ...], understood: tuple[str | Concern, ...] = ()) -> ResourceType:
    return ResourceType(
        token=token,
        simulated=lambda call: (str(uuid.uuid5(uuid.NAMESPACE_URL, call.resource.urn)), {}),
        tagged=False,
        replaced_by=replaced_by,
        seconds=0,
        understood=understood,
        creation="",
    )


AWS = _row(
    "pulumi:providers:aws",
    (REGION,),
    # Default tags are reported with the resources that get them.
    ("defaultTags", Concern("allowedAccountIds", _more_accounts, "may be built in other accounts")),
)
EKS = _row("pulumi:providers:eks", ())
KUBERNETES = _row("pulumi:providers:kubernetes", ("clusterIdentifier", When("kubeconfig", _may_be_another_cluster)))
