"""Staging as Kubernetes objects: the Job that copies a data set to a team's volume, and the code that it runs.

The code travels in a ConfigMap, and installs its packages if the image lacks them, so that data can be staged before
the stack has a training image.
"""

import hashlib
import json
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from trainium_eks.jobs.objects import batch_jobs, team_pod
from trainium_eks.jobs.objects.job import DATA
from trainium_eks.jobs.objects.token_reference import reference_problem, token_variable
from trainium_eks.model.annotations import MACHINE_PATH
from trainium_eks.model.catalogue.versions import IMAGES
from trainium_eks.model.outputs import NamespaceOutput
from trainium_eks.model.validation.problems import Problem, nearest

Json = dict[str, Any]

KIND = "stage"
"""Value of the jobs' label for their kind."""
SOURCE_ANNOTATION, TO_ANNOTATION = "trainium-eks/source", "trainium-eks/to"
REQUEST_ANNOTATION = "trainium-eks/request"
"""Digest of the request: two jobs of one digest copy the same."""

CODE = "/code"
SCRATCH = "/scratch"
"""Mount path of a directory that ends with the pod, for packages and for the libraries' own files."""
CONTAINER = "stage"

RETRIES = 20
"""Pods that may fail for a passing reason. Each continues where the last one stopped, after a longer pause."""
KEPT_SECONDS = 24 * 3600
"""Time that a finished job is kept to be looked at."""
FOR_GOOD = (1, 2)
"""Exit codes of the copier after which another try would end the same way."""

_SCHEMES = ("s3", "https", "http", "hf", "file")
_REQUESTS = {"cpu": "1", "memory": "1Gi"}
_LIMITS = {"memory": "4Gi"}
"""boto3's pieces on their way, the Hub's chunks, and the list of files: a million of them are a gibibyte."""
_SCRATCH_SIZE = "2Gi"
"""Twelve times the installed packages."""


@dataclass(frozen=True)
class StageRequest:
    """A copy with its source, its destination and its options."""

    source: str
    """``s3://…``, ``https://…``, ``hf://…``, or ``file:///…`` on the local cloud."""
    to: str
    """Directory on the team's volume, relative to its root."""
    extract: bool = False
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    replace: bool = False
    workers: int | None = None
    endpoint: str = ""
    """Another server of the source's kind: an S3-compatible store, a mirror of the Hub."""
    token_secret: str = ""
    """Secret with the Hub's token, ``NAME`` or ``NAME:KEY``."""
    image: str = ""
    """Image with boto3 and huggingface_hub, or with pip; empty for the public Python image."""

    @property
    def arguments(self) -> list[str]:
        """Return the arguments for ``python -m trainium_workloads.stage``, with the volume as root."""
        flags = (("--extract", self.extract), ("--replace", self.replace))
        return [
            self.source,
            *("--to", self.to, "--root", DATA),
            *(flag for flag, wanted in flags if wanted),
            *(part for pattern in self.include for part in ("--include", pattern)),
            *(part for pattern in self.exclude for part in ("--exclude", pattern)),
            *(("--workers", str(self.workers)) if self.workers else ()),
        ]

    @property
    def digest(self) -> str:
        """Return the digest of all fields that decide the content."""
        deciding = [self.source, self.to, self.extract, self.include, self.exclude, self.endpoint]
        return hashlib.sha256(json.dumps(deciding).encode()).hexdigest()[:16]


def problems(request: StageRequest, namespace: NamespaceOutput, *, is_local: bool) -> list[Problem]:
    """Return the reasons why the request cannot be staged. Paths are the command's options."""
    found = _source_problems(request, is_local=is_local)
    if not namespace.claim:
        reason = f"the namespace {namespace.name} has no shared volume to stage to"
        found.append(Problem("--to", reason, "give the stack a `fileSystem`"))
    first = request.to.split("/")[0]
    inside = posixpath.normpath(request.to)
    if not request.to or inside != request.to or first in ("..", ".") or request.to.startswith("/"):
        reason = "it is not a directory below the volume's root"
        good = posixpath.normpath(f"/{request.to.removeprefix(DATA)}").lstrip("/") or "data/<name>"
        found.append(Problem("--to", reason, value=request.to, good=good))
    elif any(part.startswith(".stage") for part in request.to.split("/")):
        reason = "names that begin with .stage are the copier's own"
        found.append(Problem("--to", reason, "choose another name", value=request.to))
    wrong = reference_problem(request.token_secret) if request.token_secret else None
    return [*found, *([wrong] if wrong else [])]


