"""What a team's namespace may ask of the cluster, as CEL for Kubernetes' ValidatingAdmissionPolicy.

Volcano does not ask who submits to a queue, Kubernetes' own scheduler knows no queue at all, and a quota counts what is
used but not where. So the API server keeps a namespace to its queues, its priorities and its volumes, and keeps nodes
with accelerators to pods that asked Volcano for some. Pure functions: the policies are data here, and
:mod:`components.training_namespace` puts them into objects.

Pods are judged as they are made, whoever makes them. A refusal there is seen only in the controller's events, so the
templates of jobs are judged by the same expressions when they are submitted.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SCHEDULER = "volcano"
"""Name of Volcano's scheduler."""

DEFAULT_QUEUE = "default"
"""The queue that Volcano gives to a job that names none."""

GROUP_ANNOTATION = "scheduling.k8s.io/group-name"
"""The PodGroup that a pod belongs to; Volcano's controllers set it on the pods of a job."""

QUEUE_ANNOTATION = "scheduling.volcano.sh/queue-name"
"""The queue of the PodGroup that Volcano makes for a pod that has none."""

ACCELERATOR_PREFIXES = ("aws.amazon.com/neuron", "nvidia.com/", "vpc.amazonaws.com/efa")
"""How the resources begin that are scarce and that queues count: devices, cores and slices of them, and EFA. The taints
of their nodes are called the same."""

DEVICE_VARIABLES = ("NVIDIA_VISIBLE_DEVICES", "AWS_NEURON_VISIBLE_DEVICES")
"""Environment variables by which a container gets devices that it was not allotted: a container's own value wins over
the device plugin's, and container runtime hooks of NVIDIA and Neuron obey it."""

NO_DEVICES = ("", "none", "void")
"""Values of those variables that show a container no more than it was allotted."""

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


@dataclass(frozen=True)
class Limits:
    """What one namespace may use."""

    queues: tuple[str, ...]
    """Queues of its jobs."""
    priority_classes: tuple[str, ...]
    """Priority classes that its pods may name; they need not name one."""
    closed_storage_classes: tuple[str, ...] = ()
    """Storage classes of which it may claim no volume."""


@dataclass(frozen=True)
class Match:
    """Requests that a policy judges."""

    group: str
    version: str
    resource: str


@dataclass(frozen=True)
class Variable:
    """A named expression that validations use as ``variables.<name>``."""

    name: str
    expression: str


@dataclass(frozen=True)
class Validation:
    """An expression that must be true, and what is said when it is not."""

    expression: str
    message: str


@dataclass(frozen=True)
class Policy:
    """One policy, over the creation and the update of what it matches."""

    matches: tuple[Match, ...]
    variables: tuple[Variable, ...]
    validations: tuple[Validation, ...]
    condition: str = ""
    """When it is asked at all; empty for always. An update that leaves alone what is judged must pass, so that what was
    made before the policy was as strict can be finished and deleted."""


QUEUED = (Match("batch.volcano.sh", "v1alpha1", "jobs"), Match("scheduling.volcano.sh", "v1beta1", "podgroups"))
"""What names a queue and a priority class in its ``spec``. Volcano's cron jobs and job flows make jobs, and are judged
by them; its controllers make the PodGroup of a pod that has none."""


@dataclass(frozen=True)
class _Source:
    """Where the specs of pods stand in a kind."""

    match: Match
    specs: str
    """Expression for the list of specs."""
    scheduler: str
    """Expression for the scheduler of a spec that names none."""


_PRIORITY = "priorityClassName"

_PODS = _Source(Match("", "v1", "pods"), "[object.spec]", '"default-scheduler"')
_JOBS = _Source(Match("batch", "v1", "jobs"), "[object.spec.template.spec]", '"default-scheduler"')
_DEPLOYMENTS = _Source(Match("apps", "v1", "deployments"), "[object.spec.template.spec]", '"default-scheduler"')
_VOLCANO_JOBS = _Source(
    QUEUED[0],
    "(has(object.spec.tasks) ? object.spec.tasks : [])"
    ".filter(task, has(task.template) && has(task.template.spec)).map(task, task.template.spec)",
    f'has(object.spec.schedulerName) && object.spec.schedulerName != "" ? object.spec.schedulerName : "{SCHEDULER}"',
)


