"""TensorBoard as a pod of the team: it reads a job's logs on the shared volume, and listens to its loopback alone."""

from typing import Any

from trainium_eks.jobs.objects import team_pod
from trainium_eks.jobs.objects.job import DATA
from trainium_eks.model.outputs import NamespaceOutput

PORT = 6006

MOST_SECONDS = 12 * 3600
"""Time after which a forgotten pod ends."""

CONTAINER = "tensorboard"

_LONGEST_NAME = 63


def pod_name(job: str) -> str:
    """Return the name of the pod for a job."""
    return f"tensorboard-{job}"[:_LONGEST_NAME].rstrip("-")


def log_directory(job: str, output: str = "") -> str:
    """Return the directory of a job's TensorBoard logs, below the job's output."""
    return f"{output or f'{DATA}/output/{job}'}/tensorboard"


def pod(job: str, directory: str, image: str, namespace: NamespaceOutput) -> dict[str, Any]:
    """Return the pod. It reaches nothing, and only a forwarded port reaches it, which ends at its own loopback."""
    container = {
        "name": CONTAINER,
        "image": image,
        "command": ["python3", "-m", "tensorboard.main"],
        "args": ["--logdir", directory, "--host", "127.0.0.1", "--port", str(PORT), "--reload_interval", "15"],
        "env": [{"name": "HOME", "value": "/tmp"}, {"name": "PYTHONUNBUFFERED", "value": "1"}],
        "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}},
        "securityContext": team_pod.container_security(),
        "volumeMounts": [
            {"name": "data", "mountPath": DATA, "readOnly": True},
            {"name": "scratch", "mountPath": "/tmp"},
        ],
    }
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": namespace.claim, "readOnly": True}},
        {"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}},
    ]
    ends = {"activeDeadlineSeconds": MOST_SECONDS, "terminationGracePeriodSeconds": 5}
    labels = team_pod.labels("tensorboard")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": pod_name(job), "namespace": namespace.name, "labels": labels},
        "spec": team_pod.pod_spec(namespace, container, volumes, **ends),
    }
