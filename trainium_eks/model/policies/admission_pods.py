"""Validations of pods, and of the templates that controllers make pods of, by the same expressions.

The expressions use variables that :func:`variables` defines: ``templates``, their ``specs`` and ``metadata``, and among
the specs ``naming`` (they name accelerators), ``accelerated`` (they request one or more) and ``plain`` (they do
neither).
"""

import json
from collections.abc import Iterator

from trainium_eks.model.policies import admission_baseline
from trainium_eks.model.policies.admission_baseline import CONTAINERS
from trainium_eks.model.policies.admission_terms import (
    Limits,
    Validation,
    Variable,
    entry,
    letters,
    names,
    others,
    text,
)
from trainium_eks.model.policies.admission_workloads import DEPLOYMENTS, JOBS, PODS, SCHEDULER, Workload

GROUP_ANNOTATION = "scheduling.k8s.io/group-name"
"""The PodGroup that a pod belongs to; Volcano's controllers set it on the pods of a job. The scheduler counts a pod
against a queue by this annotation alone, as long as the PodGroup is there."""

QUEUE_ANNOTATION = "scheduling.volcano.sh/queue-name"
"""The queue of the PodGroup that Volcano makes for a pod that has none."""

MIN_MEMBER_ANNOTATION = "scheduling.volcano.sh/group-min-member"
"""The size of the PodGroup that Volcano makes for the pods of an object with this annotation. Its controller adds up
the pods' resources in a loop of that length, so ``2000000000`` occupies one of its threads for hours (1.15,
``CalTaskRequests``)."""

PREEMPTABLE = "volcano.sh/preemptable"
"""Annotation or label that allows ``reclaim`` to end a pod; allowed where it is unset."""

KEPT_ON_NODE = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true", "karpenter.sh/do-not-disrupt": "false"}
"""Annotations by which a pod keeps autoscalers from moving it, and the value that has no effect (Cluster Autoscaler's
FAQ; Karpenter, disruption). Until the pod ends, its node is neither removed nor renewed."""

ACCELERATOR_PREFIXES = ("aws.amazon.com/neuron", "nvidia.com/", "vpc.amazonaws.com/efa")
"""Prefixes of the scarce resources that queues count: devices, cores and slices of them, and EFA. The taints of their
nodes have the same names."""

DEVICE_VARIABLES = ("NVIDIA_VISIBLE_DEVICES", "AWS_NEURON_VISIBLE_DEVICES")
"""Environment variables by which a container gets devices that it was not allotted: a container's own value wins over
the device plugin's, and container runtime hooks of NVIDIA and Neuron apply it."""

NO_DEVICES = ("", "none", "void")
"""Values of those variables that show a container no more than it was allotted."""

RESERVED_TAINTS = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "node-role.kubernetes.io/",
    "karpenter.sh/",
    "karpenter.k8s.aws/",
    "eks.amazonaws.com/",
    "ebs.csi.aws.com/",
    "fsx.csi.aws.com/",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
    "CriticalAddonsOnly",
    "trainium-eks/",
)
"""Prefixes of the keys of taints by which Kubernetes, autoscalers and drivers keep pods off a node that is starting,
failing, being drained or reserved for add-ons."""