def policies(limits: Limits) -> dict[str, Policy]:
    """The policies of one namespace, by name."""
    return {
        "queues": _queue_policy(limits),
        "pods": _pod_policy(limits),
        "jobs": _template_policy(_JOBS, limits),
        "deployments": _template_policy(_DEPLOYMENTS, limits),
        "volcano-jobs": _template_policy(_VOLCANO_JOBS, limits, also=(_volcano_volumes(limits),)),
        "commands": _command_policy(),
        "services": _service_policy(),
    }


def _queue_policy(limits: Limits) -> Policy:
    """Jobs and PodGroups name one of the queues, and no priority but the namespace's."""
    updated = 'request.operation == "UPDATE"'
    return Policy(
        QUEUED,
        (
            Variable("queue", _queue_of("object")),
            Variable("queueUnchanged", f"{updated} && ({_queue_of('oldObject')}) == variables.queue"),
            Variable("priority", _text("object.spec", _PRIORITY)),
            Variable(
                "priorityUnchanged",
                f"{updated} && {_text('oldObject.spec', 'priorityClassName')} == variables.priority",
            ),
        ),
        (
            Validation(
                f"variables.queueUnchanged || variables.queue in {_list(limits.queues)}",
                f"spec.queue must be one of this namespace's queues: {', '.join(limits.queues)}",
            ),
            Validation(
                'variables.priorityUnchanged || variables.priority == "" || '
                f"variables.priority in {_list(limits.priority_classes)}",
                _priority_message("spec.priorityClassName", limits),
            ),
        ),
    )


def _command_policy() -> Policy:
    """Commands for jobs alone. Volcano looks for a job in the command's own namespace, but takes a command for any
    queue (closing it, opening it) from every namespace."""
    wanted = QUEUED[0]
    return Policy(
        (Match("bus.volcano.sh", "v1alpha1", "commands"),),
        (),
        (
            Validation(
                'has(object.target) && object.target.kind == "Job" && '
                f'object.target.apiVersion == "{wanted.group}/{wanted.version}"',
                "target must be a Volcano Job of this namespace: queues are opened and closed by administrators",
            ),
        ),
    )


def _service_policy() -> Policy:
    """Services take no address that others use: every node would send what goes there to their pods (CVE-2020-8554).

    Load balancers and ports of nodes are a matter of the quota.
    """
    return Policy(
        (Match("", "v1", "services"),),
        (),
        (
            Validation(
                "!has(object.spec.externalIPs) || size(object.spec.externalIPs) == 0",
                "a service must not have externalIPs: what the whole cluster sends to these addresses would end here",
            ),
        ),
        'request.operation == "CREATE" || object.spec != oldObject.spec',
    )


def _pod_policy(limits: Limits) -> Policy:
    """Pods, and what can be changed of one that is there: tolerations are added, annotations are free."""
    shared = _template_policy(_PODS, limits)
    group, queue = json.dumps(GROUP_ANNOTATION), json.dumps(QUEUE_ANNOTATION)
    names = ", ".join(limits.queues)
    changed = " || ".join(
        f"{judged('object')} != {judged('oldObject')}" for judged in (_tolerations, _queue_annotation)
    )
    return Policy(
        shared.matches,
        (
            *shared.variables,
            Variable("annotated", "has(object.metadata.annotations)"),
            Variable("grouped", f"variables.annotated && {group} in object.metadata.annotations"),
            Variable("queued", f"variables.annotated && {queue} in object.metadata.annotations"),
        ),
        (
            *shared.validations,
            Validation(
                f'{_text("object.spec", "schedulerName")} != "{SCHEDULER}" || variables.grouped || variables.queued',
                f"a pod that Volcano schedules outside a job must name its queue: annotation {QUEUE_ANNOTATION}, "
                f"one of {names}",
            ),
            Validation(
                f"!variables.queued || object.metadata.annotations[{queue}] in {_list(limits.queues)}",
                f"annotation {QUEUE_ANNOTATION} must be one of this namespace's queues: {names}",
            ),
        ),
        f'request.operation == "CREATE" || {changed}',
    )


