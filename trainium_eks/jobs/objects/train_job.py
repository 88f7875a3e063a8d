"""The TrainJob of a gang, for Kubeflow Trainer v2 (``gpuAddons.trainers: [v2]``), with a runtime for each job.

The runtimes of Trainer's chart name no gang scheduler, and a team's namespace refuses pods that go past Volcano
(decision 21). So each job brings a TrainingRuntime, which sets the pod, Volcano, the queue and the restarts. JobSet
starts all nodes anew after a fault of one, as Volcano does, and counts.
"""

from typing import Any

from trainium_eks.jobs.objects import pod
from trainium_eks.jobs.objects.command import ATTEMPT, place_by_label
from trainium_eks.jobs.objects.identity import COMPLETION_INDEX_LABEL, RESTART_LABEL, TRAINER_API
from trainium_eks.jobs.objects.job import REFUSED, TrainingJob
from trainium_eks.model.policies.admission import QUEUE_ANNOTATION

NODE = "node"
"""Trainer's name for the job of the nodes, and its container."""

_ANCESTOR = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
_FAILED_FOR_GOOD = "PodFailurePolicy"
"""Reason of a Kubernetes Job that its policy for exit codes has ended."""


def manifests(job: TrainingJob) -> list[dict[str, Any]]:
    """Return the runtime, and the TrainJob that refers to it."""
    metadata = pod.kubeflow_metadata(job)
    metadata["annotations"][QUEUE_ANNOTATION] = job.queue
    trainer = {"numNodes": job.nodes, "numProcPerNode": job.ranks_per_node}
    reference = {"apiGroup": TRAINER_API.partition("/")[0], "kind": "TrainingRuntime", "name": job.name}
    train_job = {
        "apiVersion": TRAINER_API,
        "kind": "TrainJob",
        "metadata": metadata,
        "spec": {"runtimeRef": reference, "trainer": trainer},
    }
    return [_runtime(job, {**metadata, "annotations": {}}), train_job]


def _runtime(job: TrainingJob, metadata: dict[str, Any]) -> dict[str, Any]:
    volcano: dict[str, Any] = {}
    if job.topology is not None:
        volcano["networkTopology"] = {"mode": job.topology.mode, "highestTierAllowed": job.topology.tier}
    # Trainer's Volcano plugin reads the queue here, and the priority from the pod.
    template = {"metadata": {"annotations": {QUEUE_ANNOTATION: job.queue}}, "spec": _job_set(job)}
    return {
        "apiVersion": TRAINER_API,
        "kind": "TrainingRuntime",
        "metadata": metadata,
        "spec": {
            "mlPolicy": {"numNodes": job.nodes, "torch": {}},
            "podGroupPolicy": {"volcano": volcano},
            "template": template,
        },
    }


def _job_set(job: TrainingJob) -> dict[str, Any]:
    for_good = {"containerName": NODE, "operator": "In", "values": [REFUSED]}
    nodes = {
        # One fault of one pod is a fault of the gang; JobSet counts the gang's faults.
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": for_good}]},
        "completionMode": "Indexed",
        "template": _template(job),
    }
    rules = [{"name": "refused", "action": "FailJobSet", "onJobFailureReasons": [_FAILED_FOR_GOOD]}]
    return {
        # The nth fault ends a Volcano job: one restart less.
        "failurePolicy": {"maxRestarts": job.retries - 1, "rules": rules},
        # JobSet's defaults, said here because the nodes meet by them: names of pods, known before they are ready.
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        "replicatedJobs": [{"name": NODE, "template": {"metadata": {"labels": dict(_ANCESTOR)}, "spec": nodes}}],
    }


def _template(job: TrainingJob) -> dict[str, Any]:
    # JobSet's names: <set>-<job>-<its number>-<pod's number>, below a service of the set's name.
    place = place_by_label(f"{job.name}-{NODE}-0-0.{job.name}")
    made = pod.kubeflow_pod(job, NODE, place, COMPLETION_INDEX_LABEL)
    made["spec"]["containers"][0]["env"].append(pod.variable_of_label(ATTEMPT, RESTART_LABEL))
    return made