LOST_NODE_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""Keys that every pod tolerates for some time, with the effect NoExecute: the API server adds the tolerations
(``DefaultTolerationSeconds``)."""

VOLUMES = (
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
)
"""The volumes of the restricted level of Pod Security, and images. The baseline level allows all but host paths: also
any EBS volume of the account by its id (``awsElasticBlockStore``), and any NFS server, mounted by the node."""

CLAIM_DRIVERS = ("ebs.csi.aws.com", "efs.csi.aws.com", "fsx.csi.aws.com", "s3.csi.aws.com")
"""Drivers of AWS with volumes that must be claimed. None mounts an inline ``csi`` volume (their CSIDriver objects have
no lifecycle mode Ephemeral), which the kubelet finds out when the pod is on its node."""

MOST_GRACE_SECONDS = 3600
"""The longest time that pods may take to end. Until then their node and their share of a quota stay occupied: a node
that is drained waits for them."""

MOST = {
    "containers": 16,
    "volumes": 32,
    "resources": 16,
    "tolerations": 32,
    "terms": 8,
    "expressions": 16,
    "values": 64,
}
"""The most of each that a pod may have. Volcano's controllers and both schedulers go through these for every pod of a
job, some of them for every node as well."""

LEAST_LETTERS, MOST_LETTERS, ALL_LETTERS = 16 * 1024, 32 * 1024, 4 * 1024**2
"""Bounds of a pod's template, in letters of JSON, and of the templates of all pods of a namespace. etcd keeps some six
versions of each pod for five minutes, so texts of 1 MB in each of 132 pods stop it (decision 96)."""

OBJECT_LETTERS = 16 * MOST_LETTERS
"""Bound of an object that leads to pods. Controllers write it whole, with its state, for each of its pods."""

_SCARCE = " || ".join(f"name.startsWith({json.dumps(prefix)})" for prefix in ACCELERATOR_PREFIXES)
"""Expression over a resource's ``name``."""


def variables(workload: Workload) -> tuple[Variable, ...]:
    """Return the variables over the templates of a kind."""
    naming = _has_resource(_SCARCE)
    # The amounts in a job's template may be numbers.
    asking = _has_resource(_SCARCE, 'quantity(string(AMOUNTS[name])).isGreaterThan(quantity("0"))')
    return (
        *workload.variables,
        Variable("templates", workload.templates),
        Variable("specs", "variables.templates.filter(one, has(one.spec)).map(one, one.spec)"),
        Variable("metadata", "variables.templates.filter(one, has(one.metadata)).map(one, one.metadata)"),
        Variable("scheduler", workload.scheduler),
        Variable("naming", f"variables.specs.filter(spec, {naming})"),
        Variable("accelerated", f"variables.naming.filter(spec, {asking})"),
        Variable("plain", f"variables.specs.filter(spec, !({naming}))"),
    )


def validations(workload: Workload, limits: Limits) -> Iterator[Validation]:
    """Yield the validations for the pods of a kind."""
    if not workload.is_partial:
        yield from _devices()
        yield from _kept_on_node()
        if not workload.groups_pods:
            yield _queued(limits)
    yield _tolerations()
    yield from _place(workload, limits)
    yield from _volumes(limits)
    yield from _metadata(workload, limits)
    if workload is not PODS:
        yield from admission_baseline.validations()
    if workload not in (PODS, JOBS, DEPLOYMENTS):
        yield _makeable()
    yield _grace()
    yield _amounts()
    yield from _size(workload, limits)


def claim_is_own(claim: str, limits: Limits) -> str:
    """Return the expression for whether a claim that a controller makes for the team uses no existing volume and no
    closed storage class."""
    return (
        f"{text(claim, 'volumeName')} == '' && "
        f"!({text(claim, 'storageClassName')} in {names(limits.closed_storage_classes)})"
    )


def claim_message(what: str, limits: Limits) -> str:
    """Return the message for a refused claim."""
    closed = " or ".join(limits.closed_storage_classes)
    also = f", nor be of the storage class {closed}, of which the quota allows none" if closed else ""
    return f"{what} must not name an existing volume{also}: mount the namespace's own claim"


def priority_message(field: str, limits: Limits) -> str:
    """Return the message for a refused priority class of a field."""
    allowed = ", ".join(limits.priority_classes)
    return (
        f"{field} must be one of this namespace's: {allowed}" if allowed else f"{field} must be unset in this namespace"
    )


def _has_resource(name_condition: str, amount_condition: str = "true") -> str:
    """Return the expression for whether a ``spec`` has a container with such a resource, by its ``name`` and its
    amount, ``AMOUNTS[name]``."""
    found = " || ".join(
        f"(has({amounts}) && {amounts}.exists(name, ({name_condition}) && {amount_condition}))".replace(
            "AMOUNTS", amounts
        )
        for amounts in ("container.resources.limits", "container.resources.requests")
    )
    return f"{CONTAINERS}.exists(container, has(container.resources) && ({found}))"


