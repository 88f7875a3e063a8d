"""The Volcano job of a gang, in two shapes: TorchX's, a task for each node, and one task with a pod for each node.

:func:`torchx_job` is the job that TorchX 0.7.0 makes of our component, field for field; a test compares them.
:func:`manifest` adds settings that TorchX cannot express; the same test lists them all.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from trainium_eks.jobs.objects.command import ATTEMPT, ONE_TASK, place_of_task
from trainium_eks.jobs.objects.environment import environment
from trainium_eks.jobs.objects.identity import JOB_API, KIND_LABEL, REPLICA_LABEL, ROLE
from trainium_eks.jobs.objects.job import REFUSED, Topology, TrainingJob
from trainium_eks.jobs.objects.pod import annotations, complete_pod, torchx_pod
from trainium_eks.model.catalogue.instances import ULTRASERVER
from trainium_eks.model.policies.admission import SCHEDULER

TORCHX_VERSION = "0.7.0"
"""Version of TorchX that makes the same object."""

LARGEST_BYTES = 400_000
"""Size of a job in TorchX's shape: about 130 nodes, fewer with many variables. etcd takes 1,572,864 bytes, with the
defaults and the record of owners that the API server adds, and Volcano's controllers read each job whole."""


_JOB_VERSION = "metadata.annotations['volcano.sh/job-version']"
_RESTARTS = ("PodEvicted", "PodFailed")


def manifest(job: TrainingJob) -> dict[str, Any]:
    """Return the job as ``trn`` submits it."""
    made = one_task_job(job) if is_one_task(job) else torchx_job(job)
    made["metadata"] |= {
        "namespace": job.namespace,
        "labels": {**_pod_labels(job), KIND_LABEL: job.kind},
        "annotations": annotations(job),
    }
    if job.topology is not None:
        _keep_together(made["spec"], job, job.topology)
    for task in made["spec"]["tasks"]:
        # First: Volcano takes the first policy that fits.
        task["policies"] = [{"exitCode": REFUSED, "action": "TerminateJob"}, *task.get("policies", ())]
        complete_pod(task["template"], job)
        attempt = {"name": ATTEMPT, "valueFrom": {"fieldRef": {"fieldPath": _JOB_VERSION}}}
        task["template"]["spec"]["containers"][0]["env"].append(attempt)
    return made


def is_one_task(job: TrainingJob) -> bool:
    """Return whether a job has too many nodes for TorchX's shape, in which each repeats the whole pod; or several
    parts, which Volcano makes of one task alone."""
    return _parts(job) > 1 or job.nodes * len(json.dumps(one_task_job(job))) > LARGEST_BYTES


def torchx_job(job: TrainingJob) -> dict[str, Any]:
    """Return the job as TorchX makes it: a task of one pod for each node."""
    tasks = []
    for node in range(job.nodes):
        env = _torchx_environment(job) | ({} if node else {"TORCHX_RANK0_HOST": "localhost"})
        labels = _pod_labels(job) | {REPLICA_LABEL: str(node)}
        tasks.append(
            _task(job, f"{ROLE}-{node}", 1, torchx_pod(job, f"{ROLE}-{node}", place_of_task(node), env, labels))
        )
    return _volcano_job(job, tasks)


def one_task_job(job: TrainingJob) -> dict[str, Any]:
    """Return the job as one task, so that its size does not grow with its nodes."""
    pod = torchx_pod(job, ROLE, ONE_TASK, _torchx_environment(job), _pod_labels(job))
    return _volcano_job(job, [_task(job, ROLE, job.nodes, pod)])


def _torchx_environment(job: TrainingJob) -> dict[str, str]:
    """Return the variables with the job's address in TorchX's words, which its runner adds."""
    return environment(job) | {"TORCHX_JOB_ID": f"kubernetes://torchx/{job.name}"}


def _volcano_job(job: TrainingJob, tasks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "schedulerName": SCHEDULER,
        "queue": job.queue,
        "tasks": list(tasks),
        "maxRetry": job.retries,
        # Pods find each other before they are ready: rank 0 is not ready until all have found it (volcano #533).
        "plugins": {"svc": ["--publish-not-ready-addresses"], "env": []},
    }
    if job.options.priority:
        spec["priorityClassName"] = job.options.priority
    return {"apiVersion": JOB_API, "kind": "Job", "metadata": {"name": job.name}, "spec": spec}


def _parts(job: TrainingJob) -> int:
    return job.nodes // job.topology.together if job.topology and job.topology.together else 1


def _keep_together(spec: dict[str, Any], job: TrainingJob, topology: Topology) -> None:
    """Add the demand for the nodes' places. Tiers are numbers: Volcano 1.15 ignores the demand, ``hard`` or not, for a
    ``highestTierName`` that no HyperNode has at the moment (``translateHighestTierNameToAllowed``), and a number that
    none has keeps the job waiting."""
    demand = {"mode": topology.mode, "highestTierAllowed": topology.tier}
    if _parts(job) == 1:
        spec["networkTopology"] = demand
        for number, task in enumerate(spec["tasks"] if topology.together else ()):
            # Ranks follow the nodes' numbers: so do the pods, where each has a separate template.
            label = f"{ULTRASERVER}-node-id-{topology.together}"
            term = {"matchExpressions": [{"key": label, "operator": "In", "values": [str(number)]}]}
            required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
            task["template"]["spec"]["affinity"] = {"nodeAffinity": required}
        return
    parts, size = _parts(job), topology.together
    counts = {"totalPartitions": parts, "minPartitions": parts, "partitionSize": size}
    spec["tasks"][0]["partitionPolicy"] = {**counts, "networkTopology": demand}


def _task(job: TrainingJob, name: str, replicas: int, pod: Mapping[str, Any]) -> dict[str, Any]:
    task: dict[str, Any] = {"replicas": replicas, "name": name, "template": pod}
    if job.retries > 0:
        # A lost pod restarts the whole gang: without this the others would wait for it for ever.
        policies = [{"event": event, "action": "RestartJob"} for event in _RESTARTS]
        task |= {"maxRetry": job.retries, "policies": policies}
    return task


def _pod_labels(job: TrainingJob) -> dict[str, str]:
    """Return TorchX's labels, by which its ``list`` and ``log`` find the pods."""
    return {
        "torchx.pytorch.org/version": TORCHX_VERSION,
        "torchx.pytorch.org/app-name": job.app,
        "torchx.pytorch.org/role-index": "0",
        "torchx.pytorch.org/role-name": ROLE,
        "app.kubernetes.io/name": job.app,
        "app.kubernetes.io/managed-by": "torchx.pytorch.org",
        "app.kubernetes.io/instance": job.name,
    }
