"""A trained model in use, as Kubernetes objects: a Deployment with a Service that answers, or a Job for a file.

The pods run ``trainium_workloads.serving`` from a training image, or vLLM from vLLM's image. They read the model on the
team's volume, as the team's user. On nodes with accelerators they go through the team's queue like all that asks for
devices: Volcano schedules them, one pod at a time.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainium_eks.jobs.objects import batch_jobs, team_pod
from trainium_eks.jobs.objects.identity import KIND_LABEL
from trainium_eks.jobs.objects.job import DATA, REFUSED
from trainium_eks.jobs.objects.team_pod import CPU_POOL, NAME_LABEL
from trainium_eks.jobs.serve.engines import Engine
from trainium_eks.kube.cluster import GROUP_LABEL
from trainium_eks.model.catalogue.backends import Backend, backend_of
from trainium_eks.model.catalogue.instances import INSTANCE_TYPE_LABEL, InstanceType
from trainium_eks.model.outputs import NamespaceOutput, NodeGroupOutput
from trainium_eks.model.policies.admission import QUEUE_ANNOTATION, SCHEDULER

Json = dict[str, Any]

SERVE, PREDICT = "serve", "predict"
"""Values of :data:`KIND_LABEL`."""
MODEL_ANNOTATION = "trainium-eks/model"
REQUEST_ANNOTATION = "trainium-eks/request"
"""Digest of the request."""

PORT = 8080
"""Port of the Service and of its pods: the local cloud leads names of services straight to pods."""
CONTAINER = "model"
MODEL = "model"
"""Directory of the trained model, below a job's output."""
GRAPHS = f"{DATA}/compile-cache/serving"
"""Directory of the graphs traced for a model, for its next pod."""

RETRIES = 6
"""Pods of a batch that may fail for a passing reason."""
KEPT_SECONDS = 7 * 24 * 3600
"""Time that a finished batch is kept to be looked at."""
GRACE_SECONDS = 60
"""Time to answer the last requests: LitServe's uvicorn takes 30 s for them, after :data:`LINGER_SECONDS`."""
LINGER_SECONDS = 5
"""Time of service after a pod's end was decided: requests come until all nodes know of it."""
_HEALTH = "/health"
"""Path that all three engines have."""
_PROBE_SECONDS = 5
_CPU_START_SECONDS, _DEVICE_START_SECONDS = 600, 3600
"""Time that the first answer may take: reading the image and the model, and on Neuron compiling each shape."""

_RESOURCES = {
    # BERT-base is 0.4 GB in FP32, PyTorch as much again; a generator of 1.5 billion parameters is 3 GB in BF16.
    "cpu": ("2", "2Gi", "8Gi"),
    # neuronx-cc takes some GB; an inf2.xlarge has 4 vCPUs and 16 GiB.
    "devices": ("2", "8Gi", "12Gi"),
    "local": ("500m", "512Mi", "3Gi"),
}
"""Requested CPUs and memory, and the limit of memory, by the kind of nodes."""
_VLLM_GIB = 32
"""Limit of a device's share: vLLM reads the weights through the CPU's memory."""
_THREADS, _LOCAL_THREADS = 2, 1


@dataclass(frozen=True)
class ServingNodes:
    """Nodes for pods with a model."""

    group: NodeGroupOutput | None = None
    """Nodes with accelerators; None for the CPU pool."""
    backend: Backend = "cpu"
    devices: int = 0
    resource: str = ""
    copies: int = 1
    """Cores that are used at once."""
    is_local: bool = False


def place(
    group: NodeGroupOutput | None, instance: InstanceType | None, devices: int, *, is_local: bool
) -> ServingNodes:
    """Return the nodes for the pods. The local cloud counts the devices and computes on the CPU."""
    if group is None or instance is None or not instance.device_resource:
        return ServingNodes(group, is_local=is_local)
    # Inferentia2 has the cores of Trn1, and PyTorch/XLA's tracing.
    backend = "xla" if instance.accelerator == "Inferentia2" else backend_of(instance)
    cores = instance.logical_neuron_cores // instance.accelerators if backend == "xla" else 0
    return ServingNodes(
        group,
        "cpu" if is_local else backend,
        devices,
        instance.device_resource,
        1 if is_local else max(cores * devices, 1),
        is_local,
    )


@dataclass(frozen=True)
class ModelService:
    """A model behind a Service."""

    name: str
    model: str
    """Directory on the volume, relative to its root."""
    image: str
    place: ServingNodes
    queue: str
    replicas: int = 1
    engine: Engine = "auto"

    @property
    def digest(self) -> str:
        """Return the digest of all fields that decide the pods."""
        where = self.place
        nodes = [where.group.name if where.group else CPU_POOL, where.backend, where.devices, where.copies]
        deciding = [self.model, self.image, nodes, self.queue, self.engine]
        return hashlib.sha256(json.dumps(deciding).encode()).hexdigest()[:16]

    def url(self, namespace: str) -> str:
        """Return the URL in the cluster."""
        return f"http://{self.name}.{namespace}.svc:{PORT}"


