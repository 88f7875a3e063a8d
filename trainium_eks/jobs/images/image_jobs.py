"""Jobs on the CPU pool that build an image by buildah, for users without a container engine.

buildah builds rootless: in a user namespace, RUN steps in a chroot. That asks for nothing that the baseline level of
Pod Security forbids: no privileged container, no host path, no added capability, and seccomp left as the node has it.
It does need to make a user namespace, which containerd's default seccomp profile (``RuntimeDefault``) forbids, so the
profile stays unset, and EKS' nodes then apply none. BuildKit's rootless mode needs the same, and a daemon.
"""

import base64
import json
from typing import Any

from trainium_eks.aws.ecr import Login
from trainium_eks.jobs.images.images import DOCKERFILE, PLATFORM, Context
from trainium_eks.jobs.objects import team_pod
from trainium_eks.model.catalogue.versions import IMAGES
from trainium_eks.model.outputs import NamespaceOutput

Json = dict[str, Any]

KIND = "image-build"
CONTAINER = "image"
KEPT_SECONDS = 3600
"""Time that a finished job is kept to be looked at, and its short-lived login with it."""
DEADLINE_SECONDS = 6 * 3600
"""A login of ECR ends after twelve hours."""
MOST_CONTEXT_BYTES = 700 * 1024
"""Compressed: an object holds a mebibyte, and this one holds it as base64."""

_CONTEXT, _LOGIN, _WORK = "/context", "/login", "/work"
_ARCHIVE, _CONFIG = "context.tar.gz", "config.json"
_BUILDER_ID = 1000
"""User ``build`` of buildah's image, with subordinate user ids there."""
_BUILDER_STORAGE = "/home/build/.local/share/containers"

BUILD_SCRIPT = f"""\
reference=$1
shift
mkdir {_WORK}/files
tar -xzf {_CONTEXT}/{_ARCHIVE} -C {_WORK}/files
# Overlay in a user namespace takes a kernel of 5.13; without it every layer is a whole copy.
buildah info >/dev/null 2>&1 || export STORAGE_DRIVER=vfs
buildah build --isolation chroot --platform {PLATFORM} --authfile {_LOGIN}/{_CONFIG} "$@" \\
  --file {_WORK}/files/{DOCKERFILE} --tag "$reference" {_WORK}/files
buildah push --authfile {_LOGIN}/{_CONFIG} "$reference"
"""
"""Arguments: the image's reference, then options of ``buildah build``."""


def build_objects(
    namespace: NamespaceOutput, name: str, reference: str, made_of: Context, login: Login
) -> tuple[Json, tuple[Json, ...]]:
    """Return the Job that builds and pushes an image, and the objects that it needs; all have the same name.

    The context's archive has at most :data:`MOST_CONTEXT_BYTES`.
    """
    arguments = [part for key, value in made_of.arguments.items() for part in ("--build-arg", f"{key}={value}")]
    config_map = _object(namespace, name, "ConfigMap")
    config_map["binaryData"] = {_ARCHIVE: base64.b64encode(made_of.archive()).decode()}
    container = {
        "name": CONTAINER,
        "image": IMAGES["buildah"],
        "command": ["bash", "-euc", BUILD_SCRIPT, "build", reference, *arguments],
        "env": [{"name": "HOME", "value": "/home/build"}, {"name": "STORAGE_DRIVER", "value": "overlay"}],
        "resources": {
            # A Neuron image is 15 GiB in its layers, and as much again while they are unpacked and packed.
            "requests": {"cpu": "2", "memory": "4Gi", "ephemeral-storage": "50Gi"},
            "limits": {"memory": "8Gi"},
        },
        "volumeMounts": [
            {"name": "context", "mountPath": _CONTEXT, "readOnly": True},
            {"name": "login", "mountPath": _LOGIN, "readOnly": True},
            {"name": "work", "mountPath": _WORK},
            {"name": "storage", "mountPath": _BUILDER_STORAGE},
        ],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    items = [{"key": ".dockerconfigjson", "path": _CONFIG}]
    volumes: list[Json] = [
        {"name": "context", "configMap": {"name": name}},
        {"name": "login", "secret": {"secretName": name, "items": items, "defaultMode": 0o440}},
        {"name": "work", "emptyDir": {}},
        {"name": "storage", "emptyDir": {}},
    ]
    user = {"runAsNonRoot": True, **dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), _BUILDER_ID)}
    job = _object(namespace, name, "Job", "batch/v1")
    job["metadata"]["annotations"] = {"trainium-eks/image": reference}
    job["spec"] = {
        "backoffLimit": 2,
        "activeDeadlineSeconds": DEADLINE_SECONDS,
        "ttlSecondsAfterFinished": KEPT_SECONDS,
        "template": {
            "metadata": {"labels": dict(job["metadata"]["labels"])},
            "spec": team_pod.pod_spec(namespace, container, volumes, securityContext=user),
        },
    }
    # Docker's ``config.json``, which buildah reads.
    token = base64.b64encode(f"{login.user}:{login.password}".encode()).decode()
    config = json.dumps({"auths": {login.registry: {"auth": token}}})
    secret = _object(namespace, name, "Secret")
    secret["type"] = "kubernetes.io/dockerconfigjson"
    secret["data"] = {".dockerconfigjson": base64.b64encode(config.encode()).decode()}
    return job, (config_map, secret)


def _object(namespace: NamespaceOutput, name: str, kind: str, api_version: str = "v1") -> Json:
    metadata: Json = {"name": name, "namespace": namespace.name, "labels": team_pod.labels(KIND, name)}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}
