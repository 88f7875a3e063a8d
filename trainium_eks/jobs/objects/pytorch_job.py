"""The PyTorchJob of a gang, for Kubeflow's Training Operator v1 (``gpuAddons.trainers: [v1]``).

Workers alone, without a master: a worker beside a master gets an init container of another image, which Pod Security
refuses in a team's namespace (v1.9.3, ``setInitContainer``). The nodes meet at the first of them, like the nodes of a
Volcano job. The operator makes the PodGroup, in the queue that is named here, and a headless service for each pod.
"""

from typing import Any

from trainium_eks.jobs.objects import pod
from trainium_eks.jobs.objects.command import place_by_label
from trainium_eks.jobs.objects.identity import PYTORCH_API, REPLICA_INDEX_LABEL
from trainium_eks.jobs.objects.job import TrainingJob

CONTAINER = "pytorch"
"""Name by which the operator finds the container that counts."""

PORT_NAME = "pytorchjob-port"
"""Name of the port without which the operator adds another."""


def manifest(job: TrainingJob) -> dict[str, Any]:
    """Return the PyTorchJob."""
    policy: dict[str, Any] = {"minAvailable": job.nodes, "queue": job.queue}
    if job.options.priority:
        policy["priorityClass"] = job.options.priority
    worker = {"replicas": job.nodes, "restartPolicy": "ExitCode", "template": _template(job)}
    return {
        "apiVersion": PYTORCH_API,
        "kind": "PyTorchJob",
        "metadata": pod.kubeflow_metadata(job),
        "spec": {
            "nprocPerNode": str(job.ranks_per_node),
            # Pods that ended stay, with their logs; pods that wait for a finally failed one are deleted.
            "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": job.retries, "schedulingPolicy": policy},
            "pytorchReplicaSpecs": {"Worker": worker},
        },
    }


def _template(job: TrainingJob) -> dict[str, Any]:
    made = pod.kubeflow_pod(job, CONTAINER, place_by_label(f"{job.name}-worker-0"), REPLICA_INDEX_LABEL)
    del made["spec"]["restartPolicy"]  # the operator's, by the policy above
    made["spec"]["containers"][0]["ports"][0]["name"] = PORT_NAME
    return made
