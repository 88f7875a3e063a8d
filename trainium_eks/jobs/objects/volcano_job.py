"""The Volcano job of a gang, in two shapes: TorchX's, a task for each node, and one task with a pod for each node.

:func:`torchx_job` is the job that TorchX 0.7.0 makes of our component, field for field; a test compares them.
:func:`manifest` adds settings that TorchX cannot express: :data:`BEYOND_TORCHX`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from trainium_eks.jobs.objects import capacity_block
from trainium_eks.jobs.objects.command import ATTEMPT, ONE_TASK, PORT, RankWords, place_of_task, shell
from trainium_eks.jobs.objects.environment import environment
from trainium_eks.jobs.objects.identity import JOB_API, KIND_LABEL, REPLICA_LABEL, ROLE
from trainium_eks.jobs.objects.job import DATA, REFUSED, WORKSPACE, Topology, TrainingJob
from trainium_eks.jobs.objects.resources import RESERVED_MEMORY_MB, RESERVED_MILLICPU, Resources
from trainium_eks.jobs.objects.token_reference import token_variable, tracking_variables
from trainium_eks.model import scraping
from trainium_eks.model.annotations import Annotation, annotation
from trainium_eks.model.catalogue.instances import INSTANCE_TYPE_LABEL, NVIDIA_RESOURCE, ULTRASERVER
from trainium_eks.model.policies.admission import SCHEDULER

TORCHX_VERSION = "0.7.0"
"""Version of TorchX that makes the same object."""

BEYOND_TORCHX = (
    "metadata.namespace",
    "metadata.labels",
    "metadata.annotations",
    "spec.networkTopology",
    "tasks.partitionPolicy",
    "tasks.policies: exitCode",
    "template.metadata.labels: trainium-eks/kind, trainium-eks/metrics",
    "template.metadata.annotations: safe-to-evict, do-not-disrupt",
    "template.spec.affinity",
    "template.spec.terminationGracePeriodSeconds",
    "template.spec.securityContext",
    "template.spec.initContainers",
    "template.spec.volumes: dshm.sizeLimit, capacity-block, workspace, workspace-archive",
    "container.securityContext",
    "container.resources.requests: devices but GPUs",
    "container.terminationMessagePolicy",
    "container.env: TRN_ATTEMPT, HF_TOKEN, variables of --track-secret",
    "container.workingDir",
    "container.volumeMounts: capacity-block, workspace",
)
"""All differences between :func:`manifest` and the objects that TorchX 0.7.0 can make."""

LARGEST_BYTES = 400_000
"""Size of a job in TorchX's shape: about 130 nodes, fewer with many variables. etcd takes 1,572,864 bytes, with the
defaults and the record of owners that the API server adds, and Volcano's controllers read each job whole."""

ARCHIVE = "workspace.tar.gz"
"""Key of the ConfigMap of a job's files."""

_ARCHIVE_DIRECTORY = "/etc/trainium-eks"
_JOB_VERSION = "metadata.annotations['volcano.sh/job-version']"
_RESTARTS = ("PodEvicted", "PodFailed")
_NOT_MOVED = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}
"""Annotations that tell autoscalers to leave a pod on its node (Cluster Autoscaler's FAQ; Karpenter, disruption): one
pod that is moved ends its whole gang."""
_CONTAINER_SECURITY = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def manifest(job: TrainingJob) -> dict[str, Any]:
    """Return the job as ``trn`` submits it."""
    made = one_task_job(job) if is_one_task(job) else torchx_job(job)
    made["metadata"] |= {"namespace": job.namespace, "labels": _job_labels(job), "annotations": annotations(job)}
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
            _task(job, f"{ROLE}-{node}", 1, plain_pod(job, f"{ROLE}-{node}", place_of_task(node), env, labels))
        )
    return _volcano_job(job, tasks)


def one_task_job(job: TrainingJob) -> dict[str, Any]:
    """Return the job as one task, so that its size does not grow with its nodes."""
    pod = plain_pod(job, ROLE, ONE_TASK, _torchx_environment(job), _pod_labels(job))
    return _volcano_job(job, [_task(job, ROLE, job.nodes, pod)])


