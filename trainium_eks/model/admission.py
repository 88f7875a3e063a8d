"""What a team's namespace may ask of the scheduler, as CEL for Kubernetes' ValidatingAdmissionPolicy.

Volcano does not ask who submits to a queue, and Kubernetes' own scheduler knows no queue at all. So the API server
keeps a namespace to its queues, and keeps pods that want accelerators with Volcano. Pure functions: the expressions
are data here, and :mod:`components.training_namespace` puts them into objects.

Every expression must hold for pods and jobs that some controller makes, because a refusal there is seen only in the
controller's events.
"""

import json
from collections.abc import Sequence
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
"""How the resources begin that are scarce and that queues count: devices, cores and slices of them, and EFA."""


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


QUEUED_RESOURCES = {"batch.volcano.sh": ("v1alpha1", "jobs"), "scheduling.volcano.sh": ("v1beta1", "podgroups")}
"""API group to version and resource of what names a queue in ``spec.queue``. Volcano's cron jobs and job flows make
jobs, and are judged by them."""


def queue_variables() -> tuple[Variable, ...]:
    """The queue that is asked for, and the one that was."""
    return (
        Variable("queue", _queue_of("object")),
        # An update that leaves the queue alone always passes, so that the objects of a queue that was taken away can
        # still be finished and deleted.
        Variable("unchanged", f'request.operation == "UPDATE" && ({_queue_of("oldObject")}) == variables.queue'),
    )


def queue_validations(queues: Sequence[str]) -> tuple[Validation, ...]:
    """Jobs and PodGroups name one of the queues."""
    return (
        Validation(
            f"variables.unchanged || variables.queue in {_list(queues)}",
            f"spec.queue must be one of this namespace's queues: {', '.join(queues)}",
        ),
    )


def pod_variables() -> tuple[Variable, ...]:
    """Whether a pod wants accelerators, and its annotations."""
    scarce = " || ".join(f"name.startsWith({json.dumps(prefix)})" for prefix in ACCELERATOR_PREFIXES)
    wants = " || ".join(
        f"(has(container.resources.{kind}) && container.resources.{kind}.exists(name, {scarce}))"
        for kind in ("limits", "requests")
    )
    return (
        Variable(
            "containers",
            "object.spec.containers + (has(object.spec.initContainers) ? object.spec.initContainers : [])",
        ),
        Variable(
            "accelerated",
            f"variables.containers.exists(container, has(container.resources) && ({wants}))",
        ),
        Variable("annotated", "has(object.metadata.annotations)"),
    )


def pod_validations(queues: Sequence[str]) -> tuple[Validation, ...]:
    """Pods that want accelerators go through Volcano, and through one of the queues."""
    group, queue = json.dumps(GROUP_ANNOTATION), json.dumps(QUEUE_ANNOTATION)
    names = ", ".join(queues)
    return (
        Validation(
            "!variables.accelerated || "
            f"(has(object.spec.schedulerName) && object.spec.schedulerName == {json.dumps(SCHEDULER)})",
            f"a pod with accelerators must be scheduled by Volcano: schedulerName {SCHEDULER}",
        ),
        # A pod that names its node is taken by the kubelet without any scheduler.
        Validation(
            '!variables.accelerated || !has(object.spec.nodeName) || object.spec.nodeName == ""',
            "a pod with accelerators must not name its node: nodeName goes past every queue",
        ),
        Validation(
            f"!variables.accelerated || (variables.annotated && ({group} in object.metadata.annotations || "
            f"{queue} in object.metadata.annotations))",
            f"a pod with accelerators outside a Volcano job must name its queue: annotation {QUEUE_ANNOTATION}, "
            f"one of {names}",
        ),
        Validation(
            f"!(variables.annotated && {queue} in object.metadata.annotations) || "
            f"object.metadata.annotations[{queue}] in {_list(queues)}",
            f"annotation {QUEUE_ANNOTATION} must be one of this namespace's queues: {names}",
        ),
    )


def _queue_of(subject: str) -> str:
    return f"has({subject}.spec.queue) ? {subject}.spec.queue : {json.dumps(DEFAULT_QUEUE)}"


def _list(names: Sequence[str]) -> str:
    """The names as a CEL list; JSON text is CEL text for names of letters, digits and dashes."""
    return json.dumps(list(names))
