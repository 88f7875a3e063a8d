"""The AWS requests of the deployment of a recorded program, as IAM sees them.

Every row of :data:`~trainium_eks.operate.preflight.deploy_actions.NEEDS` is filled with the names, ids and tags of the
program's resources: an ``up`` from nothing, a change of each resource, and a ``destroy``.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from string import Formatter
from typing import Any

from trainium_eks.model.catalogue import regions
from trainium_eks.operate.preflight.deploy_actions import NEEDS, Ask, Tags
from trainium_eks.plan.backend import ACCOUNT
from trainium_eks.plan.graph import Graph, Resource


@dataclass(frozen=True)
class IamRequest:
    """One action on one resource; an API call that touches several is several of them."""

    action: str
    resource: str = "*"
    context: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    """Condition keys that AWS sends with it, values as text."""
    principal: str = ""
    """ARN, or the name of a service; empty for the caller. Only resource policies look at it."""


@dataclass(frozen=True)
class AccountRegion:
    """The account and region of a stack."""

    account: str
    region: str
    partition: str
    boundary: str
    """ARN of the policy that bounds its roles; empty for none."""

    @property
    def suffix(self) -> str:
        """Return the end of its services' host names."""
        return regions.dns_suffix(self.region)


def needed(graph: Graph, place: AccountRegion) -> tuple[IamRequest, ...]:
    """Return the requests of the first resource of each type, each once: policies tell types apart, and IAM takes a
    second for each simulation."""
    owners = _Owners(graph)
    types = sorted({each.type for each in graph.resources} & NEEDS.keys())
    first = [graph.of_type(type_)[0] for type_ in types]
    # Every attachment, because each has another policy.
    others = graph.of_type("aws:iam/rolePolicyAttachment:RolePolicyAttachment")
    made = (pair for resource in (*first, *others) for pair in _of(resource, owners, place))
    found = {str(each): each for ask, each in made if not ask.role}
    # Tags of new resources: one of them speaks for all.
    tagging = [text for text, each in found.items() if "ec2:CreateAction" in each.context]
    return tuple(each for text, each in found.items() if text not in tagging[1:])


def requests(graph: Graph, place: AccountRegion) -> Iterator[tuple[Ask, IamRequest]]:
    """Yield every request that a program causes, the caller's and its roles' (``Ask.role``), with the part of the row
    that it comes from."""
    owners = _Owners(graph)
    for resource in graph.resources:
        yield from _of(resource, owners, place)


def _of(resource: Resource, owners: "_Owners", place: AccountRegion) -> Iterator[tuple[Ask, IamRequest]]:
    words = {**resource.inputs, **resource.outputs}
    if path := resource.inputs.get("dataRepositoryPath"):
        words["bucket"] = str(path).split("/")[2]
    for ask in NEEDS.get(resource.type, ()):
        if not ask.of:
            yield from ((ask, each) for each in _requests(ask, words, _tags(resource), place))
        for id_ in owners.ids(resource, ask.of) if ask.of else ():
            known = {**words, "parent": id_, "end": id_.rpartition("/")[2]}
            yield from ((ask, each) for each in _requests(ask, known, owners.tags(id_), place))


class _Owners:
    """The program's resources by their ids, for the tags of parents."""

    def __init__(self, graph: Graph) -> None:
        # A key's policy has the key's id, too, and no tags.
        self._tags = {str(each.outputs.get("id")): tags for each in graph.resources if (tags := _tags(each))}
        self._keys = [str(each.outputs.get("arn")) for each in graph.of_type("aws:kms/key:Key")]
        self._tags |= {str(each.outputs.get("arn")): _tags(each) for each in graph.of_type("aws:kms/key:Key")}
        for cluster in graph.of_type("aws:eks/cluster:Cluster"):
            network = cluster.outputs.get("vpcConfig")
            if isinstance(network, Mapping):
                # As EKS tags the security group that it makes (EKS user guide, security group requirements).
                name = f"eks-cluster-sg-{cluster.outputs.get('name')}-1234567"
                self._tags[str(network.get("clusterSecurityGroupId"))] = {"Name": name}

    def ids(self, resource: Resource, of: str) -> Iterator[str]:
        """Yield the ids of parents: the ids in an input, or for ``key`` the ARNs of the program's KMS keys."""
        found = self._keys if of == "key" else resource.inputs.get(of)
        for each in found if isinstance(found, list | tuple) else (found,):
            if isinstance(each, str):
                yield each

    def tags(self, id_: str) -> Mapping[str, str]:
        """Return the tags of a resource of the program; none for another owner's resource."""
        return self._tags.get(id_, {})


def _tags(resource: Resource) -> Mapping[str, str]:
    found = resource.outputs.get("tagsAll") or resource.inputs.get("tags")
    return {key: str(value) for key, value in found.items()} if isinstance(found, Mapping) else {}


def _requests(
    ask: Ask, words: Mapping[str, Any], tags: Mapping[str, str], place: AccountRegion
) -> Iterator[IamRequest]:
    def put(text: str) -> str:
        for _, name, _, _ in Formatter().parse(text):
            if name:
                value = getattr(place, name, None)
                text = text.replace(f"{{{name}}}", str(words.get(name) or "x") if value is None else value)
        # Invented by recording: the account, and the ends of names.
        return re.sub(r"\bsim-([0-9a-f]{7})[0-9a-f]?", r"\1", text).replace(ACCOUNT, place.account)

    context: dict[str, str | Sequence[str]] = {"aws:PrincipalAccount": place.account}
    context |= {key: full for key, value in ask.context.items() if (full := put(value))}
    if ask.tags is not Tags.NONE:
        kind = "RequestTag" if ask.tags is Tags.REQUEST else "ResourceTag"
        context |= {f"aws:{kind}/{key}": put(value) for key, value in tags.items()}
        if ask.tags is Tags.REQUEST and tags:
            context["aws:TagKeys"] = sorted(tags)
    if ask.via:
        context["aws:CalledVia"] = [ask.via]
    principal = put(ask.role)
    for action in ask.actions:
        yield IamRequest(action, put(ask.resource), context, principal)