def _source_problems(request: StageRequest, *, is_local: bool) -> list[Problem]:
    parts = urlsplit(request.source)
    if parts.scheme not in _SCHEMES:
        near = nearest(parts.scheme, _SCHEMES) if parts.scheme else ""
        fix = f"did you mean {near}://?" if near else "`trn stage --list` shows the data sets that have a name"
        allowed = tuple(f"{scheme}://…" for scheme in _SCHEMES)
        return [Problem("SOURCE", "it is neither a source nor a preset", fix, value=request.source, allowed=allowed)]
    if parts.scheme == "file" and not is_local:
        reason = "it is a file of this machine, which the cluster does not see"
        fix = "copy it to the team's S3 prefix first (aws s3 cp --recursive), and stage that"
        return [Problem("SOURCE", reason, fix, value=request.source)]
    if parts.scheme == "file":
        return _file_problems(Path(unquote(parts.path)), request.source)
    if parts.scheme in ("http", "https") and not is_local and not _is_let_out(request.source):
        reason = "the namespace's network policy lets pods out to port 443 alone"
        good = f"https://{parts.hostname}{parts.path}"
        return [Problem("SOURCE", reason, value=request.source, good=good)]
    return []


def _file_problems(path: Path, source: str) -> list[Problem]:
    """Return the problems of a path of this machine, as the Job's pod sees it (:data:`MACHINE_PATH`): the pod has
    directories in the place of some."""
    if not path.exists():
        return [Problem("SOURCE", "there is no such file or directory on this machine", "give its path", value=source)]
    for hidden in (DATA, CODE, SCRATCH, "/dev", "/proc", "/sys"):
        if path.is_relative_to(hidden):
            reason = f"it is below {hidden}, in whose place a pod has something else"
            return [Problem("SOURCE", reason, "copy it to another directory of this machine first", value=source)]
    return []


def _is_let_out(url: str) -> bool:
    """Return whether the namespace's network policies pass a URL: HTTPS anywhere, and services of the namespace."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    inside = "." not in host or host.endswith((".svc", ".svc.cluster.local"))
    return inside or (parts.scheme == "https" and parts.port in (None, 443))


def job_name(request: StageRequest, suffix: str) -> str:
    """Return a name with the directory's words: at most 63 characters with the suffix of its pods."""
    words = re.sub(r"[^a-z0-9]+", "-", request.to.lower().rpartition("/")[2]).strip("-")[:36].strip("-")
    return "-".join(part for part in (KIND, words, suffix) if part)


def objects(
    request: StageRequest,
    namespace: NamespaceOutput,
    name: str,
    *,
    region: str,
    code: Mapping[str, str],
) -> tuple[Json, Json]:
    """Return the ConfigMap with the code, and the Job."""
    keys = {path: path.replace("/", "__") for path in code}
    labels = team_pod.labels(KIND, name)
    metadata = {"name": name, "namespace": namespace.name, "labels": labels}
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "immutable": True,
        "data": {keys[path]: text for path, text in code.items()},
    }
    annotations = {
        SOURCE_ANNOTATION: request.source,
        TO_ANNOTATION: request.to,
        REQUEST_ANNOTATION: request.digest,
    }
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": namespace.claim}},
        {
            "name": "code",
            "configMap": {"name": name, "items": [{"key": key, "path": path} for path, key in keys.items()]},
        },
        {"name": "scratch", "emptyDir": {"sizeLimit": _SCRATCH_SIZE}},
    ]
    container = _container(request, region)
    spec = team_pod.pod_spec(namespace, container, volumes, terminationGracePeriodSeconds=10)
    pod_metadata: Json = {"labels": labels}
    if request.source.startswith("file://"):
        pod_metadata["annotations"] = {MACHINE_PATH: unquote(urlsplit(request.source).path)}
    template = {"metadata": pod_metadata, "spec": spec}
    metadata = {**metadata, "annotations": annotations}
    return config_map, batch_jobs.manifest(metadata, template, RETRIES, FOR_GOOD, KEPT_SECONDS)


def _container(request: StageRequest, region: str) -> Json:
    env = {
        "PYTHONPATH": CODE,
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": SCRATCH,
        "TMPDIR": SCRATCH,
        "TRN_STAGE_PACKAGES": f"{SCRATCH}/packages",
        "AWS_REGION": region,
        # The node's role is none of the team's.
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    if request.endpoint:
        env["HF_ENDPOINT" if request.source.startswith("hf:") else "AWS_ENDPOINT_URL_S3"] = request.endpoint
    variables: list[Json] = [{"name": name, "value": value} for name, value in env.items()]
    if request.token_secret:
        variables.append(token_variable(request.token_secret))
    return {
        "name": CONTAINER,
        "image": request.image or IMAGES["python"],
        "command": ["python3", "-m", "trainium_workloads.stage"],
        "args": request.arguments,
        "env": variables,
        "resources": {"requests": dict(_REQUESTS), "limits": dict(_LIMITS)},
        "securityContext": {**team_pod.container_security(), "readOnlyRootFilesystem": True},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "data", "mountPath": DATA},
            {"name": "code", "mountPath": CODE, "readOnly": True},
            {"name": "scratch", "mountPath": SCRATCH},
        ],
    }


def code_files(workloads: Path) -> dict[str, str]:
    """Return the copier's modules and requirements: path below the directory on ``PYTHONPATH`` to text."""
    package = workloads / "trainium_workloads"
    files = [package / name for name in ("__init__.py", "file_lock.py", "stage/requirements.txt")]
    files += sorted((package / "stage").glob("*.py"))
    return {file.relative_to(workloads).as_posix(): file.read_text(encoding="utf-8") for file in files}
