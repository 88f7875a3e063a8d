"""R51-R57: namespaces, pods, roles, network policies and the identity of pods."""

import re
from collections.abc import Iterator

from trainium_eks.model.catalogue.addon_records import ADDONS
from trainium_eks.model.finding import Finding
from trainium_eks.plan.graph import Graph, Resource
from trainium_eks.plan.reading import (
    Json,
    actions,
    allows,
    at,
    document,
    given,
    items,
    known,
    listed,
    mapping,
    principals,
    show,
    statements,
    text,
    true,
)
from trainium_eks.plan.resource_types.rows.helm import chart_name
from trainium_eks.plan.rules._objects import (
    NAMESPACE,
    PodMaker,
    is_local,
    is_tenant,
    namespace,
    object_name,
    pod_makers,
    walk,
)
from trainium_eks.plan.rules._rule import broken, judged, rule
from trainium_eks.plan.subjects import ADDON, RELEASE, ROLE

ASSOCIATION = "aws:eks/podIdentityAssociation:PodIdentityAssociation"
NETWORK_POLICY = "kubernetes:networking.k8s.io/v1:NetworkPolicy"
RBAC_ROLES = ("kubernetes:rbac.authorization.k8s.io/v1:ClusterRole", "kubernetes:rbac.authorization.k8s.io/v1:Role")
CLUSTER_ROLE_BINDING = "kubernetes:rbac.authorization.k8s.io/v1:ClusterRoleBinding"
ROLE_BINDING = "kubernetes:rbac.authorization.k8s.io/v1:RoleBinding"
LEVELS = ("privileged", "baseline", "restricted")
ENFORCE = "pod-security.kubernetes.io/enforce"
PRIVILEGED = ("aws-efa-k8s-device-plugin", "neuron-monitor", "node-problem-detector", "fsx-csi-node", "fsx-plugin")
"""Workloads that may run privileged. The Neuron device plugin is not among them: it drops all capabilities."""
POD_PRINCIPAL = "pods.eks.amazonaws.com"
MOST_ASSOCIATIONS = 1000
FLOATING = re.compile(r"(latest|master|main|edge|nightly|stable|dev|head)(-.*)?", re.IGNORECASE)
EXACT = re.compile(r"v?\d+\.\d+\.\d+([-+][0-9A-Za-z.+-]+)?")
DEFAULT_RESOURCES = ("dcgm-exporter", "karpenter-crd")
"""Upstream charts with requests and limits in their defaults, or without pods."""


@rule("R51", "Label every namespace for Pod Security", "high", "PSS, CIS 4.2.1-5")
def pod_security(graph: Graph) -> Iterator[Finding]:
    """Without the enforce label a namespace admits anything. A namespace that Helm makes has no labels, so
    namespaces are made by the program."""
    for each in graph.of_type(NAMESPACE):
        level = mapping(at(each.inputs, "metadata.labels")).get(ENFORCE)
        wanted = ", ".join(LEVELS)
        faults = [] if level in LEVELS else [f"metadata.labels[{ENFORCE}] is {show(level)}, wanted one of {wanted}"]
        yield from judged(each, faults, f"enforces {level}")
    for release in graph.of_type(RELEASE):
        if true(release.inputs.get("createNamespace")):
            yield broken(release.urn, "createNamespace is true, wanted a labelled Namespace of the program")


@rule("R52", "Run privileged only what must", "high", "CKV_K8S_16, CKV_K8S_20, CKV_K8S_2, CKV_K8S_5")
def privileged(graph: Graph) -> Iterator[Finding]:
    """A privileged pod controls its node. The EFA plugin, neuron-monitor, the node-problem detector and the FSx driver
    need it; nothing else does. A chart's defaults are reviewed when the chart is chosen, not here."""
    for workload in pod_makers(graph):
        yield from judged(workload.resource, _privilege_faults(workload), "not privileged")
    for release in graph.of_type(RELEASE):
        faults = []
        for path, each in walk(mapping(release.inputs.get("values")), "values"):
            if true(each.get("privileged")) and not _may_be_privileged(chart_name(release), path):
                faults.append(f"{path}.privileged is true, wanted false")
        yield from judged(release, faults, "asks for no privilege beyond the allow-list")


