"""Who may do more after a change, and who can reach more."""

import ipaddress
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trainium_eks.graph.graph import Resource
from trainium_eks.graph.resource_types import eks
from trainium_eks.graph.resource_types.replacements import value_at
from trainium_eks.model.parsing import parse_json

Found = tuple[str, str, str]
"""Path, our words, and what it is in particular."""

_POLICIES = ("policy", "assumeRolePolicy", "inlinePolicy")
"""Inputs of AWS resources that hold a policy's JSON text."""

_GRANTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": ("a policy is attached to a role", ("policyArn", "role")),
    "aws:eks/accessEntry:AccessEntry": ("a principal gets into the cluster", ("principalArn",)),
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": (
        "a principal gets rights in the cluster",
        ("principalArn", "policyArn"),
    ),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": (
        "pods get the rights of a role",
        ("namespace", "serviceAccount"),
    ),
    "kubernetes:rbac.authorization.k8s.io/v1:ClusterRoleBinding": ("rights in the whole cluster", ("roleRef.name",)),
    "kubernetes:rbac.authorization.k8s.io/v1:RoleBinding": ("rights in a namespace", ("roleRef.name",)),
}
"""Types that are a grant by themselves: creating one widens, and so does changing what it names."""

_ROLES = ("kubernetes:rbac.authorization.k8s.io/v1:ClusterRole", "kubernetes:rbac.authorization.k8s.io/v1:Role")

MOST_NAMED = 4
"""How many actions or ranges are named."""


def widened(before: Resource | None, after: Resource) -> Iterator[Found]:
    """Rights that a resource gives after the change and did not before."""
    old = before.inputs if before else {}
    if after.type in _GRANTS:
        words, named = _GRANTS[after.type]
        was, is_ = [value_at(old, each) for each in named], [value_at(after.inputs, each) for each in named]
        if was != is_:
            yield "", words, ", ".join(str(each) for each in is_ if each is not None)
        if before and _texts(old.get("subjects")) < _texts(after.inputs.get("subjects")):
            yield "subjects", "more subjects have these rights", ""
    elif after.type in _ROLES:
        more = _texts(after.inputs.get("rules")) - _texts(old.get("rules"))
        if before and more:
            yield "rules", "a role's rights change", _listed(sorted(more))
    elif after.type.startswith("aws:"):
        for path in _POLICIES:
            yield from _more_allowed(path, old.get(path), after.inputs.get(path))


def _more_allowed(path: str, before: Any, after: Any) -> Iterator[Found]:
    """What a policy's JSON text allows more, and what it denies less."""
    if before == after or not isinstance(after, str):
        return
    allowed, denied = _statements(after)
    old_allowed, old_denied = _statements(before)
    if more := allowed - old_allowed:
        yield path, "allows more", _listed(sorted({f"{what} on {where}" for what, where, _ in more}))
    if gone := old_denied - denied:
        yield path, "denies less", _listed(sorted({f"{what} on {where}" for what, where, _ in gone}))


Allowance = tuple[str, str, str]
"""Action, resource, and everything else that the statement says."""


def _statements(policy: Any) -> tuple[set[Allowance], set[Allowance]]:
    """What a policy allows and what it denies, statement by statement; nothing for what is no policy."""
    try:
        read = parse_json(policy) if isinstance(policy, str) else {}
    except ValueError:
        read = {}
    allowed: set[Allowance] = set()
    denied: set[Allowance] = set()
    for statement in _listed_of(read.get("Statement") if isinstance(read, Mapping) else ()):
        if not isinstance(statement, Mapping):
            continue
        rest = {key: statement[key] for key in ("Principal", "NotPrincipal", "Condition") if key in statement}
        said = json.dumps(rest, sort_keys=True)
        actions = [str(each) for each in _listed_of(statement.get("Action"))]
        actions += [f"everything but {each}" for each in _listed_of(statement.get("NotAction"))]
        where = _listed_of(statement.get("Resource") or statement.get("NotResource") or "itself")
        found = denied if statement.get("Effect") == "Deny" else allowed
        found.update((action, str(each), said) for action in actions for each in where)
    return allowed, denied


def _listed_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value] if value else []


def _texts(values: Any) -> set[str]:
    return {json.dumps(each, sort_keys=True) for each in _listed_of(values)}


def _listed(items: list[str]) -> str:
    more = len(items) - MOST_NAMED
    return "; ".join(items[:MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")


# --- addresses ----------------------------------------------------------------------------------------------------


def opened(before: Resource | None, after: Resource) -> Iterator[Found]:
    """Addresses that reach a resource after the change and did not before."""
    if after.type == eks.CLUSTER.token and before is not None:
        yield from _endpoint(before, after)
        return
    path, new = _ranges(after)
    more = _beyond(new, _ranges(before)[1] if before else ())
    # A new rule within the private ranges is how the parts of an environment find each other.
    shown = [each for each in more if before is not None or not _private(each)]
    if shown:
        yield path, "more addresses reach it", _listed(shown)


def _endpoint(before: Resource, after: Resource) -> Iterator[Found]:
    public = "vpcConfig.endpointPublicAccess"
    if value_at(before.inputs, public) is False and value_at(after.inputs, public) is not False:
        yield public, "the endpoint is opened to the internet", ""
    path = "vpcConfig.publicAccessCidrs"
    more = _beyond(_listed_of(value_at(after.inputs, path)), _listed_of(value_at(before.inputs, path)))
    if more:
        yield path, "more addresses reach the endpoint", _listed(more)


def _ranges(resource: Resource) -> tuple[str, list[Any]]:
    """The input with the ranges that a rule lets in, and them."""
    inputs = resource.inputs
    match resource.type:
        case "aws:ec2/securityGroup:SecurityGroup":
            rules = [each for each in _listed_of(inputs.get("ingress")) if isinstance(each, Mapping)]
            keys = ("cidrBlocks", "ipv6CidrBlocks")
            return "ingress", [one for each in rules for key in keys for one in _listed_of(each.get(key))]
        case "aws:ec2/securityGroupRule:SecurityGroupRule" if inputs.get("type") == "ingress":
            return "cidrBlocks", [*_listed_of(inputs.get("cidrBlocks")), *_listed_of(inputs.get("ipv6CidrBlocks"))]
        case "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule":
            return "cidrIpv4", [*_listed_of(inputs.get("cidrIpv4")), *_listed_of(inputs.get("cidrIpv6"))]
        case "kubernetes:core/v1:Service":
            path = "spec.loadBalancerSourceRanges"
            return path, _listed_of(value_at(inputs, path))
    return "", []


def _beyond(new: Iterable[Any], old: Iterable[Any]) -> list[str]:
    """The ranges that no earlier range covers; one that cannot be read is taken for new."""
    known = [network for each in old if (network := _network(each)) is not None]
    found = []
    for each in new:
        network = _network(each)
        inside = network is not None and any(
            network.version == one.version and network.subnet_of(one)  # type: ignore[arg-type]
            for one in known
        )
        if not inside and each not in found:
            found.append(each)
    return [str(each) for each in found]


def _network(text: Any) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(str(text), strict=False)
    except ValueError:
        return None


def _private(text: str) -> bool:
    network = _network(text)
    return network is not None and network.is_private
