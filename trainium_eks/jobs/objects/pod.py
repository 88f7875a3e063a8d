"""The pod of a job's nodes, shared by all kinds of job: as TorchX makes it, and with the settings that TorchX lacks.

Needs the standard library and the catalogue alone, for TorchX's component.
"""

from collections.abc import Mapping
from typing import Any

from trainium_eks.jobs.objects import capacity_block
from trainium_eks.jobs.objects.command import NODE_RANK, PORT, RankWords, shell
from trainium_eks.jobs.objects.environment import environment
from trainium_eks.jobs.objects.identity import KIND_LABEL, REPLICA_LABEL
from trainium_eks.jobs.objects.job import DATA, WORKSPACE, TrainingJob
from trainium_eks.jobs.objects.resources import RESERVED_MEMORY_MB, RESERVED_MILLICPU, Resources
from trainium_eks.jobs.objects.token_reference import token_variable, tracking_variables
from trainium_eks.model import scraping
from trainium_eks.model.annotations import Annotation, annotation
from trainium_eks.model.catalogue.instances import INSTANCE_TYPE_LABEL, NVIDIA_RESOURCE
from trainium_eks.model.policies.admission import SCHEDULER

ARCHIVE = "workspace.tar.gz"
"""Key of the ConfigMap of a job's files."""

_ARCHIVE_DIRECTORY = "/etc/trainium-eks"
_NOT_MOVED = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}
"""Annotations that tell autoscalers to leave a pod on its node (Cluster Autoscaler's FAQ; Karpenter, disruption): one
pod that is moved ends its whole gang."""
_CONTAINER_SECURITY = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def torchx_pod(
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
        capacity_block.add_volume(spec, job.capacity_block, job.capacity_group)
    if job.has_workspace:
        _add_workspace(spec, job)


def kubeflow_pod(job: TrainingJob, name: str, place: RankWords, rank_label: str) -> dict[str, Any]:
    """Return the template of a pod with the container ``name`` for a Kubeflow controller, which labels each pod with
    the number of its node. For Volcano's own jobs its controllers set scheduler and priority."""
    pod = torchx_pod(job, name, place, environment(job), _app_labels(job))
    complete_pod(pod, job)
    spec = pod["spec"]
    spec["schedulerName"] = SCHEDULER
    if job.options.priority:
        spec["priorityClassName"] = job.options.priority
    spec["containers"][0]["env"].append(variable_of_label(NODE_RANK, rank_label))
    return pod


def kubeflow_metadata(job: TrainingJob) -> dict[str, Any]:
    """Return the metadata of a Kubeflow controller's job."""
    labels = {**_app_labels(job), KIND_LABEL: job.kind}
    return {"name": job.name, "namespace": job.namespace, "labels": labels, "annotations": annotations(job)}


def _app_labels(job: TrainingJob) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": job.app,
        "app.kubernetes.io/instance": job.name,
        "app.kubernetes.io/managed-by": "trn",
    }


def variable_of_label(variable: str, label: str) -> dict[str, Any]:
    """Return a variable with the value of a label of the pod."""
    return {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{label}']"}}}


def pod_overlay(job: TrainingJob) -> dict[str, Any]:
    """Return the settings of any role's pod that TorchX 0.7.0 lacks, as its nightly merges them into its own pods
    (``torchx.specs.overlays``: lists of named things are joined by their names)."""
    spec = _pod_spec(job)
    return {"spec": {**spec, "__join__:volumes:name": [_shared_memory(job.resources, limited=True)]}}


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
        "capacity-block-group": job.capacity_group,
    }
    return {annotation(name): value for name, value in found.items() if value}


def workspace(job: TrainingJob, archive: str) -> dict[str, Any]:
    """Return the ConfigMap of a job's files."""
    metadata = {"name": job.workspace_name, "namespace": job.namespace, "labels": {KIND_LABEL: "workspace"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": {ARCHIVE: archive}}


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