@rule("R53", "Pin images and charts", "high", "CKV_K8S_14, CKV_K8S_43")
def pinned(graph: Graph) -> Iterator[Finding]:
    """Every image has a tag that does not move, in production a digest for the pods of the program itself; every
    chart an exact version, or a directory of the repository; every EKS add-on a version."""
    for workload in pod_makers(graph):
        faults = [
            fault for path, each in workload.containers for fault in _image_faults(graph, path, at(each, "image"))
        ]
        yield from judged(workload.resource, faults, "images are pinned")
    for release in graph.of_type(RELEASE):
        yield from judged(release, _release_faults(release), "chart and images are pinned")
    for addon in graph.of_type(ADDON):
        faults = [] if given(addon.inputs.get("addonVersion")) else ["addonVersion is unset, wanted a version"]
        yield from judged(addon, faults, f"version {addon.inputs.get('addonVersion')}")
    for type_ in ("kubernetes:kustomize/v2:Directory", "kubernetes:yaml/v2:ConfigFile", "kubernetes:yaml:ConfigFile"):
        for each in graph.of_type(type_):
            source = text(each.inputs.get("directory")) or text(each.inputs.get("file"))
            moving = "://" in source and not re.search(r"[?&/@=](v?\d+\.\d+(\.\d+)?|[0-9a-f]{40})([/&]|$)", source)
            faults = [f"source is {show(source)}, wanted a tag or commit in it"] if moving else []
            yield from judged(each, faults, "its source is pinned")


@rule("R54", "Set what pods request and may use", "medium", "CKV_K8S_10-13, kube-score container-resources")
def resources(graph: Graph) -> Iterator[Finding]:
    """CPU and memory requests, and a memory limit: a leak then kills its pod and not the node. A CPU limit is left to
    the author, because it throttles. The tests of our own charts check theirs."""
    for workload in pod_makers(graph):
        faults = [
            fault
            for path, each in workload.containers
            for fault in _resource_faults(f"{path}.resources", at(each, "resources"))
        ]
        yield from judged(workload.resource, faults, "has requests and a memory limit")
    for release in graph.of_type(RELEASE):
        if is_local(release) or chart_name(release) in DEFAULT_RESOURCES:
            continue
        stated = [
            (f"{path}.{key}", value)
            for path, each in walk(mapping(release.inputs.get("values")), "values")
            for key, value in each.items()
            if (key == "resources" or key.endswith(("_resources", "Resources"))) and not _is_of_no_container(value)
        ]
        faults = [] if stated else ["values has no resources, wanted requests and a memory limit"]
        faults += [fault for path, value in stated for fault in _resource_faults(path, value)]
        yield from judged(release, faults, "has requests and a memory limit")


@rule(
    "R55", "Grant named verbs on named resources", "high", "CKV_K8S_49, CKV_K8S_38, CKV_K8S_41, CKV_K8S_42, CIS 4.1.3-6"
)
def rbac(graph: Graph) -> Iterator[Finding]:
    """No star in a role, no binding to cluster-admin, and no API token in a pod that does not call the API: a
    service account mounts one only when a role is bound to it."""
    for role in graph.of_type(*RBAC_ROLES):
        faults = [
            f'rules[{index}].{key} has "*", wanted names'
            for index, each in enumerate(items(role.inputs.get("rules")))
            for key in ("verbs", "resources", "apiGroups")
            if "*" in items(at(each, key))
        ]
        yield from judged(role, faults, "names what it grants")
    bound = set()
    for binding in graph.of_type(CLUSTER_ROLE_BINDING, ROLE_BINDING):
        admin = at(binding.inputs, "roleRef.name") == "cluster-admin"
        faults = ["roleRef.name is cluster-admin, wanted a separate role"] if admin else []
        for subject in items(binding.inputs.get("subjects")):
            if at(subject, "kind") == "ServiceAccount":
                bound.add((text(at(subject, "namespace")) or namespace(binding), text(at(subject, "name"))))
            elif at(subject, "name") in ("system:anonymous", "system:unauthenticated", "system:authenticated"):
                faults.append(f"subjects has {show(at(subject, 'name'))}, wanted named users or groups")
        yield from judged(binding, faults, "binds named subjects")
    yield from _token_findings(graph, bound)


@rule("R56", "Deny traffic by default, allow it within a job", "medium", "CKV2_K8S_6, CIS 4.3.2, CIS 5.4.4")
def network_policies(graph: Graph) -> Iterator[Finding]:
    """Each team's namespace (of a TrainingNamespace, or one with a ResourceQuota) denies both directions by default and
    lets its own pods talk to each other. The VPC CNI enforces network policies only if its setting asks for it. EFA
    traffic bypasses them."""
    for each in graph.of_type(NAMESPACE):
        if is_tenant(graph, each):
            yield from judged(
                each, _policy_faults(graph.cluster_objects(each), object_name(each)), "denies by default, open within"
            )
    addons = graph.addons("vpc-cni")
    for addon in addons:
        configuration = document(addon.inputs.get("configurationValues"))
        on = true(at(configuration, "enableNetworkPolicy"))
        shown = show(at(configuration, "enableNetworkPolicy"))
        faults = [] if on else [f'configurationValues.enableNetworkPolicy is {shown}, wanted "true"']
        yield from judged(addon, faults, "enforces network policies")
    if not addons:
        for plane in graph.control_planes:
            yield broken(plane.resource.urn, "add-on vpc-cni is missing, wanted it with enableNetworkPolicy")


