"""Identity of a job's pods: node ranks, and the selectors that find the pods.

A gang is a Volcano job of one of two shapes: TorchX's, a task for each node (``trainer-0``, ``trainer-1``, … with one
pod each), or one task, ``trainer``, with a pod for each node. Or it is a PyTorchJob, or a TrainJob. Pure functions on
objects as the API server gives them.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from trainium_eks.model.annotations import annotation

JOB_API = "batch.volcano.sh/v1alpha1"

PYTORCH_API = "kubeflow.org/v1"

TRAINER_API = "trainer.kubeflow.org/v1alpha1"

ROLE = "trainer"
"""Name of the role in TorchX's words, and prefix of its tasks' names."""

JOB_NAME_LABEL = "volcano.sh/job-name"
"""Label of a pod: its job. Volcano's controllers set it."""

TASK_INDEX_LABEL = "volcano.sh/task-index"
"""Label of a pod: its number in its task. Volcano's controllers set it."""

REPLICA_LABEL = "torchx.pytorch.org/replica-id"
"""Label of a pod of a job in TorchX's shape: its node rank."""

REPLICA_INDEX_LABEL = "training.kubeflow.org/replica-index"
"""Label of a pod of a PyTorchJob: its number among the workers. The Training Operator sets it."""

COMPLETION_INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
"""Label of a pod of an indexed Kubernetes Job, as JobSet makes for a TrainJob: its number."""

RESTART_LABEL = "jobset.sigs.k8s.io/restart-attempt"
"""Label of a pod of a JobSet: number of the set's restarts."""

KIND_LABEL = "trainium-eks/kind"
"""Label of objects that ``trn`` submits: ``train`` or ``compile``; absent on jobs of plain ``torchx run``."""


def node_rank(pod: Mapping[str, Any]) -> int:
    """Return the node's number in its gang, from 0; rank 0 of the training is on node 0."""
    metadata = pod["metadata"]
    labels: Mapping[str, str] = metadata.get("labels") or {}
    for label in (REPLICA_LABEL, TASK_INDEX_LABEL, REPLICA_INDEX_LABEL, COMPLETION_INDEX_LABEL):
        if labels.get(label, "").isdecimal():
            return int(labels[label])
    # Of a Volcano that labels less: `<job>-trainer-<rank>-0`, or `<job>-trainer-<rank>`.
    named = re.search(rf"-{ROLE}-(\d+)(-0)?$", str(metadata.get("name", "")))
    if named is None:
        raise ValueError(f"pod {metadata.get('name')} is not part of a training job")
    return int(named[1])


def by_process_rank(pods: Iterable[Mapping[str, Any]], launcher: str = "torchrun") -> list[Mapping[str, Any]]:
    """Return the pods of a job in the order of the ranks that run on them: the first has ranks 0 to n-1, the next n to
    2n-1.

    torchrun's rendezvous numbers nodes by the text of their host names (``sorted(state.participants)`` in torch's
    ``dynamic_rendezvous.py``), so that node 10 comes before node 2. Node 0 is first in both."""
    return sorted(pods, key=node_rank if launcher == "gang" else _host)


def launcher_of(job: Mapping[str, Any]) -> str:
    """Return the launcher of a job's ranks."""
    return str((job["metadata"].get("annotations") or {}).get(annotation("launcher"), "torchrun"))


def in_rank_order(job: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return a job's pods, the pod of rank 0 first; in the order of their names where these have no ranks."""
    pods = [*pods]
    try:
        return by_process_rank(pods, launcher_of(job))
    except ValueError:
        return sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))


def _host(pod: Mapping[str, Any]) -> str:
    """Return the host name for comparison: each is followed by a dot and the job's domain."""
    name = (pod.get("spec") or {}).get("hostname") or pod["metadata"]["name"]
    return f"{name}."