def _scheduler_of(spec: str) -> str:
    return f'(has({spec}.schedulerName) && {spec}.schedulerName != "" ? {spec}.schedulerName : variables.scheduler)'


def _devices() -> Iterator[Validation]:
    """Yield the validations that accelerators are requested through Volcano, in amounts that queues count, and in no
    other way."""
    hidden = f"variable.name in {names(DEVICE_VARIABLES)}"
    harmless = f"has(variable.value) && variable.value in {names(NO_DEVICES)}"
    environment = f"!has(container.env) || container.env.all(variable, !({hidden}) || ({harmless}))"
    keys = " || ".join(f"toleration.key.startsWith({json.dumps(prefix)})" for prefix in ACCELERATOR_PREFIXES)
    yield Validation(
        f'variables.accelerated.all(spec, {_scheduler_of("spec")} == "{SCHEDULER}")',
        f"a pod with accelerators must be scheduled by Volcano: schedulerName {SCHEDULER}",
    )
    # The API server lets a pod that names the resource onto the tainted nodes whatever the amount.
    yield Validation(
        "size(variables.naming) == size(variables.accelerated)",
        "a pod must not ask for 0 accelerators: leave the resource out, or ask for 1 or more",
    )
    yield Validation(
        "variables.plain.all(spec, !has(spec.tolerations) || "
        f"!spec.tolerations.exists(toleration, has(toleration.key) && ({keys})))",
        "a pod without accelerators must not tolerate the taints of accelerator nodes: remove the toleration",
    )
    yield Validation(
        "variables.specs.all(spec, !has(spec.resourceClaims) || size(spec.resourceClaims) == 0)",
        "a pod must not claim devices by resourceClaims, which queues do not count: ask for them in resources",
    )
    yield Validation(
        f"variables.specs.all(spec, {CONTAINERS}.all(container, {environment}))",
        f"a container must not set {' or '.join(DEVICE_VARIABLES)}: its devices come from resources",
    )


def _kept_on_node() -> Iterator[Validation]:
    """Yield the validations of annotations that keep a pod on its node, allowed to gangs alone: a gang that loses one
    pod starts anew."""
    for key, harmless in KEPT_ON_NODE.items():
        moved = entry("one.metadata", "annotations", key)
        grouped = (
            f"size({entry('one.metadata', 'annotations', GROUP_ANNOTATION)}) > 0 && "
            f'{_scheduler_of("one.spec")} == "{SCHEDULER}"'
        )
        yield Validation(
            "size(variables.accelerated) > 0 || variables.templates.all(one, !has(one.metadata) || "
            f"{moved}.all(value, value == {json.dumps(harmless)}) || ({grouped}))",
            f"a pod without accelerators must not keep its node from being removed or renewed: leave out the "
            f"annotation {key}",
        )


def _queued(limits: Limits) -> Validation:
    allowed = ", ".join(limits.queues)
    keys = [entry("one.metadata", "annotations", key) for key in (GROUP_ANNOTATION, QUEUE_ANNOTATION)]
    return Validation(
        f'variables.templates.all(one, {_scheduler_of("one.spec")} != "{SCHEDULER}" || '
        f"(has(one.metadata) && size({' + '.join(keys)}) > 0))",
        f"a pod that Volcano schedules outside a job must name its queue: annotation {QUEUE_ANNOTATION}, "
        f"one of {allowed}",
    )


def _tolerations() -> Validation:
    reserved = " || ".join(f"toleration.key.startsWith({json.dumps(prefix)})" for prefix in RESERVED_TAINTS)
    added = f'toleration.key in {names(LOST_NODE_TAINTS)} && has(toleration.effect) && toleration.effect == "NoExecute"'
    return Validation(
        "variables.specs.all(spec, !has(spec.tolerations) || !spec.tolerations.exists(toleration, "
        f'!has(toleration.key) || toleration.key == "" || (({reserved}) && !({added}))))',
        "a pod must not tolerate all taints, nor those of nodes that start, fail or are drained: tolerations must each "
        f"name a key, and none that begins with {', '.join(RESERVED_TAINTS)}",
    )