@rule(
    "R57",
    "Give pods AWS permissions by Pod Identity, one role each",
    "high",
    "CKV_AWS_60, CKV_AWS_61, CIS 5.2.1, EKS quota",
)
def pod_identity(graph: Graph) -> Iterator[Finding]:
    """One role for each controller, trusted to EKS' pod identity alone (AssumeRole and TagSession); at most 1000
    associations a cluster, which is EKS' quota. No role of the program trusts everybody."""
    users: dict[str, list[str]] = {}
    for association in graph.of_type(ASSOCIATION):
        roles = graph.refers(association, "roleArn", ROLE)
        faults = [fault for role in roles for fault in _trust_faults(role)]
        if not roles:
            found = show(association.inputs.get("roleArn"))
            faults.append(f"roleArn {found} is not a role of this program: whom it trusts is unseen")
        for role in roles:
            users.setdefault(role.urn, []).append(association.name)
        yield from judged(association, faults, "its role trusts Pod Identity alone")
    yield from _addon_identity_findings(graph, users)
    for urn, names in users.items():
        if len(names) > 1:
            yield broken(urn, f"one role for {', '.join(sorted(names))}, wanted a role each")
    for role in graph.of_type(ROLE):
        for statement in statements(role.inputs.get("assumeRolePolicy")) or ():
            if allows(statement) and any(who == "*" for _, who in principals(statement)):
                yield broken(role.urn, 'assumeRolePolicy.Principal is "*", wanted named principals')
    if (count := len(graph.of_type(ASSOCIATION))) > MOST_ASSOCIATIONS:
        yield broken(graph.stack_urn, f"{count} pod identity associations, wanted {MOST_ASSOCIATIONS} or fewer")


def _may_be_privileged(*names: str) -> bool:
    return any(allowed in name for name in names for allowed in PRIVILEGED) or any(
        ".npd." in f"{name}." for name in names
    )


def _privilege_faults(workload: PodMaker) -> Iterator[str]:
    if _may_be_privileged(object_name(workload.resource)):
        return
    for flag in ("hostPID", "hostIPC"):
        if true(at(workload.spec, flag)):
            yield f"{workload.path}.{flag} is true, wanted false"
    for path, container in workload.containers:
        if true(at(container, "securityContext.privileged")) and not _may_be_privileged(text(at(container, "name"))):
            yield f"{path}.securityContext.privileged is true, wanted false"
        added = {"ALL", "SYS_ADMIN"}.intersection(map(str, items(at(container, "securityContext.capabilities.add"))))
        if added:
            yield f"{path}.securityContext.capabilities.add has {', '.join(sorted(added))}, wanted neither"


def _image_faults(graph: Graph, path: str, image: Json) -> Iterator[str]:
    if not known(image):
        yield f"{path}.image is {show(image)}, wanted a pinned image"
        return
    name, _, digest = text(image).partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    if digest.startswith("sha256:"):
        return
    if not tag or FLOATING.fullmatch(tag):
        yield f"{path}.image is {show(image)}, wanted a tag that does not move"
    elif graph.production:
        yield f"{path}.image is {show(image)}, wanted a digest (@sha256:...) in production"


def _release_faults(release: Resource) -> Iterator[str]:
    version = release.inputs.get("version")
    if not is_local(release) and not EXACT.fullmatch(text(version)):
        yield f"version is {show(version)}, wanted an exact version"
    values = mapping(release.inputs.get("values"))
    for path, each in walk(values, "values"):
        for key, value in each.items():
            tagged = key in ("tag", "imageTag") or key.endswith(("image_tag_version", "ImageTag"))
            image = text(value).rpartition("/")[2].partition(":")[2] if key == "image" else ""
            if FLOATING.fullmatch(text(value) if tagged else image):
                yield f"{path}.{key} is {show(value)}, wanted a tag that does not move"
    if chart_name(release) == "volcano":
        tag = at(values, "basic.image_tag_version")
        if not given(tag):
            yield "values.basic.image_tag_version is unset, wanted the chart's version (its source says latest)"


def _is_of_no_container(resources: Json) -> bool:
    """Return whether these are the resources of a volume claim, which requests storage alone, or the kinds of a role,
    which are a list."""
    return set(mapping(at(resources, "requests"))) == {"storage"} or bool(items(resources))


def _resource_faults(path: str, value: Json) -> Iterator[str]:
    for below in ("requests.cpu", "requests.memory", "limits.memory"):
        if not given(at(value, below)):
            yield f"{path}.{below} is unset, wanted an amount"


