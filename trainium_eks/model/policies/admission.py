"""Limits on a team's namespace, as CEL for Kubernetes' ValidatingAdmissionPolicy.

Volcano does not check the submitter of a job to a queue, Kubernetes' own scheduler knows no queue at all, and a quota
counts amounts but not places. So the API server limits a namespace to its queues, its priorities and its volumes,
limits nodes with accelerators to pods that request accelerators through Volcano, and bounds the number of pods that one
object leads to. Pure functions: the policies are data here, and :mod:`components.training_namespace` puts them into
objects.

Pods are validated at creation, for every creator. A refusal at that time is seen only in the controller's events, so
the templates of all kinds that lead to pods are validated by the same expressions when they are submitted.
"""

import json
from collections.abc import Iterator, Sequence

from trainium_eks.model.policies import admission_baseline, admission_pods, admission_volcano
from trainium_eks.model.policies.admission_pods import GROUP_ANNOTATION, QUEUE_ANNOTATION
from trainium_eks.model.policies.admission_terms import (
    CHANGED,
    Limits,
    Match,
    Policy,
    Validation,
    Variable,
    listed,
    names,
    number,
    others,
    text,
)
from trainium_eks.model.policies.admission_workloads import (
    JOB_SETS,
    JOBS,
    PODS,
    PYTORCH_JOBS,
    SCHEDULER,
    VOLCANO_JOBS,
    WORKLOADS,
    Workload,
)

__all__ = ["GROUP_ANNOTATION", "QUEUE_ANNOTATION", "SCHEDULER", "Limits", "Match", "Policy", "policies"]

DEFAULT_QUEUE = "default"
"""The queue that Volcano gives to a job that names none."""

QUEUED = (Match("batch.volcano.sh", "v1alpha1", "jobs"), Match("scheduling.volcano.sh", "v1beta1", "podgroups"))
"""Kinds that name a queue and a priority class in their ``spec``. Controllers make the PodGroup of a pod that has
none."""

JOB_FLOWS = Match("flow.volcano.sh", "v1alpha1", "jobflows")
"""Kind that makes a Volcano job of each of its flows."""

OWNERS = (
    "ConfigMap",
    "CronJob",
    "Deployment",
    "Job",
    "Pod",
    "PyTorchJob",
    "ReplicaSet",
    "Secret",
    "Service",
    "TrainJob",
    "TrainingRuntime",
)
"""Kinds that a researcher may name as the owner of an object; all are namespaced."""

FINALIZERS = ("foregroundDeletion", "orphan")
"""Finalizers that a researcher may set: Kubernetes' garbage collector removes them."""

UNCOUNTED_PODS = 8
"""Pods of a Volcano job that its controllers may request without the scheduler knowing whether the quota has room for
them."""

MOST_TASK_CONTAINERS = 128
"""Most tasks of a Volcano job, times the containers of one of its pods."""

MOST_NAMED_PODS = 512
"""Most pods of a Volcano job, times the containers of a pod, if each container gets the names of all pods."""

SET_ONCE = ("k8s.io", "kubernetes.io", "volcano.sh", "karpenter.sh", "kubeflow.org", "k8s.aws", "amazonaws.com")
"""Ends of the domains of annotations and labels by which schedulers, autoscalers, controllers and kubelets act. A
researcher sets these with the object, where they are judged, and changes none of them later: one
``scheduling.k8s.io/group-name`` of a running pod takes its devices out of all accounts."""

CHANGEABLE = "^(app|kubectl|deployment)[.]kubernetes[.]io/|^kubernetes[.]io/(change-cause|description)$"
"""Pattern of keys of these domains that only people and their tools read."""

_PRIORITY = "priorityClassName"
_IS_NO_POD = '(!has(object.kind) || object.kind != "Pod")'


def policies(limits: Limits, written: Sequence[Match]) -> dict[str, Policy]:
    """Return the policies of one namespace, by name; ``written`` are kinds that its researchers create or change."""
    return {
        "queues": _queue_policy(limits),
        "pods": _workload_policy(PODS, limits),
        **{each.name: _workload_policy(each, limits) for each in WORKLOADS},
        "job-flows": _flow_policy(limits),
        "scale": _scale_policy(limits),
        "commands": _command_policy(),
        "services": _service_policy(),
        "metadata": _metadata_policy(limits, written),
        "deletions": _deletion_policy(),
    }


def _workload_policy(workload: Workload, limits: Limits) -> Policy:
    return Policy(
        workload.matches,
        (
            *admission_pods.variables(workload),
            *(Variable(f"count{index}", each.expression) for index, each in enumerate(workload.counts)),
        ),
        (
            *_counts(workload, limits),
            *admission_pods.validations(workload, limits),
            *_particular(workload, limits),
        ),
        f"{CHANGED}object.spec != oldObject.spec",
    )