def _place(workload: Workload, limits: Limits) -> Iterator[Validation]:
    """Yield the validations of a pod's node, priority and affinity."""
    # A pod that names its node is taken by the kubelet without any scheduler. Schedulers bind by another request.
    bound = 'request.operation == "UPDATE" || ' if workload is PODS else ""
    yield Validation(
        f'{bound}variables.specs.all(spec, !has(spec.nodeName) || spec.nodeName == "")',
        "a pod must not name its node: nodeName bypasses every scheduler and queue; use nodeSelector",
    )
    # A pod of a higher priority ends others, of any namespace, to make room for itself.
    yield Validation(
        'variables.specs.all(spec, !has(spec.priorityClassName) || spec.priorityClassName == "" || '
        f"spec.priorityClassName in {names(limits.priority_classes)})",
        priority_message("priorityClassName", limits),
    )
    # Schedulers keep a new pod off every node, or zone, with a pod that must not be beside it.
    own = "(!has(term.namespaces) || size(term.namespaces) == 0) && !has(term.namespaceSelector)"
    yield Validation(
        f"variables.specs.all(spec, {_affinity_terms('podAffinity', 'podAntiAffinity')}.all(term, {own}))",
        "podAffinity and podAntiAffinity must look at pods of this namespace alone, for they keep other teams' pods "
        "away as well: leave out namespaces and namespaceSelector",
    )


def _affinity_terms(*kinds: str) -> str:
    """Return a list of all terms of a pod's affinity, required and preferred, as an expression over ``spec``. Required
    terms of ``nodeAffinity`` are in a nested selector."""
    found = []
    for kind in kinds:
        here = f"spec.affinity.{kind}"
        there = f"has(spec.affinity) && has({here})"
        required, preferred = (
            f"{here}.{mode}DuringSchedulingIgnoredDuringExecution" for mode in ("required", "preferred")
        )
        terms, term = ("nodeSelectorTerms", "preference") if kind == "nodeAffinity" else ("", "podAffinityTerm")
        found.append(f"({there} && has({required}) ? {required}{terms and f'.{terms}'} : [])")
        found.append(f"({there} && has({preferred}) ? {preferred}.map(each, each.{term}) : [])")
    return f"({' + '.join(found)})"


def _volumes(limits: Limits) -> Iterator[Validation]:
    """Yield the validations of volumes: allowed kinds, and claims of the team within its quota."""
    every = "variables.specs.all(spec, !has(spec.volumes) || spec.volumes.all(volume, {}))"
    template = "volume.ephemeral.volumeClaimTemplate.spec"
    yield Validation(
        every.format(" || ".join(f"has(volume.{kind})" for kind in VOLUMES)),
        f"volumes must be of these kinds: {', '.join(VOLUMES)}",
    )
    yield Validation(
        every.format(f"!has(volume.csi) || !(volume.csi.driver in {names(CLAIM_DRIVERS)})"),
        f"volumes of {', '.join(CLAIM_DRIVERS)} must be claimed (persistentVolumeClaim), not inline",
    )
    yield Validation(
        every.format(f"!has(volume.ephemeral) || ({claim_is_own(template, limits)})"),
        claim_message("an ephemeral volume", limits),
    )


