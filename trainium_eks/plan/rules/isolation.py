"""R70, R71, R78: each Kubernetes object once, and teams that cannot reach each other's share.

An independent check: the fields and kinds that policies must check stand here by name, and are not read from the model
that writes the policies.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from trainium_eks.model.finding import Finding
from trainium_eks.plan.graph import Graph, Resource
from trainium_eks.plan.reading import Json, at, given, items, mapping, show, text, true
from trainium_eks.plan.rules._objects import NAMESPACE, is_tenant, namespace, object_name
from trainium_eks.plan.rules._rule import judged, rule
from trainium_eks.plan.subjects import RELEASE

POLICY = "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicy"
POLICY_BINDING = "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicyBinding"
QUOTA = "kubernetes:core/v1:ResourceQuota"
ROLE = "kubernetes:rbac.authorization.k8s.io/v1:Role"
ROLE_BINDING = "kubernetes:rbac.authorization.k8s.io/v1:RoleBinding"
PRIORITY_CLASS = "kubernetes:scheduling.k8s.io/v1:PriorityClass"
STORAGE_CLASS = "kubernetes:storage.k8s.io/v1:StorageClass"
FSX_DRIVER = "fsx.csi.aws.com"

POD_FIELDS = ("schedulerName", "nodeName", "tolerations", "priorityClassName", "resourceClaims", "volumes", "ephemeral")
JUDGED: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("", "pods"): POD_FIELDS,
    ("batch.volcano.sh", "jobs"): (*POD_FIELDS, "object.spec.queue", "volumeClaim"),
    ("scheduling.volcano.sh", "podgroups"): ("queue", "priorityClassName"),
    ("bus.volcano.sh", "commands"): ("target",),
}
"""API group and resource to the fields by which one team gets another team's share."""
SUBMITTED: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("batch", "jobs"): (*POD_FIELDS, "parallelism"),
    ("batch", "cronjobs"): (*POD_FIELDS, "parallelism"),
    ("apps", "deployments"): (*POD_FIELDS, "replicas"),
    ("batch.volcano.sh", "cronjobs"): (*POD_FIELDS, "queue"),
    ("flow.volcano.sh", "jobflows"): ("flows",),
    ("kubeflow.org", "pytorchjobs"): (*POD_FIELDS, "queue"),
    ("trainer.kubeflow.org", "trainjobs"): ("nodeName", "tolerations", "priorityClassName", "volumes", "ephemeral"),
    ("trainer.kubeflow.org", "trainingruntimes"): (*POD_FIELDS, "podGroupPolicy"),
    ("*", "*/scale"): ("replicas",),
    ("", "services"): ("externalIPs",),
}
"""The same for the other objects of a team. The pods of workloads are checked in any case, but only their controller
would see a refusal; one request of a flow or of a scale leads to any number of pods, and a Service has none."""
DELETED: Mapping[tuple[str, str], tuple[str, ...]] = {("", "pods"): ("gracePeriodSeconds",)}
"""API group and resource to the options of a deletion by which a pod outlives its node's drain."""
HELD_BY = ("finalizers", "ownerReferences", "annotations", "labels")
"""The metadata by which a writer of an object keeps it, or its namespace, from being deleted, or takes a running pod
out of its queue's account."""

ON_EVERY_CREATION = 'request.operation == "CREATE" || '
"""Prefix of a policy's condition that leaves out updates alone."""

OUT_OF_HAND = (
    "persistentvolumeclaims",
    "podgroups",
    "queues",
    "resourcequotas",
    "limitranges",
    "resourceclaims",
    "resourceclaimtemplates",
    "networkpolicies",
    "roles",
    "rolebindings",
    "bindings",
    "pods/binding",
    "pods/ephemeralcontainers",
    "pods/resize",
    "pods/status",
)
"""Resources that a team's role must not write: each bypasses the policies or the quota."""
CHANGING = ("create", "update", "patch", "*")
WRITING = (*CHANGING, "delete", "deletecollection")
BOUNDED = ("pods", "requests.cpu", "requests.memory", "requests.storage")


@rule("R70", "Make each Kubernetes object once", "high", "own")
def one_object(graph: Graph) -> Iterator[Finding]:
    """Two resources that are one object (the same cluster, API group, kind, namespace and name) overwrite each other,
    and deleting one deletes the other's object too. A Helm release is identified by its namespace and name."""
    first: dict[tuple[str, ...], Resource] = {}
    for resource in graph.resources:
        identity = _identity(resource)
        if identity is None:
            continue
        other = first.setdefault(identity, resource)
        _, _, kind, home, name = identity
        faults = [] if other is resource else [f"{kind} {home}/{name} is {other.name} already, wanted another name"]
        yield from judged(resource, faults, "the only one of its name")