def _counts(workload: Workload, limits: Limits) -> Iterator[Validation]:
    for index, count in enumerate(workload.counts):
        yield _bounded(f"variables.count{index}", count.field, limits.pods)


def _bounded(expression: str, field: str, most: int, quota: str = "pods") -> Validation:
    ends = (
        f"and this namespace's quota has {most} ({quota}): ask for fewer, or have resourceQuota of the namespace raised"
    )
    return Validation(
        f"{expression} <= {most}",
        f"{field} must be at most {most}, {ends}",
        f'"{field}: " + string({expression}) + " is more than {most}, {ends}"',
    )


def _particular(workload: Workload, limits: Limits) -> Iterator[Validation]:
    """Yield the validations for a single kind of workload."""
    if workload is JOBS:
        yield _bounded(
            number("variables.job", "completions", 1), "spec.completions", limits.finished_pods, "count/pods"
        )
        yield from _cron()
    elif workload is VOLCANO_JOBS:
        yield from _cron()
        yield from _volcano(limits)
        yield from admission_volcano.validations(limits)
    elif workload is PYTORCH_JOBS:
        policy = "object.spec.runPolicy.schedulingPolicy"
        yield Validation(
            f"has(object.spec.runPolicy) && has({policy}) && {text(policy, 'queue')} in {names(limits.queues)}",
            f"spec.runPolicy.schedulingPolicy.queue must be one of this namespace's queues: {', '.join(limits.queues)}",
        )
        priority = f"(has(object.spec.runPolicy) && has({policy}) ? {text(policy, 'priorityClass')} : '')"
        yield Validation(
            f"{priority} == '' || {priority} in {names(limits.priority_classes)}",
            admission_pods.priority_message("spec.runPolicy.schedulingPolicy.priorityClass", limits),
        )
    elif workload is JOB_SETS:
        template = "object.spec.template.metadata.annotations"
        yield Validation(
            "!has(object.spec.podGroupPolicy) || !has(object.spec.podGroupPolicy.volcano) || "
            "(has(object.spec.template) && has(object.spec.template.metadata) && "
            f'has({template}) && "{QUEUE_ANNOTATION}" in {template} && '
            f'{template}["{QUEUE_ANNOTATION}"] in {names(limits.queues)})',
            f"a runtime with podGroupPolicy.volcano must name its queue: annotation {QUEUE_ANNOTATION} of "
            f"spec.template.metadata, one of {', '.join(limits.queues)}",
        )
    if workload.name == "deployments":
        claim = "claim.spec"
        yield Validation(
            "!has(object.spec.volumeClaimTemplates) || object.spec.volumeClaimTemplates.all(claim, "
            f"{admission_pods.claim_is_own(claim, limits)})",
            admission_pods.claim_message("a volumeClaimTemplate", limits),
        )


def _cron() -> Iterator[Validation]:
    is_cron = "!has(object.spec.jobTemplate)"
    yield Validation(
        f'{is_cron} || {text("object.spec", "concurrencyPolicy")} in ["Forbid", "Replace"]',
        "spec.concurrencyPolicy must be Forbid or Replace: with Allow, the default, each run is added to those that "
        "have not ended",
    )
    yield Validation(
        f'{is_cron} || !{text("object.spec", "schedule")}.startsWith("@every")',
        "spec.schedule must not be an interval, which can be a second: name minutes and hours, as in */10 * * * *",
    )