def _metadata(workload: Workload, limits: Limits) -> Iterator[Validation]:
    """Yield the validations of annotations and labels with Volcano's instructions, on the object and on its pods."""
    every = "([object.metadata] + variables.metadata).all(one, {})"
    values = entry("one", "annotations", PREEMPTABLE), entry("one", "labels", PREEMPTABLE)
    yield Validation(
        every.format(f'({" + ".join(values)}).all(value, value == "true")'),
        f"{PREEMPTABLE} must be true or left out: a queue takes back by it what others have borrowed",
    )
    yield Validation(
        every.format(f"{entry('one', 'annotations', QUEUE_ANNOTATION)}.all(value, value in {names(limits.queues)})"),
        f"annotation {QUEUE_ANNOTATION} must be one of this namespace's queues: {', '.join(limits.queues)}",
    )
    size = f'value.matches("^[0-9]{{1,6}}$") && int(value) <= {limits.pods}'
    yield Validation(
        every.format(f"{entry('one', 'annotations', MIN_MEMBER_ANNOTATION)}.all(value, {size})"),
        f"annotation {MIN_MEMBER_ANNOTATION} must be a number of pods up to {limits.pods}, the pods of this "
        "namespace's resourceQuota",
    )
    joined = entry("one", "annotations", GROUP_ANNOTATION)
    known = f'{others(limits)} || request.operation == "UPDATE" || ' if workload is PODS else f"{others(limits)} || "
    yield Validation(
        f"{known}variables.metadata.all(one, size({joined}) == 0)",
        f"annotation {GROUP_ANNOTATION} is set by controllers: a pod in a group of its own choice is counted by no "
        f"queue once that group is gone; name a queue by {QUEUE_ANNOTATION}",
    )
    if workload is not PODS:
        yield Validation(
            "variables.metadata.all(one, !has(one.finalizers) || size(one.finalizers) == 0)",
            "the template of a pod must have no finalizers: nobody would remove them, and the pod would stay",
        )


def _grace() -> Validation:
    field = "terminationGracePeriodSeconds"
    return Validation(
        f"variables.specs.all(spec, !has(spec.{field}) || spec.{field} <= {MOST_GRACE_SECONDS})",
        f"{field} must be at most {MOST_GRACE_SECONDS}: a node that is drained waits so long for the pod",
    )


def _amounts() -> Validation:
    """Return the validation of amounts that Volcano's scheduler can add and subtract: it counts in floating point, in
    thousandths of all but memory, and ends with a panic where a difference is negative (1.15, ``Resource.Sub``)."""
    amount = "quantity(string(AMOUNTS[name]))"
    most = 'quantity(name == "memory" ? "32Ti" : "4Ti")'
    exact = f"{amount}.isInteger() && {amount}.asInteger() % 64 == 0 && !{amount}.isGreaterThan({most})"
    small = f'!{amount}.isGreaterThan(quantity("100M"))'

    def within(resources: str) -> str:
        maps = (f"{resources}.limits", f"{resources}.requests")
        each = (f"(!has({one}) || {one}.all(name, {small} || ({exact})))".replace("AMOUNTS", one) for one in maps)
        return " && ".join(each)

    return Validation(
        f"variables.specs.all(spec, (!has(spec.resources) || ({within('spec.resources')})) && "
        f"{CONTAINERS}.all(container, !has(container.resources) || ({within('container.resources')})))",
        "amounts of resources must be at most 32Ti of memory and 4Ti of anything else, and above 100M a multiple of 64 "
        "(write Mi or Gi)",
    )


def _makeable() -> Validation:
    """Return the validation of fields that Volcano's webhook does not validate as the API server does (1.15 and 1.35):
    ``ValidatePodTemplate`` without the options of ``GetValidationOptionsFromPodSpecAndMeta``, without the API server's
    additions to affinity and requests, and without the fields that 1.34 drops.

    Kubernetes' own kinds are left out: their controllers make one refused pod at a time, ever more slowly.
    """
    stated = " || ".join(
        f"(has(container.resources.{kind}) && name in container.resources.{kind})" for kind in ("requests", "limits")
    )
    variable = "has(one.valueFrom) && has(one.valueFrom.fileKeyRef)"
    terms = _affinity_terms("podAffinity", "podAntiAffinity")
    return Validation(
        f"variables.specs.all(spec, {CONTAINERS}.all(container, !has(container.restartPolicyRules) && "
        '(!has(container.image) || container.image.matches("^[!-~]*$")) && '
        f"(!has(container.env) || !container.env.exists(one, {variable})) && (!has(spec.resources) || "
        f'(has(container.resources) && ["cpu", "memory"].all(name, {stated})))) && '
        "(!has(spec.volumes) || spec.volumes.all(volume, !has(volume.image) || "
        f"{text('volume.image', 'reference')} != '')) && "
        "(!has(spec.topologySpreadConstraints) || !spec.topologySpreadConstraints.exists(one, has(one.matchLabelKeys)))"
        f" && {terms}.all(term, !has(term.matchLabelKeys) && !has(term.mismatchLabelKeys)) && "
        "(!has(spec.securityContext) || "
        f"{text('spec.securityContext', 'seLinuxChangePolicy')} in ['', 'Recursive']))",
        "the API server would refuse the pods again and again: leave out restartPolicyRules, fileKeyRef, "
        "matchLabelKeys, mismatchLabelKeys and seLinuxChangePolicy, write images without spaces, name the reference of "
        "an image volume, and beside the resources of a pod state cpu and memory of each container",
    )


