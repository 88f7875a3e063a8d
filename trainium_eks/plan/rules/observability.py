"""R83-R88, R92: storage of metrics and logs, access to them, and the rights of their agents."""

import re
from collections.abc import Iterator, Mapping

from trainium_eks.model.config.observability import SHORTEST_LOGS_IN_PRODUCTION_DAYS
from trainium_eks.model.finding import Finding
from trainium_eks.plan.graph import Graph, Resource
from trainium_eks.plan.reading import (
    Json,
    actions,
    allows,
    at,
    given,
    items,
    listed,
    mapping,
    show,
    statements,
    text,
    true,
)
from trainium_eks.plan.rules._objects import namespace, releases, walk
from trainium_eks.plan.rules._rule import judged, rule
from trainium_eks.plan.rules.cluster import LOG_GROUP, is_of_containers, retention_faults
from trainium_eks.plan.rules.kubernetes import NETWORK_POLICY

STACK = "kube-prometheus-stack"
SHIPPER = "fluent-bit"
SELECTORS = (
    "ruleNamespaceSelector",
    "serviceMonitorNamespaceSelector",
    "podMonitorNamespaceSelector",
    "probeNamespaceSelector",
    "scrapeConfigNamespaceSelector",
)
HOME_LABEL = "kubernetes.io/metadata.name"
ACTIONS_ON_ONE = re.compile(r"(aps|sns):.*|logs:(CreateLogStream|Put.*|Get.*|Filter.*|Delete.*)")
"""Actions on a resource that can always be named; listing takes no resource."""


@rule("R83", "Encrypt stored metrics with a customer key", "medium", "own")
def stored_metrics(graph: Graph) -> Iterator[Finding]:
    """A workspace of Amazon Managed Prometheus has a KMS key of the account, which cannot be given to it later; the
    volume of the cluster's own Prometheus is a claim, so that the storage class encrypts it."""
    for workspace in graph.of_type("aws:amp/workspace:Workspace"):
        faults = [] if given(workspace.inputs.get("kmsKeyArn")) else ["kmsKeyArn is unset, wanted a KMS key"]
        yield from judged(workspace, faults, "has a customer key")
    for release in releases(graph, STACK):
        path = "values.prometheus.prometheusSpec.storageSpec.volumeClaimTemplate"
        faults = [] if given(at(release.inputs, path)) else [f"{path} is unset, wanted a claim"]
        yield from judged(release, faults, "on an encrypted volume")


@rule(
    "R84",
    "Keep container logs a month, encrypted, in a group that exists",
    "medium",
    "CKV_AWS_66, CKV_AWS_158",
    follows_ids=True,
)
def container_logs(graph: Graph) -> Iterator[Finding]:
    """The log shipper would make a group without key and without end: the group exists before it and it may make none.
    In production the logs are kept 30 days or longer. Independent of `model/config/observability.py`, which validates
    the config."""
    groups = [each for each in graph.of_type(LOG_GROUP) if is_of_containers(each)]
    for group in groups:
        least = SHORTEST_LOGS_IN_PRODUCTION_DAYS if graph.production else 1
        yield from judged(group, retention_faults(group, least), "kept for a time, encrypted")
    for release in releases(graph, SHIPPER):
        before = graph.upstream(release)
        faults = []
        if not any(group.urn in before for group in groups):
            faults.append("does not depend on a log group /trainium-eks/<cluster>/containers, wanted the group first")
        output = text(at(release.inputs, "values.config.outputs"))
        if re.search(r"(?im)^\s*auto_create_group\s+(on|true|yes)\b", output):
            faults.append("values.config.outputs has auto_create_group on, wanted it off")
        yield from judged(release, faults, "its log group exists before it")


@rule("R85", "Close the monitoring namespace to other namespaces", "high", "CKV2_K8S_6, CIS 4.3.2")
def closed(graph: Graph) -> Iterator[Finding]:
    """Prometheus and Alertmanager have no login, and hold every series of every team. A network policy selects all pods
    of their namespace, and none lets in other namespaces or every address on any port but the operator's webhook."""
    for release in releases(graph, STACK):
        home = namespace(release)
        policies = [each for each in graph.of_type(NETWORK_POLICY) if namespace(each) == home]
        denying = [
            each
            for each in policies
            if at(each.inputs, "spec.podSelector") in ({}, None)
            and "Ingress" in items(at(each.inputs, "spec.policyTypes"))
        ]
        faults = [] if denying else [f"no NetworkPolicy of {home} selects all pods for Ingress, wanted one"]
        faults += [fault for each in policies for fault in _ways_in(each)]
        yield from judged(release, faults, "only its own pods get in")


@rule("R86", "Keep Prometheus and Grafana inside the cluster", "high", "CKV_K8S_43, own")
def private(graph: Graph) -> Iterator[Finding]:
    """No part of the stack has an ingress, a route, or a service with an address outside the cluster; Grafana requires
    a login, and its password is not in the values, which Pulumi's state keeps. Amazon Managed Grafana, which is public,
    authenticates by IAM Identity Center or SAML."""
    for release in releases(graph, STACK):
        yield from judged(release, _exposed(mapping(release.inputs.get("values"))), "inside the cluster only")
    for workspace in graph.of_type("aws:grafana/workspace:Workspace"):
        found = items(workspace.inputs.get("authenticationProviders"))
        good = bool(found) and set(map(str, found)) <= {"AWS_SSO", "SAML"}
        faults = [] if good else [f"authenticationProviders is {show(found)}, wanted AWS_SSO or SAML"]
        yield from judged(workspace, faults, "asks who it is")