@dataclass(frozen=True)
class Batch:
    """A file with texts to predict."""

    name: str
    model: str
    input: str
    output: str
    image: str
    place: ServingNodes
    queue: str
    field: str = ""
    """Column or key with the text."""
    replace: bool = False


def default_name(kind: str, model: str, suffix: str = "") -> str:
    """Return a name with the model's words: at most 45 characters, since names of pods are longer by 17."""
    parts = [each for each in model.split("/") if each not in ("", MODEL, "output")]
    words = re.sub(r"[^a-z0-9]+", "-", (parts[-1] if parts else MODEL).lower()).strip("-")
    return "-".join(each for each in (kind, words[:29].strip("-"), suffix) if each)


def objects(served: ModelService, namespace: NamespaceOutput) -> tuple[Json, Json]:
    """Return the Deployment and the Service, which is reached from the namespace alone."""
    labels = team_pod.labels(SERVE, served.name)
    metadata = {"name": served.name, "namespace": namespace.name, "labels": labels}
    annotations = {MODEL_ANNOTATION: served.model, REQUEST_ANNOTATION: served.digest}
    on_devices = served.place.devices > 0
    container = _container(served.place, served.image)
    container |= _vllm(served, container) if served.engine == "vllm" else _server(served)
    container["ports"] = [{"name": "http", "containerPort": PORT}]
    container |= _probes(_DEVICE_START_SECONDS if on_devices else _CPU_START_SECONDS)
    # The server goes on for a while, and ours tell clients to open another connection; then SIGTERM ends it with the
    # requests that it has.
    linger = {"sleep": {"seconds": LINGER_SECONDS}}
    drain = {"httpGet": {"path": "/drain", "port": PORT}}
    container["lifecycle"] = {"preStop": linger if served.engine == "vllm" else drain}
    spec = _pod_spec(served.place, namespace, container, restart="Always", read_only=not on_devices)
    if served.engine == "vllm":
        # Its processes, one a device, share tensors there; a container's own has 64 MiB.
        spec["volumes"].append({"name": "shared", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}})
    own = {NAME_LABEL: served.name, KIND_LABEL: SERVE}
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    spec["topologySpreadConstraints"] = [{**spread, "labelSelector": {"matchLabels": own}}]
    # Another model takes over without a gap; on devices in place, for there may be none to spare.
    rolling = {"maxSurge": 0, "maxUnavailable": 1} if on_devices else {"maxSurge": 1, "maxUnavailable": 0}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {**metadata, "annotations": annotations},
        "spec": {
            "replicas": served.replicas,
            "selector": {"matchLabels": own},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
            "progressDeadlineSeconds": _DEVICE_START_SECONDS + 600,
            "revisionHistoryLimit": 2,
            "template": {"metadata": _pod_metadata(labels, served.place, served.queue), "spec": spec},
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "type": "ClusterIP",
            "selector": own,
            "ports": [{"name": "http", "port": PORT, "targetPort": PORT}],
        },
    }
    return deployment, service


def _server(served: ModelService) -> Json:
    """Return the command of our server, with its arguments."""
    words = ["--name", served.name, "--port", str(PORT), "--linger", str(LINGER_SECONDS)]
    if served.engine != "auto":
        words += ["--engine", served.engine]
    if served.place.backend == "xla":
        words += ["--copies", str(served.place.copies)]
    return {
        "command": ["python3", "-m", "trainium_workloads.serving.server"],
        "args": [f"{DATA}/{served.model}", *_device_arguments(served.place), *words],
    }


def _vllm(served: ModelService, container: Json) -> Json:
    """Return the fields of vLLM's container that differ from the other containers'."""
    devices = served.place.devices
    words = ["--served-model-name", served.name, "--port", str(PORT)]
    if devices > 1:
        words += ["--tensor-parallel-size", str(devices)]
    resources = container["resources"]
    limits = {**resources["limits"], "memory": f"{_VLLM_GIB * max(devices, 1)}Gi"}
    mounts = [*container["volumeMounts"], {"name": "shared", "mountPath": "/dev/shm"}]
    return {
        "command": ["vllm", "serve"],
        "args": [f"{DATA}/{served.model}", *words],
        "env": [*container["env"], *({"name": each, "value": "1"} for each in ("HF_HUB_OFFLINE", "DO_NOT_TRACK"))],
        "resources": {**resources, "limits": limits},
        "volumeMounts": mounts,
    }


