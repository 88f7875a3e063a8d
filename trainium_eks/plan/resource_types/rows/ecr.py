"""ECR: image repositories."""

import json
from collections.abc import Iterable
from typing import Any

from trainium_eks.model.catalogue import regions
from trainium_eks.plan.backend import ACCOUNT, Answer, Call
from trainium_eks.plan.graph import Graph, Resource
from trainium_eks.plan.resource_types import access, concerns
from trainium_eks.plan.resource_types.resource_type import (
    REGION,
    BilledElsewhere,
    Concern,
    Holds,
    ResourceType,
    ShownType,
    Worth,
    deleted_if_empty,
)


def _repository(call: Call) -> Answer:
    name = call.name()
    host = f"{ACCOUNT}.dkr.ecr.{call.region}.{regions.dns_suffix(call.region)}"
    arn = call.arn("ecr", f"repository/{name}")
    return name, {"name": name, "arn": arn, "registryId": ACCOUNT, "repositoryUrl": f"{host}/{name}"}


def _part(call: Call) -> Answer:
    return call.text("repository"), {"registryId": ACCOUNT}


def _repository_facts(_graph: Graph, repository: Resource) -> Iterable[str]:
    yield str(repository.inputs.get("name", ""))
    yield "immutable tags" if repository.inputs.get("imageTagMutability") == "IMMUTABLE" else ""


def _has_own_images(repository: Resource) -> bool:
    """Return whether a repository holds pushed images, and no copies of a pull-through cache: the
    upstream registry still has those."""
    return not any(PULL_THROUGH_CACHE_RULE.token in urn for urn in repository.dependencies)


def _repository_deletion(repository: Resource) -> str:
    return "" if _has_own_images(repository) else "its copies go, and its images come from their registry again"


REPOSITORY = ResourceType(
    token="aws:ecr/repository:Repository",
    simulated=_repository,
    named_by=("name",),
    replaced_by=(REGION, "name", "encryptionConfigurations"),
    price=BilledElsewhere("stored images, objects and backups"),
    shown=ShownType(_repository_facts),
    holds=Holds("its images", Worth.COPY, _has_own_images, deleted_if_empty("forceDelete")),
    understood=(
        Concern("forceDelete", concerns.switched_on, "may be deleted with the images in it"),
        Concern("imageTagMutability", concerns.no_longer("IMMUTABLE"), "a tag may become another image"),
        Concern("imageScanningConfiguration.scanOnPush", concerns.switched_off, "images are no longer scanned"),
    ),
    creation="",
    deletion=_repository_deletion,
)


def _expires_more(before: Any, after: Any) -> str:
    """Return the rules of a lifecycle policy that are new or keep less."""
    kept = _kept(before)
    return "; ".join(
        f"{kept.get(rule, 'all')} → {count} of {rule}"
        for rule, count in sorted(_kept(after).items())
        if rule not in kept or count < kept[rule]
    )


def _kept(policy: Any) -> dict[str, int]:
    """Return the selection of each rule of a policy's JSON text, with the number or the days of kept images."""
    found = {}
    for rule in json.loads(policy)["rules"] if policy else ():
        selection = dict(rule["selection"])
        count = selection.pop("countNumber")
        found[", ".join(str(each) for each in selection.values())] = count
    return found


LIFECYCLE_POLICY = ResourceType(
    token="aws:ecr/lifecyclePolicy:LifecyclePolicy",
    simulated=_part,
    tagged=False,
    replaced_by=(REGION, "repository", "policy"),
    understood=(Concern("policy", _expires_more, "images are deleted", loses=True),),
    creation="",
)

REPOSITORY_POLICY = ResourceType(
    token="aws:ecr/repositoryPolicy:RepositoryPolicy",
    simulated=_part,
    tagged=False,
    replaced_by=(REGION, "repository"),
    understood=access.POLICY,
    creation="",
)


PULL_THROUGH_CACHE_RULE = ResourceType(
    token="aws:ecr/pullThroughCacheRule:PullThroughCacheRule",
    simulated=lambda call: (call.text("ecrRepositoryPrefix"), {"registryId": ACCOUNT}),
    tagged=False,
    replaced_by=(REGION, "ecrRepositoryPrefix", "upstreamRegistryUrl", "upstreamRepositoryPrefix"),
    shown=ShownType(lambda _graph, _rule: (), joined_as=lambda rule: str(rule.inputs.get("upstreamRegistryUrl", ""))),
    understood=(
        Concern("credentialArn", concerns.changed, "images of a registry come with other credentials"),
        Concern("customRoleArn", concerns.changed, "images come by another role"),
    ),
    creation="",
)