def _template_policy(source: _Source, limits: Limits, also: Sequence[Validation] = ()) -> Policy:
    return Policy(
        (source.match,),
        _spec_variables(source),
        (*_device_validations(), *_place_validations(limits), *_volume_validations(limits), *also),
        'request.operation == "CREATE" || object.spec != oldObject.spec',
    )


def _spec_variables(source: _Source) -> tuple[Variable, ...]:
    """The specs, and among them those that name accelerators (``naming``), those that ask for one or more of them
    (``accelerated``), and those that do neither (``plain``)."""
    naming = _has_resource(_SCARCE)
    # The amounts in a job's template may be numbers.
    asking = _has_resource(_SCARCE, 'quantity(string(AMOUNTS[name])).isGreaterThan(quantity("0"))')
    return (
        Variable("specs", source.specs),
        Variable("scheduler", source.scheduler),
        Variable("naming", f"variables.specs.filter(spec, {naming})"),
        Variable("accelerated", f"variables.naming.filter(spec, {asking})"),
        Variable("plain", f"variables.specs.filter(spec, !({naming}))"),
    )


_SCARCE = " || ".join(f"name.startsWith({json.dumps(prefix)})" for prefix in ACCELERATOR_PREFIXES)
"""Of a resource's ``name``."""


def _has_resource(name_condition: str, amount_condition: str = "true") -> str:
    """True of a ``spec`` with a container that has such a resource.

    Args:
        name_condition: on its ``name``.
        amount_condition: on its amount, ``AMOUNTS[name]``.
    """
    found = " || ".join(
        f"(has({amounts}) && {amounts}.exists(name, ({name_condition}) && {amount_condition}))".replace(
            "AMOUNTS", amounts
        )
        for amounts in ("container.resources.limits", "container.resources.requests")
    )
    return f"{_containers('spec')}.exists(container, has(container.resources) && ({found}))"


def _device_validations() -> tuple[Validation, ...]:
    """Accelerators by Volcano, by amounts that queues count, and by nothing else."""
    scheduler = '(has(spec.schedulerName) && spec.schedulerName != "" ? spec.schedulerName : variables.scheduler)'
    hidden = f"variable.name in {_list(DEVICE_VARIABLES)}"
    harmless = f"has(variable.value) && variable.value in {_list(NO_DEVICES)}"
    variables = f"!has(container.env) || container.env.all(variable, !({hidden}) || ({harmless}))"
    keys = [f"toleration.key.startsWith({json.dumps(prefix)})" for prefix in ACCELERATOR_PREFIXES]
    open_key = " || ".join(["!has(toleration.key)", 'toleration.key == ""', *keys])
    return (
        Validation(
            f'variables.accelerated.all(spec, {scheduler} == "{SCHEDULER}")',
            f"a pod with accelerators must be scheduled by Volcano: schedulerName {SCHEDULER}",
        ),
        # The API server lets a pod that names the resource onto the tainted nodes whatever the amount.
        Validation(
            "size(variables.naming) == size(variables.accelerated)",
            "a pod must not ask for 0 accelerators: leave the resource out, or ask for 1 or more",
        ),
        Validation(
            f"variables.plain.all(spec, !has(spec.tolerations) || !spec.tolerations.exists(toleration, {open_key}))",
            "a pod without accelerators must not tolerate the taints of accelerator nodes, nor all taints: "
            "tolerations must each name another key",
        ),
        Validation(
            "variables.specs.all(spec, !has(spec.resourceClaims) || size(spec.resourceClaims) == 0)",
            "a pod must not claim devices by resourceClaims, which queues do not count: ask for them in resources",
        ),
        Validation(
            f"variables.specs.all(spec, {_containers('spec')}.all(container, {variables}))",
            f"a container must not set {' or '.join(DEVICE_VARIABLES)}: its devices come from resources",
        ),
    )


