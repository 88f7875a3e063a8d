"""The PyTorchJob of a gang, for Kubeflow's Training Operator v1 (``gpuAddons.trainers: [v1]``).

Workers alone, without a master: a worker beside a master gets an init container of another image, which Pod Security
refuses in a team's namespace (v1.9.3, ``setInitContainer``). The nodes meet at the first of them, like the nodes of a
Volcano job. The operator makes the PodGroup, in the queue that is named here, and a headless service for each pod.
"""

from typing import Any

from trainium_eks.jobs.objects import volcano_job
from trainium_eks.jobs.objects.command import NODE_RANK, place_by_label
from trainium_eks.jobs.objects.environment import environment
from trainium_eks.jobs.objects.identity import KIND_LABEL, PYTORCH_API, REPLICA_INDEX_LABEL
from trainium_eks.jobs.objects.job import TrainingJob
from trainium_eks.model.policies.admission import SCHEDULER

CONTAINER = "pytorch"
"""Name by which the operator finds the container that counts."""

PORT_NAME = "pytorchjob-port"
"""Name of the port without which the operator adds another."""


def manifest(job: TrainingJob) -> dict[str, Any]:
    """Return the PyTorchJob."""
    policy: dict[str, Any] = {"minAvailable": job.nodes, "queue": job.queue}
    if job.options.priority:
        policy["priorityClass"] = job.options.priority
    labels = app_labels(job)
    worker = {"replicas": job.nodes, "restartPolicy": "ExitCode", "template": _template(job, labels)}
    return {
        "apiVersion": PYTORCH_API,
        "kind": "PyTorchJob",
        "metadata": {
            "name": job.name,
            "namespace": job.namespace,
            "labels": {**labels, KIND_LABEL: job.kind},
            "annotations": volcano_job.annotations(job),
        },
        "spec": {
            "nprocPerNode": str(job.ranks_per_node),
            # Pods that ended stay, with their logs; pods that wait for a finally failed one are deleted.
            "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": job.retries, "schedulingPolicy": policy},
            "pytorchReplicaSpecs": {"Worker": worker},
        },
    }


def app_labels(job: TrainingJob) -> dict[str, str]:
    """Return labels of a job that TorchX has no part in, and of its pods."""
    return {
        "app.kubernetes.io/name": job.app,
        "app.kubernetes.io/instance": job.name,
        "app.kubernetes.io/managed-by": "trn",
    }


def _template(job: TrainingJob, labels: dict[str, str]) -> dict[str, Any]:
    place = place_by_label(f"{job.name}-worker-0")
    pod = volcano_job.plain_pod(job, CONTAINER, place, environment(job), labels)
    volcano_job.complete_pod(pod, job)
    spec = pod["spec"]
    del spec["restartPolicy"]  # the operator's, by the policy above
    schedule(spec, job)
    container = spec["containers"][0]
    container["ports"][0]["name"] = PORT_NAME
    container["env"].append(from_label(NODE_RANK, REPLICA_INDEX_LABEL))
    return pod


def schedule(spec: dict[str, Any], job: TrainingJob) -> None:
    """Add to a pod's spec the fields that Volcano's controllers set on the pods of Volcano jobs."""
    spec["schedulerName"] = SCHEDULER
    if job.options.priority:
        spec["priorityClassName"] = job.options.priority


def from_label(variable: str, label: str) -> dict[str, Any]:
    """Return a variable with the value of a label of the pod."""
    return {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{label}']"}}}