def _token_findings(graph: Graph, bound: set[tuple[str, str]]) -> Iterator[Finding]:
    accounts = {}
    for account in graph.of_type("kubernetes:core/v1:ServiceAccount"):
        place = (namespace(account), object_name(account))
        off = account.inputs.get("automountServiceAccountToken") is False
        accounts[place] = off
        used = place in bound
        faults = [] if off or used else ["automountServiceAccountToken is not false and no role is bound, wanted false"]
        yield from judged(account, faults, "its token is mounted only where it is used")
    for workload in pod_makers(graph):
        name = text(at(workload.spec, "serviceAccountName")) or "default"
        place = (namespace(workload.resource), name)
        mounts = at(workload.spec, "automountServiceAccountToken")
        off = mounts is False or (mounts is None and accounts.get(place, False))
        path = f"{workload.path}.automountServiceAccountToken"
        faults = [] if off or place in bound else [f"{path} is {show(mounts)} and no role is bound, wanted false"]
        yield from judged(workload.resource, faults, "mounts no token it does not use")


def _policy_faults(graph: Graph, name: str) -> Iterator[str]:
    policies = [each for each in graph.of_type(NETWORK_POLICY) if namespace(each) == name]
    specs = [mapping(each.inputs.get("spec")) for each in policies]
    for direction in ("Ingress", "Egress"):
        if not any(
            direction in items(spec.get("policyTypes")) and _selects_all(spec.get("podSelector")) for spec in specs
        ):
            yield f"no NetworkPolicy of {name} selects all pods with policyTypes {direction}, wanted a default deny"
    for policy, spec in zip(policies, specs, strict=True):
        for key, peers in (("ingress", "from"), ("egress", "to")):
            for rule_ in items(spec.get(key)):
                open_ = not given(at(rule_, peers)) and not given(at(rule_, "ports"))
                if open_ and _selects_all(spec.get("podSelector")):
                    yield f"NetworkPolicy {policy.name}: spec.{key} allows everything for all pods, wanted named peers"
    let_in = [peer for spec in specs for rule_ in items(spec.get("ingress")) for peer in items(at(rule_, "from"))]
    if not any(at(each, "podSelector") is not None and at(each, "namespaceSelector") is None for each in let_in):
        yield f"no NetworkPolicy of {name} lets its own pods in (from podSelector), wanted one for the job's workers"


def _selects_all(selector: Json) -> bool:
    found = mapping(selector)
    return not given(found.get("matchLabels")) and not given(found.get("matchExpressions"))


def _trust_faults(role: Resource) -> Iterator[str]:
    policy = role.inputs.get("assumeRolePolicy")
    granted = statements(policy)
    if granted is None:
        yield f"assumeRolePolicy of {role.name} is {show(policy)}, wanted a readable document"
        return
    trusted = {who for each in granted if allows(each) for who in principals(each)}
    if trusted != {("Service", POD_PRINCIPAL)}:
        shown = ", ".join(sorted(who for _, who in trusted)) or "nobody"
        yield f"assumeRolePolicy of {role.name} trusts {shown}, wanted {POD_PRINCIPAL} alone"
    lacking = {"sts:AssumeRole", "sts:TagSession"} - {
        action for each in granted if allows(each) for action in actions(each)
    }
    if lacking:
        yield f"assumeRolePolicy.Statement[].Action of {role.name} lacks {', '.join(sorted(lacking))}"


def _addon_identity_findings(graph: Graph, users: dict[str, list[str]]) -> Iterator[Finding]:
    """Check that add-ons that call AWS have a role by Pod Identity, in the add-on or by a separate association."""
    stated = {
        (text(each.inputs.get("namespace")), text(each.inputs.get("serviceAccount")))
        for each in graph.of_type(ASSOCIATION)
    }
    identities = {name: record.identity for name, record in ADDONS.items() if record.identity is not None}
    for name, identity in identities.items():
        for addon in graph.addons(name):
            faults = []
            if given(addon.inputs.get("serviceAccountRoleArn")):
                faults.append("serviceAccountRoleArn is set, wanted podIdentityAssociations")
            pairs = items(addon.inputs.get("podIdentityAssociations"))
            if not pairs and (identity.namespace, identity.service_account) not in stated:
                faults.append("podIdentityAssociations is unset, wanted a separate role")
            for index, _ in enumerate(listed(pairs)):
                for role in graph.refers(addon, f"podIdentityAssociations[{index}].roleArn", ROLE):
                    users.setdefault(role.urn, []).append(addon.name)
                    faults += _trust_faults(role)
            yield from judged(addon, faults, "its role trusts Pod Identity alone")