def _volcano(limits: Limits) -> Iterator[Validation]:
    job = "variables.job"
    yield _bounded(f"size({listed(job, 'tasks')})", "number of tasks", limits.pods)
    # The scheduler admits a job's pods when the quota has room for the requests of `minAvailable` of them; the
    # controllers then create all of them, and try again with every event of a pod, whatever the quota.
    yield Validation(
        f"!has({job}.minAvailable) || (int({job}.minAvailable) >= variables.count0 - {UNCOUNTED_PODS} && "
        f"2 * int({job}.minAvailable) >= variables.count0)",
        f"spec.minAvailable must be half of the pods or more, and at most {UNCOUNTED_PODS} less than all: the others "
        "are made even where the quota has no room for them",
    )
    before = f"oldObject.spec.tasks.map(task, {number('task', 'replicas', 1)}).filter(count, count > 0).sum()"
    yield Validation(
        f'request.operation != "UPDATE" || object.kind != "Job" || variables.count0 <= {before}',
        "replicas of all tasks must not grow: pods that are added are made even where the quota has no room for them; "
        "submit another job",
    )
    lacking = " || ".join(
        f"!has(container.resources) || !has(container.resources.requests) || "
        f"!({json.dumps(each)} in container.resources.requests)"
        for each in limits.counted_requests
    )
    if lacking:
        yield Validation(
            f"variables.count0 <= {UNCOUNTED_PODS} || "
            f"!variables.specs.exists(spec, {admission_baseline.CONTAINERS}.exists(container, {lacking}))",
            f"each container of a job of more than {UNCOUNTED_PODS} pods must state in resources.requests what the "
            f"namespace's quota counts: {', '.join(limits.counted_requests)}",
        )
    # Volcano's plugin `svc` makes a network policy of the job's name, and deletes it with the job, whoever made it.
    yield Validation(
        f"!(object.metadata.name in {names(limits.reserved_names)})",
        f"a job must have another name than the namespace's network policies: {', '.join(limits.reserved_names)}",
    )
    yield from _amplified()
    claim, most = "volume.volumeClaim", admission_pods.MOST["volumes"]
    claimed = admission_pods.claim_message("a job's volumeClaim", limits)
    yield Validation(
        f"!has({job}.volumes) || (size({job}.volumes) <= {most} && "
        f"{job}.volumes.all(volume, !has({claim}) || ({admission_pods.claim_is_own(claim, limits)})))",
        f"{claimed}; a job must have at most {most} volumes",
    )
    # For jobs themselves the policy "queues" validates this.
    others = 'object.kind == "Job"'
    yield Validation(
        f"{others} || ({_queue_of(job)}) in {names(limits.queues)}",
        f"the job's queue must be one of this namespace's queues: {', '.join(limits.queues)}",
    )
    yield Validation(
        f"{others} || {text(job, _PRIORITY)} == '' || {text(job, _PRIORITY)} in {names(limits.priority_classes)}",
        admission_pods.priority_message("the job's priorityClassName", limits),
    )


def _amplified() -> Iterator[Validation]:
    """Yield bounds of settings that repeat a job's work in Volcano's controllers for each pod."""
    job = "variables.job"

    def has(plugin: str) -> str:
        return f'(has({job}.plugins) && "{plugin}" in {job}.plugins)'

    # A variable for each task in each container of each pod (`svc`), or one with the names of all pods.
    containers = f"size({admission_baseline.CONTAINERS})"
    yield Validation(
        f"variables.specs.all(spec, size(variables.tasks) * {containers} <= {MOST_TASK_CONTAINERS})",
        f"the tasks of a job times the containers of a pod must be at most {MOST_TASK_CONTAINERS}, init containers "
        "included: each container gets variables for every task; use one task with more replicas",
    )
    yield Validation(
        f"!({has('tensorflow')} || {has('mpi')}) || "
        f"variables.specs.all(spec, variables.count0 * {containers} <= {MOST_NAMED_PODS})",
        f"with the plugins tensorflow and mpi the pods of a job times the containers of a pod must be at most "
        f"{MOST_NAMED_PODS}: each container gets a variable with the names of all pods",
    )
    given = 'one.matches("^--ssh-private-key=.")'
    yield Validation(
        f'!{has("ssh")} || ({job}.plugins["ssh"].exists(one, {given}) && '
        f'{job}.plugins["ssh"].all(one, !one.contains("ssh-private-key") || {given}))',
        "the plugin ssh, which mpi brings along, must be given a key (ssh: [--ssh-private-key=..., "
        "--ssh-public-key=...]): it makes one of its own for each try to start the job",
    )
    yield Validation(
        f"!{listed(job, 'policies')}.exists(policy, has(policy.timeout)) && "
        "variables.tasks.all(task, !has(task.policies) || !task.policies.exists(policy, has(policy.timeout)))",
        "policies must have no timeout: when it is over for many pods, the whole job is ended once for each of them",
    )


def _queue_policy(limits: Limits) -> Policy:
    """Return the policy that jobs and PodGroups name one of the namespace's queues and priority classes."""
    updated = 'request.operation == "UPDATE"'
    return Policy(
        QUEUED,
        (
            Variable("queue", _queue_of("object.spec")),
            Variable("queueUnchanged", f"{updated} && ({_queue_of('oldObject.spec')}) == variables.queue"),
            Variable("priority", text("object.spec", _PRIORITY)),
            Variable(
                "priorityUnchanged",
                f"{updated} && {text('oldObject.spec', _PRIORITY)} == variables.priority",
            ),
        ),
        (
            Validation(
                f"variables.queueUnchanged || variables.queue in {names(limits.queues)}",
                f"spec.queue must be one of this namespace's queues: {', '.join(limits.queues)}",
            ),
            Validation(
                'variables.priorityUnchanged || variables.priority == "" || '
                f"variables.priority in {names(limits.priority_classes)}",
                admission_pods.priority_message("spec.priorityClassName", limits),
            ),
        ),
    )