@rule("R71", "Keep teams out of each other's share", "high", "own, PSS", follows_ids=True)
def teams_apart(graph: Graph) -> Iterator[Finding]:
    """In a team's namespace (of a TrainingNamespace, or with a ResourceQuota) admission policies check pods, Volcano's
    jobs, PodGroups and commands, on creation and on update, and refuse objects that they cannot evaluate. No role is
    bound before they exist, and no role may write objects that bypass them. The quota limits pods, CPU, memory,
    storage, and file systems made for claims. The stack's priority classes preempt nothing. Independent of
    `model/policies/admission.py`, which writes the policies."""
    for home in graph.of_type(NAMESPACE):
        if is_tenant(graph, home):
            name, own = object_name(home), graph.cluster_objects(home)
            faults = [*_policy_faults(own, name), *_quota_faults(own, name), *_role_faults(own, name)]
            yield from judged(home, faults, "judged by admission, bounded by its quota")
    for each in graph.of_type(PRIORITY_CLASS):
        faults = []
        if each.inputs.get("preemptionPolicy") != "Never":
            faults.append(f"preemptionPolicy is {show(each.inputs.get('preemptionPolicy'))}, wanted Never")
        if true(each.inputs.get("globalDefault")):
            faults.append("globalDefault is true, wanted false: it would apply to every pod, system pods included")
        yield from judged(each, faults, "preempts nothing")


@rule("R78", "Judge all that a team submits, without exceptions", "high", "own, CVE-2020-8554", follows_ids=True)
def submissions(graph: Graph) -> Iterator[Finding]:
    """In a team's namespace admission policies also check all other kinds that lead to pods, changes of a number of
    pods, and Services: the pods themselves are checked anyway (R71), but the author would not see the refusal; a
    Service with external addresses takes the traffic of other namespaces. They check the metadata of each kind that a
    role of the namespace may write, and the time that a deleted pod may stay: with either an object outlives its
    namespace or its node. Every policy there refuses something, and none has a condition by which a creation passes
    unchecked."""
    for home in graph.of_type(NAMESPACE):
        if is_tenant(graph, home):
            name, own = object_name(home), graph.cluster_objects(home)
            guards = tuple(_guards(own, name))
            faults = [
                *_unjudged(guards, name, SUBMITTED),
                *_unjudged(guards, name, dict.fromkeys(_written(own, name), HELD_BY)),
                *_unjudged(guards, name, DELETED, ("DELETE",)),
                *_loose(guards),
            ]
            yield from judged(home, faults, "all that is submitted is judged")


def _identity(resource: Resource) -> tuple[str, ...] | None:
    """Return cluster, API group, kind, namespace and name; None for no object, or one with a name that Pulumi makes."""
    if resource.type == RELEASE:
        name = text(resource.inputs.get("name"))
        return (resource.provider, "helm", "Release", namespace(resource), name) if name else None
    name = text(at(resource.inputs, "metadata.name"))
    package, _, rest = resource.type.partition(":")
    version, _, kind = rest.partition(":")
    if package != "kubernetes" or not resource.custom or kind.endswith("Patch") or not name:
        return None
    group = version.rpartition("/")[0]
    return (resource.provider, group, kind, text(at(resource.inputs, "metadata.namespace")), name)


def _guards(graph: Graph, home: str) -> Iterator[tuple[Resource, Resource]]:
    """Yield the bindings in force in a namespace, each with its policy."""
    policies = {object_name(each): each for each in graph.of_type(POLICY)}
    for binding in graph.of_type(POLICY_BINDING):
        spec = mapping(binding.inputs.get("spec"))
        policy = policies.get(text(spec.get("policyName")))
        selector = mapping(at(spec, "matchResources.namespaceSelector"))
        labels = mapping(selector.get("matchLabels"))
        here = not given(selector.get("matchExpressions")) and labels in ({}, {"kubernetes.io/metadata.name": home})
        narrowed = any(
            given(at(spec, f"matchResources.{key}"))
            for key in ("objectSelector", "resourceRules", "excludeResourceRules")
        )
        if policy is not None and here and not narrowed and "Deny" in items(spec.get("validationActions")):
            yield binding, policy


def _policy_faults(graph: Graph, home: str) -> Iterator[str]:
    guards = tuple(_guards(graph, home))
    yield from _unjudged(guards, home, JUDGED)
    for binding in graph.of_type(ROLE_BINDING):
        if namespace(binding) == home:
            early = [guard.name for guard, _ in guards if guard.urn not in graph.upstream(binding)]
            if early:
                yield f"RoleBinding {binding.name} does not wait for {', '.join(sorted(early))}, wanted it to"