def _place_validations(limits: Limits) -> tuple[Validation, ...]:
    """Where a pod runs, and before whom."""
    return (
        # A pod that names its node is taken by the kubelet without any scheduler. Schedulers bind by another request.
        Validation(
            'request.operation == "UPDATE" || variables.specs.all(spec, !has(spec.nodeName) || spec.nodeName == "")',
            "a pod must not name its node: nodeName bypasses every scheduler and queue; use nodeSelector",
        ),
        # A pod of a higher priority ends others, of any namespace, to make room for itself.
        Validation(
            'variables.specs.all(spec, !has(spec.priorityClassName) || spec.priorityClassName == "" || '
            f"spec.priorityClassName in {_list(limits.priority_classes)})",
            _priority_message("priorityClassName", limits),
        ),
    )


def _volume_validations(limits: Limits) -> tuple[Validation, ...]:
    """Volumes that are the team's own, and cost what it may spend."""
    volumes = "!has(spec.volumes) || spec.volumes.all(volume, {})"
    kinds = " || ".join(f"has(volume.{kind})" for kind in VOLUMES)
    template = "volume.ephemeral.volumeClaimTemplate.spec"
    return (
        Validation(
            f"variables.specs.all(spec, {volumes.format(kinds)})",
            f"volumes must be of these kinds: {', '.join(VOLUMES)}",
        ),
        Validation(
            "variables.specs.all(spec, "
            + volumes.format(f"!has(volume.ephemeral) || ({_claim_is_own(template, limits)})")
            + ")",
            _claim_message("an ephemeral volume", limits),
        ),
    )


def _volcano_volumes(limits: Limits) -> Validation:
    claim = "volume.volumeClaim"
    return Validation(
        "!has(object.spec.volumes) || "
        f"object.spec.volumes.all(volume, !has({claim}) || ({_claim_is_own(claim, limits)}))",
        _claim_message("a job's volumeClaim", limits),
    )


def _claim_is_own(claim: str, limits: Limits) -> str:
    """Of a claim that a controller makes for the team: it takes no volume that is there, and of no closed class."""
    return (
        f"{_text(claim, 'volumeName')} == '' && "
        f"!({_text(claim, 'storageClassName')} in {_list(limits.closed_storage_classes)})"
    )


def _claim_message(what: str, limits: Limits) -> str:
    closed = " or ".join(limits.closed_storage_classes)
    also = f", nor be of the storage class {closed}, of which the quota allows none" if closed else ""
    return f"{what} must not name an existing volume{also}: mount the namespace's own claim"


def _priority_message(field: str, limits: Limits) -> str:
    names = ", ".join(limits.priority_classes)
    return f"{field} must be one of this namespace's: {names}" if names else f"{field} must be unset in this namespace"


def _containers(spec: str) -> str:
    found = (f"(has({spec}.{kind}) ? {spec}.{kind} : [])" for kind in ("containers", "initContainers"))
    return f"({' + '.join(found)})"


def _queue_of(subject: str) -> str:
    return f"has({subject}.spec.queue) ? {subject}.spec.queue : {json.dumps(DEFAULT_QUEUE)}"


def _text(subject: str, field: str) -> str:
    """The field's value, ``""`` where it is unset."""
    return f'(has({subject}.{field}) ? {subject}.{field} : "")'


def _tolerations(subject: str) -> str:
    return f"(has({subject}.spec.tolerations) ? {subject}.spec.tolerations : [])"


def _queue_annotation(subject: str) -> str:
    """The annotation in a list, which is empty where it is unset."""
    annotations, name = f"{subject}.metadata.annotations", json.dumps(QUEUE_ANNOTATION)
    return f"(has({annotations}) && {name} in {annotations} ? [{annotations}[{name}]] : [])"


def _list(names: Iterable[str]) -> str:
    """The names as a CEL list; JSON text is CEL text for names of letters, digits and dashes."""
    return json.dumps(list(names))