def _flow_policy(limits: Limits) -> Policy:
    """Return the policy on the number of a JobFlow's jobs; the jobs are validated when Volcano makes them."""
    flows = f"size({listed('object.spec', 'flows')})"
    return Policy((JOB_FLOWS,), (), (_bounded(flows, "number of flows", limits.jobs, "count/jobs.batch.volcano.sh"),))


def _scale_policy(limits: Limits) -> Policy:
    """Return the policy on the number of pods set by the subresource ``scale`` of any kind."""
    return Policy(
        (Match("*", "*", "*/scale"),), (), (_bounded(number("object.spec", "replicas", 0), "replicas", limits.pods),)
    )


def _command_policy() -> Policy:
    """Return the policy that allows commands for jobs alone. Volcano looks for a job in the command's namespace, but
    accepts a command for any queue (closing it, opening it) from every namespace."""
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
    """Return the policy that forbids externalIPs: every node would send traffic for these addresses to the service's
    pods (CVE-2020-8554).

    The quota limits load balancers and ports of nodes.
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
        f"{CHANGED}object.spec != oldObject.spec",
    )


def _metadata_policy(limits: Limits, written: Sequence[Match]) -> Policy:
    """Return the policy on finalizers and owner references, which delay a deletion and are set by controllers, and on
    annotations and labels of existing objects."""
    updated = 'request.operation == "UPDATE"'
    known = f"({updated} && has(oldObject.metadata.FIELD) && one in oldObject.metadata.FIELD)"
    every = f"{others(limits)} || !has(object.metadata.FIELD) || object.metadata.FIELD.all(one, {{}} || {known})"
    return Policy(
        tuple(written),
        (),
        (
            Validation(
                every.replace("FIELD", "finalizers").format(f"one in {names(FINALIZERS)}"),
                f"metadata.finalizers must be {' or '.join(FINALIZERS)}: no controller removes others, and the object "
                "and its namespace could not be deleted",
            ),
            Validation(
                every.replace("FIELD", "ownerReferences").format(f"one.kind in {names(OWNERS)}"),
                f"metadata.ownerReferences must name objects of this namespace: {', '.join(OWNERS)}",
            ),
            # A PodGroup has its pod's owners, and goes with them: a pod with others would be left without a group.
            Validation(
                f"{others(limits)} || {_IS_NO_POD} || {listed('object.metadata', 'ownerReferences')} == "
                f"({updated} ? {listed('oldObject.metadata', 'ownerReferences')} : [])",
                "metadata.ownerReferences of a pod are set by its controller alone",
            ),
            Validation(
                f"{others(limits)} || !({updated}) || ({_kept('annotations')} && {_kept('labels')})",
                f"annotations and labels of domains that end in {', '.join(SET_ONCE)} are read by schedulers and "
                "controllers, and so are the labels of a controller's pod: set them when the object is made, or make "
                "it anew",
            ),
        ),
    )


def _kept(field: str) -> str:
    """Return the expression for whether an update leaves annotations or labels alone that others act by."""
    old, new = (f"(has({each}.metadata.{field}) ? {each}.metadata.{field} : {{}})" for each in ("oldObject", "object"))
    read = f'key.matches("^[^/]*({"|".join(SET_ONCE)})/") && !key.matches("{CHANGEABLE}")'
    # A controller lets go of a pod whose labels its selector does not take any more, and the pod outlives it.
    owned = f"size({listed('object.metadata', 'ownerReferences')}) > 0"
    fixed = f"({read})" if field == "annotations" else f"(({read}) || !({_IS_NO_POD}) && {owned})"
    return (
        f"{new}.all(key, !{fixed} || (key in {old} && {old}[key] == {new}[key])) && "
        f"{old}.all(key, !{fixed} || key in {new})"
    )


def _deletion_policy() -> Policy:
    """Return the policy that bounds the grace period of a request to delete a pod."""
    most = admission_pods.MOST_GRACE_SECONDS
    asked = "request.options.gracePeriodSeconds"
    return Policy(
        PODS.matches,
        (),
        (
            Validation(
                f"!has(request.options) || !has({asked}) || {asked} <= {most}",
                f"gracePeriodSeconds must be at most {most}: a node that is drained waits so long for the pod",
            ),
        ),
        operations=("DELETE",),
    )


def _queue_of(subject: str) -> str:
    return f'has({subject}.queue) ? {subject}.queue : "{DEFAULT_QUEUE}"'