def _written(graph: Graph, home: str) -> Iterator[tuple[str, str]]:
    """Yield API group and resource of the objects that a role of a namespace allows to create or change."""
    for role in graph.of_type(ROLE):
        for each in items(role.inputs.get("rules")) if namespace(role) == home else ():
            if any(verb in CHANGING for verb in items(at(each, "verbs"))):
                kinds = product(items(at(each, "apiGroups")), items(at(each, "resources")))
                yield from ((str(group), str(name)) for group, name in kinds if "/" not in str(name))


def _unjudged(
    guards: Sequence[tuple[Resource, Resource]],
    home: str,
    wanted: Mapping[tuple[str, str], tuple[str, ...]],
    operations: Sequence[str] = ("CREATE", "UPDATE"),
) -> Iterator[str]:
    """Yield a fault for each resource, or its fields, that no policy checks."""
    for (group, resource), fields in wanted.items():
        policies = [policy for _, policy in guards if _covers(policy, group, resource, operations)]
        said = " ".join(
            text(at(each, "expression"))
            for policy in policies
            for key in ("variables", "validations")
            for each in items(at(policy.inputs, f"spec.{key}"))
        )
        lacking = [field for field in fields if field not in said]
        if not policies:
            where = f"{resource}.{group}" if group not in ("", "*") else resource
            asked = " and ".join(operations)
            yield f"no admission policy in {home} denies {asked} of {where}, wanted one with failurePolicy Fail"
        elif lacking:
            yield f"no admission policy in {home} judges {', '.join(lacking)} of {resource}, wanted them judged"


def _loose(guards: Sequence[tuple[Resource, Resource]]) -> Iterator[str]:
    for _, policy in guards:
        for index, each in enumerate(items(at(policy.inputs, "spec.matchConditions"))):
            expression = text(at(each, "expression"))
            if not expression.startswith(ON_EVERY_CREATION):
                yield (
                    f"{policy.name}: spec.matchConditions[{index}] is {show(expression)}, "
                    f"wanted {ON_EVERY_CREATION}..., so that every creation is judged"
                )
        expressions = [text(at(each, "expression")) for each in items(at(policy.inputs, "spec.validations"))]
        if all(expression.strip() in ("", "true") for expression in expressions):
            yield f"{policy.name}: spec.validations refuses nothing, wanted an expression that can be false"


def _covers(policy: Resource, group: str, resource: str, operations: Sequence[str]) -> bool:
    spec = mapping(policy.inputs.get("spec"))
    constraints = mapping(spec.get("matchConstraints"))
    if spec.get("failurePolicy", "Fail") != "Fail" or given(constraints.get("excludeResourceRules")):
        return False
    if given(constraints.get("objectSelector")) or given(constraints.get("namespaceSelector")):
        return False
    return any(
        _has(each, "apiGroups", group)
        and _has(each, "resources", resource)
        and all(_has(each, "operations", operation) for operation in operations)
        and not given(at(each, "resourceNames"))
        for each in items(constraints.get("resourceRules"))
    )


def _has(rule_: Json, key: str, wanted: str) -> bool:
    return bool({wanted, "*"} & set(map(str, items(at(rule_, key)))))


def _quota_faults(graph: Graph, home: str) -> Iterator[str]:
    hard: dict[str, Json] = {}
    for quota in graph.of_type(QUOTA):
        if namespace(quota) == home and not given(at(quota.inputs, "spec.scopes")):
            hard |= mapping(at(quota.inputs, "spec.hard"))
    lacking = [name for name in BOUNDED if name not in hard]
    lacking += [
        f"{object_name(each)}.storageclass.storage.k8s.io/persistentvolumeclaims"
        for each in graph.of_type(STORAGE_CLASS)
        if each.inputs.get("provisioner") == FSX_DRIVER
    ]
    lacking = [name for name in lacking if name not in hard]
    if lacking:
        yield f"no ResourceQuota of {home} bounds {', '.join(lacking)}, wanted it bounded"


def _role_faults(graph: Graph, home: str) -> Iterator[str]:
    for role in graph.of_type(ROLE):
        if namespace(role) != home:
            continue
        for index, each in enumerate(items(role.inputs.get("rules"))):
            if any(verb in WRITING for verb in items(at(each, "verbs"))):
                written = [str(name) for name in items(at(each, "resources")) if name in OUT_OF_HAND]
                if written:
                    yield f"Role {role.name}: rules[{index}] writes {', '.join(written)}, wanted reading alone"