@rule("R87", "Let the stack alone say what is scraped and computed", "medium", "own")
def own_objects(graph: Graph) -> Iterator[Finding]:
    """The operator takes monitors and rules from every namespace by default: an author of one there can have Prometheus
    call any address, or exhaust its memory. They come from its own namespace alone."""
    for release in releases(graph, STACK):
        home, spec = namespace(release), at(release.inputs, "values.prometheus.prometheusSpec")
        faults = []
        for key in SELECTORS:
            found = at(mapping(spec).get(key), "matchLabels")
            if mapping(found).get(HOME_LABEL) != home:
                faults.append(f"values.prometheus.prometheusSpec.{key} is {show(found)}, wanted {HOME_LABEL}: {home}")
        yield from judged(release, faults, "from its own namespace alone")


@rule("R88", "Name what agents of metrics and logs may write and read", "high", "CKV_AWS_290, CKV_AWS_355")
def named_resources(graph: Graph) -> Iterator[Finding]:
    """A role that writes metrics, logs or alerts names the workspace, group or topic: with a star it could read or
    spoil the data of every other environment of the account."""
    for policy in graph.of_type("aws:iam/rolePolicy:RolePolicy", "aws:iam/policy:Policy"):
        found = statements(policy.inputs.get("policy")) or ()
        ours = [(index, each) for index, each in enumerate(found) if _on_one(each)]
        faults = [
            f"policy.Statement[{index}].Resource is {show(each.get('Resource'))} for {', '.join(_on_one(each))}, "
            "wanted the ARN"
            for index, each in ours
            if any(text(resource) in ("*", "arn:aws:logs:*:*:*") for resource in listed(each.get("Resource")))
        ]
        if ours:
            yield from judged(policy, faults, "names what it is for")


@rule(
    "R92",
    "Keep pods with a zonal volume in one zone",
    "high",
    "EBS CSI driver, Kubernetes storage topology; own",
    follows_ids=True,
)
def volumes_in_one_zone(graph: Graph) -> Iterator[Finding]:
    """An EBS volume stays in the zone where it was made. When the nodes there are replaced and nodes of other zones
    have room, a pod that may run anywhere waits for its zone. So a pod that claims a volume selects nodes, and every
    managed group that it selects is in the same zone."""
    for release in releases(graph, STACK):
        faults = [
            fault
            for path, volume in ZONAL.items()
            if given(at(release.inputs, f"{path}.{volume}")) and at(release.inputs, f"{path}.{volume}") is not False
            for fault in _spread(graph, path, mapping(at(release.inputs, f"{path}.nodeSelector")))
        ]
        yield from judged(release, faults, "on the nodes of one zone")


ZONAL: Mapping[str, str] = {
    "values.prometheus.prometheusSpec": "storageSpec",
    "values.alertmanager.alertmanagerSpec": "storage",
    "values.grafana": "persistence.enabled",
}
"""Path in the chart's values that describes a pod to the key that gives it a volume."""


def _spread(graph: Graph, path: str, selector: Mapping[str, Json]) -> Iterator[str]:
    if not selector:
        yield f"{path}.nodeSelector is unset, wanted labels of nodes in one zone"
        return
    groups = [
        each for each in graph.node_groups if selector.items() <= mapping(each.resource.inputs.get("labels")).items()
    ]
    zones = {graph.zone_of(subnet) for each in groups for subnet in items(each.resource.inputs.get("subnetIds"))}
    if graph.node_groups and not groups:
        yield f"{path}.nodeSelector {show(selector)} selects no managed node group, wanted one"
    elif len(zones) > 1:
        yield f"{path}.nodeSelector {show(selector)} selects nodes in {', '.join(sorted(zones))}, wanted one zone"


def _on_one(statement: Mapping[str, Json]) -> list[str]:
    return sorted(each for each in actions(statement) if allows(statement) and ACTIONS_ON_ONE.fullmatch(each))


WEBHOOK_PORT = 10250


def _ways_in(policy: Resource) -> Iterator[str]:
    for index, each in enumerate(items(at(policy.inputs, "spec.ingress"))):
        path = f"NetworkPolicy {policy.name}: spec.ingress[{index}]"
        peers = items(at(each, "from"))
        ports = [at(port, "port") for port in items(at(each, "ports"))]
        if not peers and ports != [WEBHOOK_PORT]:
            yield f"{path} lets in every address on {show(ports) if ports else 'every port'}, wanted named peers"
        for peer in peers:
            if at(peer, "namespaceSelector") is not None or at(peer, "ipBlock") is not None:
                yield f"{path}.from has {show(peer)}, wanted pods of the namespace alone"


def _exposed(values: Mapping[str, Json]) -> Iterator[str]:
    for path, each in walk(values, "values"):
        last = path.rpartition(".")[2]
        if last == "service" and at(each, "type") not in (None, "ClusterIP"):
            yield f'{path}.type is {show(at(each, "type"))}, wanted "ClusterIP"'
        if last in ("ingress", "main") and true(at(each, "enabled")):
            yield f"{path}.enabled is true, wanted no way in"
        if path.endswith(".auth.anonymous") and true(at(each, "enabled")):
            yield f"{path}.enabled is true, wanted a login"
    if given(at(values, "grafana.adminPassword")):
        yield "values.grafana.adminPassword is set, wanted the one that the chart makes in the cluster"