def _size(workload: Workload, limits: Limits) -> Iterator[Validation]:
    """Yield bounds of numbers by which the work of controllers and schedulers grows for each pod, and for each node.

    Pods that controllers make were judged as templates, before Volcano's plugins and the API server added to them.
    """
    known = f"{others(limits)} || " if workload is PODS else ""
    most = min(MOST_LETTERS, max(LEAST_LETTERS, ALL_LETTERS // max(limits.pods, 1)))
    yield Validation(
        f"{known}variables.templates.all(one, {letters('one')} <= {most})",
        f"a pod with all its variables, arguments, annotations and labels must have at most {most} letters: put large "
        "texts into a ConfigMap, and mount it",
    )
    if workload is not PODS:
        annotations = "[object.metadata].filter(one, has(one.annotations)).map(one, one.annotations)"
        yield Validation(
            f"{letters('object.spec')} <= {OBJECT_LETTERS} && {letters(annotations)} <= 2 * {most}",
            f"spec must have at most {OBJECT_LETTERS} letters, and metadata.annotations {2 * most}: use one task with "
            "more replicas, and put large texts into a ConfigMap",
        )
    containers = f"size({CONTAINERS}) <= {MOST['containers']}"
    amounts = " && ".join(
        f"(!has(container.resources.{kind}) || size(container.resources.{kind}) <= {MOST['resources']})"
        for kind in ("limits", "requests")
    )
    resources = f"{CONTAINERS}.all(container, !has(container.resources) || ({amounts}))"
    lists = " && ".join(
        f"(!has(spec.{field}) || size(spec.{field}) <= {most})"
        for field, most in (
            ("volumes", MOST["volumes"]),
            ("tolerations", MOST["tolerations"]),
            ("topologySpreadConstraints", MOST["terms"]),
        )
    )
    yield Validation(
        f"{known}variables.specs.all(spec, {containers} && {lists} && {resources})",
        f"a pod must have at most {MOST['containers']} containers, {MOST['volumes']} volumes, {MOST['tolerations']} "
        f"tolerations, {MOST['terms']} topologySpreadConstraints, and {MOST['resources']} resources a container",
    )
    of_nodes, of_pods = _affinity_terms("nodeAffinity"), _affinity_terms("podAffinity", "podAntiAffinity")
    expressions = " && ".join(
        f"(!has(term.{field}) || (size(term.{field}) <= {MOST['expressions']} && "
        f"term.{field}.all(one, !has(one.values) || size(one.values) <= {MOST['values']})))"
        for field in ("matchExpressions", "matchFields")
    )
    selector = (
        "!has(term.labelSelector) || !has(term.labelSelector.matchExpressions) || "
        f"(size(term.labelSelector.matchExpressions) <= {MOST['expressions']} && term.labelSelector.matchExpressions"
        f".all(one, !has(one.values) || size(one.values) <= {MOST['values']}))"
    )
    yield Validation(
        f"{known}variables.specs.all(spec, size({of_nodes}) <= {MOST['terms']} && "
        f"{of_nodes}.all(term, {expressions}) && "
        f"size({of_pods}) <= {MOST['terms']} && {of_pods}.all(term, {selector}))",
        f"affinity must have at most {MOST['terms']} terms for nodes and as many for pods, each of at most "
        f"{MOST['expressions']} expressions of {MOST['values']} values",
    )