def workspace(job: TrainingJob, archive: str) -> dict[str, Any]:
    """Return the ConfigMap of a job's files."""
    metadata = {"name": job.workspace_name, "namespace": job.namespace, "labels": {KIND_LABEL: "workspace"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": {ARCHIVE: archive}}


def pod_overlay(job: TrainingJob) -> dict[str, Any]:
    """Return the part of :data:`BEYOND_TORCHX` that fits a pod of any role, as TorchX's nightly merges it into its own
    pods (``torchx.specs.overlays``: lists of named things are joined by their names). TorchX 0.7.0 ignores it."""
    spec = _pod_spec(job)
    return {"spec": {**spec, "__join__:volumes:name": [_shared_memory(job.resources, limited=True)]}}


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
            # Ranks follow the nodes' numbers: so do the pods, where each has a template of its own.
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


def plain_pod(
    job: TrainingJob, name: str, place: RankWords, env: Mapping[str, str], labels: Mapping[str, str]
) -> dict[str, Any]:
    """Return the template of a pod of the job, as far as TorchX can say it."""
    volumes = [_shared_memory(job.resources)]
    mounts: list[dict[str, object]] = [{"mountPath": "/dev/shm", "name": "dshm"}]
    if job.claim:
        volumes.append({"name": "mount-0", "persistentVolumeClaim": {"claimName": job.claim}})
        mounts.append({"mountPath": DATA, "name": "mount-0", "readOnly": False})
    ports: list[dict[str, object]] = [{"containerPort": PORT, "name": "c10d"}]
    if job.metrics_port:
        ports.append({"containerPort": job.metrics_port, "name": scraping.PORT_NAME})
    container = {
        "command": ["bash", "-c", shell(job, place)],
        "image": job.image,
        "name": name,
        "env": [{"name": key, "value": value} for key, value in env.items()],
        "resources": _requirements(job.resources),
        "ports": ports,
        "volumeMounts": mounts,
        "securityContext": {},
    }
    spec = {
        "containers": [container],
        "restartPolicy": "Never",
        "volumes": volumes,
        "nodeSelector": {INSTANCE_TYPE_LABEL: job.instance.name},
    }
    if job.service_account:
        spec["serviceAccountName"] = job.service_account
    # Some clusters inject a proxy that would never end.
    return {"metadata": {"annotations": {"sidecar.istio.io/inject": "false"}, "labels": dict(labels)}, "spec": spec}


def _requirements(resources: Resources) -> dict[str, dict[str, str]]:
    """Return requests and limits as TorchX makes them: of all devices it requests GPUs alone, the others are limits."""
    devices = _devices(resources)
    return {
        "limits": {"cpu": f"{resources.cpu * 1000}m", "memory": f"{resources.memory_mb}M", **devices},
        "requests": {
            "cpu": f"{resources.cpu * 1000 - RESERVED_MILLICPU}m",
            "memory": f"{resources.memory_mb - RESERVED_MEMORY_MB}M",
            **{name: amount for name, amount in devices.items() if name == NVIDIA_RESOURCE},
        },
    }


def _devices(resources: Resources) -> dict[str, str]:
    return {name: str(amount) for name, amount in resources.devices.items()}


def _shared_memory(resources: Resources, *, limited: bool = False) -> dict[str, Any]:
    size = {"sizeLimit": f"{resources.shared_memory_mib}Mi"} if limited else {}
    return {"name": "dshm", "emptyDir": {"medium": "Memory", **size}}


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


def _job_labels(job: TrainingJob) -> dict[str, str]:
    return {**_pod_labels(job), KIND_LABEL: job.kind}


def annotations(job: TrainingJob) -> dict[str, str]:
    """Return the annotations that the watching commands read from a job of any form."""
    found: dict[Annotation, str] = {
        "world-size": str(job.world_size),
        "nodes": str(job.nodes),
        "image": job.image,
        "script": str(job.program),
        "launcher": job.launcher,
        "cache-key": job.cache.key if job.cache else "",
        "capacity-block": job.capacity_block,
        "capacity-block-ends": job.capacity_ends,
    }
    return {annotation(name): value for name, value in found.items() if value}


def complete_pod(pod: dict[str, Any], job: TrainingJob) -> None:
    """Add the settings that TorchX cannot express to a pod's template, except for settings that Volcano alone knows."""
    labels = pod["metadata"]["labels"]
    labels[KIND_LABEL] = job.kind
    # Of a template for all nodes every pod has the label, and the others' numbers tell that they serve nothing.
    if job.metrics_port and labels.get(REPLICA_LABEL, "0") == "0":
        labels[scraping.LABEL] = "true"
    pod["metadata"]["annotations"] |= _NOT_MOVED
    spec = pod["spec"]
    spec |= _pod_spec(job)
    spec["volumes"][0] = _shared_memory(job.resources, limited=True)
    container = spec["containers"][0]
    # The API server makes requests of limits in pods alone. A gang's needs are summed up from its template's requests
    # (Volcano, pkg/controllers/util; Kubeflow's operators, too): without the devices it would be let into a queue that
    # has none for it, and while it has no pods nobody could say why it waits (decision 76).
    container["resources"]["requests"] |= _devices(job.resources)
    container["securityContext"] = dict(_CONTAINER_SECURITY)
    # The last lines of a failed container stand in the pod's status, where they outlive the log.
    container["terminationMessagePolicy"] = "FallbackToLogsOnError"
    if job.options.hf_secret:
        container["env"].append(token_variable(job.options.hf_secret))
    if job.options.track_secret:
        container["env"] += tracking_variables(job.options.track_secret, job.env)
    if job.capacity_block:
        capacity_block.add_volume(spec, job.capacity_block)
    if job.has_workspace:
        _add_workspace(spec, job)


def _pod_spec(job: TrainingJob) -> dict[str, Any]:
    """Return fields of the pod's spec, with the UID of the team, which owns the team's directories. The node's kernel
    filters system calls."""
    security: dict[str, Any] = {"seccompProfile": {"type": "RuntimeDefault"}}
    if job.user_id is not None:
        security |= {"runAsUser": job.user_id, "runAsGroup": job.user_id, "runAsNonRoot": True}
    return {"terminationGracePeriodSeconds": job.grace_seconds, "securityContext": security}


def _add_workspace(spec: dict[str, Any], job: TrainingJob) -> None:
    """Add the job's files, unpacked where its processes may write: a ConfigMap itself is read-only, and flat."""
    place = {"name": "workspace", "mountPath": WORKSPACE}
    container = spec["containers"][0]
    container["workingDir"] = WORKSPACE
    container["volumeMounts"].append(place)
    spec["volumes"] += [
        {"name": "workspace", "emptyDir": {}},
        {"name": "workspace-archive", "configMap": {"name": job.workspace_name}},
    ]
    spec["initContainers"] = [
        {
            "name": "workspace",
            "image": job.image,
            "command": ["tar", "-xzf", f"{_ARCHIVE_DIRECTORY}/{ARCHIVE}", "-C", WORKSPACE, "--no-same-owner"],
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
            "securityContext": dict(_CONTAINER_SECURITY),
            "volumeMounts": [place, {"name": "workspace-archive", "mountPath": _ARCHIVE_DIRECTORY, "readOnly": True}],
        }
    ]
