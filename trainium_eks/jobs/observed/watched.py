"""Listed jobs: Volcano's, Kubernetes' and the Training Operator's, in the same terms."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from trainium_eks.jobs.objects.identity import JOB_API, JOB_NAME_LABEL, KIND_LABEL, PYTORCH_API, TRAINER_API
from trainium_eks.jobs.observed.job_snapshot import ENDED, wanted_pods
from trainium_eks.kube.cluster import Object, labels_of, moment, name_of
from trainium_eks.kube.pod_text import whole
from trainium_eks.model.annotations import annotation
from trainium_eks.model.catalogue.instances import INSTANCE_TYPE_LABEL
from trainium_eks.model.policies.admission import QUEUE_ANNOTATION

_TORCHX_LABEL = "app.kubernetes.io/managed-by"
_PROCESSES = re.compile(r"--nproc[_-]per[_-]node[= ]{1,9}(\d{1,9})")
_INSTANCE_TYPE = re.compile(r"[a-z0-9.-]{1,63}")
_PYTORCH_STATES = {"Succeeded": "Completed", "Created": "Pending"}
_TRAINER_STATES = {"Complete": "Completed", "Failed": "Failed", "Suspended": "Pending"}
_POD_LABELS = {
    JOB_API: JOB_NAME_LABEL,
    PYTORCH_API: "training.kubeflow.org/job-name",
    TRAINER_API: "jobset.sigs.k8s.io/jobset-name",
}


@dataclass(frozen=True)
class WatchedJob:
    """One job of a namespace."""

    name: str
    kind: str
    """``train``, ``compile``, ``stage``, ``image-build``; ``torchx`` or ``volcano`` for jobs that ``trn`` did not
    submit; ``pytorchjob``, ``trainjob``."""
    queue: str
    """Queue; empty for a job of Kubernetes' own scheduler."""
    state: str
    """Volcano's phases for all: ``Pending``, ``Running``, ``Restarting``, ``Completed``, ``Failed``, ``Aborted``, …;
    ``Submitted`` before a controller has seen it."""
    nodes: int
    ranks_per_node: int | None
    """Processes on each; None where the job does not say."""
    running: int
    restarts: int
    most_restarts: int | None
    """Restarts after which it fails; None where nothing says."""
    created: datetime
    ended: datetime | None
    """None while it goes on."""
    source: Object = field(repr=False, compare=False)

    @property
    def pod_selector(self) -> str:
        """Return the label selector of its pods."""
        return f"{_POD_LABELS.get(str(self.source.get('apiVersion')), 'batch.kubernetes.io/job-name')}={self.name}"

    @property
    def tries(self) -> str:
        """Return the restarts so far, and the number after which the job fails: ``1/3``."""
        return str(self.restarts) if self.most_restarts is None else f"{self.restarts}/{self.most_restarts}"

    @property
    def trains(self) -> bool:
        """Return whether it is a gang of any form, in which rank 0 reports the run's progress."""
        return self.source.get("apiVersion") in _POD_LABELS

    @property
    def names_its_pods(self) -> bool:
        """Return whether its pods' names show their places; pods of Kubernetes' own jobs, and so of JobSet, have random
        endings."""
        return self.source.get("apiVersion") in (JOB_API, PYTORCH_API)

    @property
    def is_gang(self) -> bool:
        """Return whether it is a job of Volcano, with a queue and ranks."""
        return self.source.get("apiVersion") == JOB_API

    @property
    def instance_type(self) -> str:
        """Return the instance type that its pods select; empty where they name none, or write something else there."""
        specs = [template["spec"] for template in templates(self.source)]
        found = (str((spec.get("nodeSelector") or {}).get(INSTANCE_TYPE_LABEL, "")) for spec in specs)
        return next(filter(_INSTANCE_TYPE.fullmatch, found), "")

    def seconds(self, now: datetime) -> float:
        """Return the seconds that it took, or has been there."""
        return max(((self.ended or now) - self.created).total_seconds(), 0.0)

    def to_json(self) -> dict[str, Any]:
        """Return JSON for tools."""
        return {
            "name": self.name,
            "kind": self.kind,
            "queue": self.queue or None,
            "state": self.state,
            "instanceType": self.instance_type or None,
            "nodes": self.nodes,
            "ranksPerNode": self.ranks_per_node,
            "running": self.running,
            "restarts": self.restarts,
            "mostRestarts": self.most_restarts,
            "created": self.created.isoformat(),
            "ended": self.ended.isoformat() if self.ended else None,
        }


def watched(
    volcano: Iterable[Object],
    batch: Iterable[Object] = (),
    pytorch: Iterable[Object] = (),
    trainer: Iterable[Object] = (),
) -> list[WatchedJob]:
    """Return all jobs, the newest first."""
    found = [_of_volcano(job) for job in volcano]
    found += [_of_batch(job) for job in batch if KIND_LABEL in labels_of(job)]
    found += [_of_pytorch(job) for job in pytorch]
    found += [_of_trainer(job) for job in trainer]
    return sorted(found, key=lambda job: (job.created, job.name), reverse=True)


def owner_of(pod: Object) -> str:
    """Return the name of the gang that a pod belongs to; empty for another pod."""
    labels = labels_of(pod)
    return next((str(labels[label]) for label in _POD_LABELS.values() if label in labels), "")