def job(batch: Batch, namespace: NamespaceOutput) -> Json:
    """Return the Job that predicts a file."""
    labels = team_pod.labels(PREDICT, batch.name)
    container = _container(batch.place, batch.image)
    container["command"] = ["python3", "-m", "trainium_workloads.serving.batch"]
    container["args"] = [
        f"{DATA}/{batch.model}",
        f"{DATA}/{batch.input}",
        *("--to", f"{DATA}/{batch.output}"),
        *_device_arguments(batch.place),
        *(("--field", batch.field) if batch.field else ()),
        *(("--replace",) if batch.replace else ()),
    ]
    spec = _pod_spec(batch.place, namespace, container, restart="Never", read_only=False)
    metadata: Json = {"name": batch.name, "namespace": namespace.name, "labels": labels}
    metadata["annotations"] = {MODEL_ANNOTATION: batch.model}
    template = {"metadata": _pod_metadata(labels, batch.place, batch.queue), "spec": spec}
    return batch_jobs.manifest(metadata, template, RETRIES, [REFUSED], KEPT_SECONDS)


def _pod_metadata(labels: Mapping[str, str], where: ServingNodes, queue: str) -> Json:
    """Return metadata with the queue of pods that ask for devices: Volcano makes a PodGroup of it for them."""
    found: Json = {"labels": dict(labels)}
    if where.devices:
        found["annotations"] = {QUEUE_ANNOTATION: queue}
    return found


def _device_arguments(where: ServingNodes) -> list[str]:
    threads = _LOCAL_THREADS if where.is_local else _THREADS
    words = ["--backend", where.backend]
    if where.backend == "cpu":
        words += ["--threads", str(threads)]
    if where.backend == "xla":
        words += ["--graphs", GRAPHS]
    return words


def _container(where: ServingNodes, image: str) -> Json:
    env = {
        "PYTHONUNBUFFERED": "1",
        # The team's user is in no image's password file, and has no home there.
        "HOME": "/tmp",
        "LOGNAME": "serving",
        "OMP_NUM_THREADS": str(_LOCAL_THREADS if where.is_local else _THREADS),
        "TOKENIZERS_PARALLELISM": "false",
        # transformers would import it, which takes a third of the start: neither server computes with it.
        "USE_TORCH_XLA": "0",
    }
    if where.backend == "neuron":
        env["TORCH_NEURONX_NEFF_CACHE_DIR"] = GRAPHS
    cpu, memory, most = _RESOURCES["local" if where.is_local else "devices" if where.devices else "cpu"]
    devices = {where.resource: str(where.devices)} if where.devices else {}
    return {
        "name": CONTAINER,
        "image": image,
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "resources": {"requests": {"cpu": cpu, "memory": memory, **devices}, "limits": {"memory": most, **devices}},
        "securityContext": team_pod.container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "data", "mountPath": DATA}, {"name": "scratch", "mountPath": "/tmp"}],
    }


def _probes(start_seconds: int) -> Json:
    """Return probes of one path, which is there once the model has answered: our servers listen after a first answer,
    and vLLM after it has computed with the model to measure its memory."""
    asked = {"httpGet": {"path": _HEALTH, "port": PORT}}
    return {
        "startupProbe": {
            **asked,
            "periodSeconds": _PROBE_SECONDS,
            "timeoutSeconds": 3,
            "failureThreshold": start_seconds // _PROBE_SECONDS,
        },
        "readinessProbe": {**asked, "periodSeconds": _PROBE_SECONDS, "timeoutSeconds": 3, "failureThreshold": 2},
        "livenessProbe": {**asked, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 6},
    }


def _pod_spec(
    where: ServingNodes, namespace: NamespaceOutput, container: Json, *, restart: str, read_only: bool
) -> Json:
    claim: Json = {"claimName": namespace.claim}
    if read_only:
        container["volumeMounts"][0]["readOnly"] = True
        claim["readOnly"] = True
    volumes = [
        {"name": "data", "persistentVolumeClaim": claim},
        {"name": "scratch", "emptyDir": {"sizeLimit": "10Gi"}},
    ]
    changed: Json = {"restartPolicy": restart, "terminationGracePeriodSeconds": GRACE_SECONDS}
    if where.group is not None:
        # By the type admission knows whether a pod takes all devices of a node.
        changed["nodeSelector"] = {GROUP_LABEL: where.group.eks_name, INSTANCE_TYPE_LABEL: where.group.instance_type}
    if where.devices:
        changed["schedulerName"] = SCHEDULER
    return team_pod.pod_spec(namespace, container, volumes, **changed)
