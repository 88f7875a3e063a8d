"""R65-R67: secrets among the outputs, tags, and explicit providers."""

import re
from collections.abc import Iterator, Mapping

from trainium_eks.model.finding import Finding, Status
from trainium_eks.plan.graph import SECRET, SECRETS, Graph, Resource
from trainium_eks.plan.reading import Json, at, document, given, items, known, leaves, listed, mapping, show, text
from trainium_eks.plan.rules._rule import broken, judged, rule
from trainium_eks.plan.subjects import CLUSTER, EKS_CLUSTER, LAUNCH_TEMPLATE

AWS_PROVIDER = "pulumi:providers:aws"
KUBERNETES_PROVIDER = "pulumi:providers:kubernetes"
CREDENTIALS = ("token", "password", "client-key-data", "client-certificate-data", "tokenFile", "client-key")
SECRET_NAME = re.compile(r"password|secret|token|private_?key|kubeconfig", re.IGNORECASE)
TAGS = {
    "Owner": ("owner",),
    "CostCenter": ("costcenter", "costcentre"),
    "Environment": ("environment", "env"),
}
"""Tags that every resource carries, and their folded spellings."""


@rule(
    "R65",
    "Keep the kubeconfig secret and free of credentials",
    "high",
    "pulumi-eks#207, pulumi-eks#352",
    beyond_pack="which outputs are secret, because the policy SDK unwraps secrets; a kubeconfig's content is seen",
)
def kubeconfig(graph: Graph) -> Iterator[Finding]:
    """Exported kubeconfigs and outputs named like a secret are secret outputs. A kubeconfig runs `aws eks get-token`
    and comes from the cluster alone: a token in it goes stale, and an origin that changes makes every Kubernetes object
    look replaced."""
    faults = []
    named = [name for name in graph.outputs if SECRET_NAME.search(name) and "command" not in name.lower()]
    untold = SECRETS in graph.untold
    for name in named:
        value = graph.outputs[name]
        if value != SECRET and given(value) and not untold:
            faults.append(f"output {name} is in plain text, wanted a secret output")
        faults += [f"output {name}.{fault}" for fault in _credentials(value)]
    if named and untold and not faults:
        yield Finding(Status.NOT_CHECKED, graph.stack_urn, f"whether {', '.join(named)} are secret outputs is not told")
    elif named:
        yield from _of_stack(graph, faults, f"secret: {', '.join(named)}")
    for provider in graph.of_type(KUBERNETES_PROVIDER):
        yield from judged(provider, _provider_faults(graph, provider), "kubeconfig by exec, from the cluster alone")


@rule("R66", "Tag everything with owner, cost centre and environment", "low", "own")
def tags(graph: Graph) -> Iterator[Finding]:
    """The provider's default tags reach every AWS resource of the program, but not the instances and volumes that EC2
    launches from a template: these need tag specifications. Independent of `model/config/stack_config.py`, which
    validates the config."""
    for provider in graph.of_type(AWS_PROVIDER):
        found = mapping(at(document(provider.inputs.get("defaultTags")) or {}, "tags"))
        lacking = _lacking(found)
        faults = [f"defaultTags.tags lacks {', '.join(lacking)}"] if lacking else []
        yield from judged(provider, faults, "default tags name owner, cost centre and environment")
    for template in graph.of_type(LAUNCH_TEMPLATE):
        by_type = {
            text(at(each, "resourceType")): mapping(at(each, "tags"))
            for each in items(template.inputs.get("tagSpecifications"))
        }
        faults = []
        for kind in ("instance", "volume"):
            lacking = _lacking(by_type.get(kind, {}))
            if lacking:
                faults.append(f"tagSpecifications for {kind} lacks {', '.join(lacking)}")
        yield from judged(template, faults, "instances and volumes are tagged")


@rule("R67", "Use explicit providers, bound to an account", "medium", "own")
def providers(graph: Graph) -> Iterator[Finding]:
    """The AWS provider has a region and the accounts it may touch, so that a wrong profile fails before anything is
    built; and no AWS or Kubernetes resource falls back to the default provider, which takes the caller's own
    credentials. Independent of `model/config/stack_config.py`, which validates the config."""
    for provider in graph.of_type(AWS_PROVIDER):
        accounts = provider.inputs.get("allowedAccountIds")
        faults = [] if given(provider.inputs.get("region")) else ["region is unset, wanted one"]
        if not _json_list(accounts):
            faults.append(f"allowedAccountIds is {show(accounts)}, wanted the account of this environment")
        yield from judged(provider, faults, "has a region and its accounts")
    for resource in graph.resources:
        if not resource.custom or resource.type.partition(":")[0] not in ("aws", "kubernetes"):
            continue
        if resource.provider and "::default" not in resource.provider:
            continue
        if any(above.type == EKS_CLUSTER for above in graph.ancestors(resource)):
            continue  # made inside pulumi-eks' remote component, by the component's own provider
        yield broken(resource.urn, "options.provider is the default one, wanted an explicit provider")


def _of_stack(graph: Graph, faults: list[str], good: str) -> Iterator[Finding]:
    found = [broken(graph.stack_urn, fault) for fault in faults]
    yield from found or [Finding(Status.PASS, graph.stack_urn, good)]


def _credentials(kubeconfig_: Json) -> Iterator[str]:
    """Yield the problems of a kubeconfig that can be read: a credential in it, or a user without exec."""
    parsed = document(kubeconfig_)
    if parsed is None:
        return
    users = items(parsed.get("users"))
    for index, each in enumerate(users):
        user = mapping(at(each, "user"))
        held = [path for path, value in leaves(user) if path in CREDENTIALS and given(value)]
        if held:
            yield f"users[{index}].user has {', '.join(held)}, wanted exec alone"
        elif not given(at(user, "exec.command")):
            yield f"users[{index}].user has no exec.command, wanted one that asks for a token"


def _provider_faults(graph: Graph, provider: Resource) -> Iterator[str]:
    value = provider.inputs.get("kubeconfig")
    if not given(value):
        yield "kubeconfig is unset, wanted the cluster's (an ambient one may be another cluster's)"
    if known(value):
        if document(value) is None:
            yield "kubeconfig is not JSON, wanted the cluster's"
        for fault in _credentials(value):
            yield f"kubeconfig.{fault}"
    origins = [graph.by_urn.get(urn) for urn in provider.property_dependencies.get("kubeconfig", ())]
    strange = [
        each.name
        for each in origins
        if each is not None
        and each.type not in (EKS_CLUSTER, CLUSTER)
        and not any(above.type == EKS_CLUSTER for above in graph.ancestors(each))
    ]
    if strange:
        yield f"kubeconfig comes from {', '.join(strange)}, wanted the cluster alone"


def _lacking(found: Mapping[str, Json]) -> list[str]:
    folded = {key.replace("-", "").replace("_", "").lower() for key, value in found.items() if given(value)}
    return [tag for tag, spellings in TAGS.items() if not folded.intersection(spellings)]


def _json_list(value: Json) -> tuple[Json, ...]:
    """Return a list given as data or, as providers take it, as JSON text."""
    if isinstance(value, str):
        return tuple(re.findall(r"\d{12}", value))
    return tuple(listed(value))