def job_of(pod: Object) -> str:
    """Return the name of the Volcano job, or of another owner, that a pod belongs to; else the pod's own."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return str(labels_of(pod).get("volcano.sh/job-name") or next((each["name"] for each in owners), "") or name_of(pod))


def templates(job: Object) -> list[Object]:
    """Return the templates of the pods of a Volcano job or a PyTorchJob; those of a TrainJob are in its runtime."""
    parts = [*(job["spec"].get("tasks") or ()), *(job["spec"].get("pytorchReplicaSpecs") or {}).values()]
    return [part["template"] for part in parts]


def of(job: Object) -> WatchedJob:
    """Return a job of any of these kinds."""
    readers = {JOB_API: _of_volcano, PYTORCH_API: _of_pytorch, TRAINER_API: _of_trainer}
    return readers.get(str(job.get("apiVersion")), _of_batch)(job)


def _of_volcano(job: Object) -> WatchedJob:
    """Return a Volcano job."""
    status, spec = job.get("status") or {}, job["spec"]
    state = status.get("state") or {}
    phase = str(state.get("phase") or "")
    return WatchedJob(
        name_of(job),
        labels_of(job).get(KIND_LABEL)
        or ("torchx" if "torchx" in labels_of(job).get(_TORCHX_LABEL, "") else "volcano"),
        str(spec.get("queue") or "default"),
        phase or "Submitted",
        wanted_pods(job),
        ranks_per_node(job),
        int(status.get("running") or 0),
        int(status.get("retryCount") or 0),
        int(spec["maxRetry"]) if "maxRetry" in spec else None,
        moment(job["metadata"]["creationTimestamp"]),
        moment(state["lastTransitionTime"]) if phase in ENDED and "lastTransitionTime" in state else None,
        job,
    )


def ranks_per_node(job: Object) -> int | None:
    """Return the processes on each node: as ``trn`` noted, or from the command line; None without either."""
    noted = job["metadata"].get("annotations") or {}
    world, nodes = whole(noted.get(annotation("world-size"))), whole(noted.get(annotation("nodes")))
    if world is not None and nodes:
        return world // nodes
    for task in job["spec"].get("tasks") or ():
        for container in task["template"]["spec"].get("containers") or ():
            line = " ".join([*(container.get("command") or ()), *(container.get("args") or ())])
            if said := _PROCESSES.search(line):
                return int(said[1])
    return None


def _of_batch(job: Object) -> WatchedJob:
    """Return a job of Kubernetes that ``trn`` submitted: staging, or an image's build."""
    status, spec = job.get("status") or {}, job["spec"]
    state, ended = _batch_state(status)
    return WatchedJob(
        name_of(job),
        labels_of(job).get(KIND_LABEL, "job"),
        "",
        state,
        int(spec.get("parallelism") or 1),
        None,
        int(status.get("ready") or 0),
        int(status.get("failed") or 0),
        int(spec["backoffLimit"]) if "backoffLimit" in spec else None,
        moment(job["metadata"]["creationTimestamp"]),
        ended,
        job,
    )


def _batch_state(status: Mapping[str, Any]) -> tuple[str, datetime | None]:
    for condition in status.get("conditions") or ():
        if condition.get("status") == "True" and condition["type"] in ("Complete", "Failed"):
            state = "Completed" if condition["type"] == "Complete" else "Failed"
            return state, moment(condition["lastTransitionTime"])
    return ("Running" if status.get("ready") else "Pending"), None


def _of_pytorch(job: Object) -> WatchedJob:
    status, spec = job.get("status") or {}, job["spec"]
    last = next((each for each in reversed(status.get("conditions") or ()) if each.get("status") == "True"), None)
    state = _PYTORCH_STATES.get(last["type"], last["type"]) if last else "Submitted"
    replicas = (spec.get("pytorchReplicaSpecs") or {}).values()
    counts = (status.get("replicaStatuses") or {}).values()
    policy = spec.get("runPolicy") or {}
    return WatchedJob(
        name_of(job),
        "pytorchjob",
        str((policy.get("schedulingPolicy") or {}).get("queue") or ""),
        state,
        sum(int(each.get("replicas", 1)) for each in replicas),
        whole(spec.get("nprocPerNode")),
        sum(int(each.get("active") or 0) for each in counts),
        0,
        policy.get("backoffLimit"),
        moment(job["metadata"]["creationTimestamp"]),
        moment(last["lastTransitionTime"]) if last and state in ENDED else None,
        job,
    )


def _of_trainer(job: Object) -> WatchedJob:
    """Return a TrainJob. Its restarts are in its JobSet; its queue is in its runtime, and ``trn`` notes it."""
    status, trainer = job.get("status") or {}, job["spec"].get("trainer") or {}
    true = [each for each in status.get("conditions") or () if each.get("status") == "True"]
    last = next((each for each in true if each["type"] in _TRAINER_STATES), None)
    running = any(each.get("ready") and not each.get("succeeded") for each in status.get("jobsStatus") or ())
    state = _TRAINER_STATES[last["type"]] if last else "Running" if running else "Pending" if status else "Submitted"
    nodes = int(trainer.get("numNodes") or 1)
    return WatchedJob(
        name_of(job),
        "trainjob",
        str((job["metadata"].get("annotations") or {}).get(QUEUE_ANNOTATION) or ""),
        state,
        nodes,
        whole(trainer.get("numProcPerNode")),
        nodes if running else 0,
        0,
        None,
        moment(job["metadata"]["creationTimestamp"]),
        moment(last["lastTransitionTime"]) if last and state in ENDED else None,
        job,
    )
