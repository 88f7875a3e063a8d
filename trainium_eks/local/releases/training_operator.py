"""Kubeflow's Training Operator as a real process, for a stack that installs it (``gpuAddons.trainers: [v1]``).

On AWS it comes by a kustomization (decision 8). A local cloud has the parts of it that PyTorchJobs need: their
definition and their webhook, out of the operator's own module. This process takes the place of its Deployment. It makes
its certificates itself, and they are put where it reads them, as the kubelet would.
"""

import base64
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from trainium_eks import whole_file
from trainium_eks.kube.api import Api, ApiError, ObjectReference
from trainium_eks.local import toolchain
from trainium_eks.local.control_plane import processes
from trainium_eks.local.control_plane.flags import HOST
from trainium_eks.local.control_plane.loopback import is_healthy
from trainium_eks.local.control_plane.ports import Settings
from trainium_eks.local.control_plane.processes import Running, writing
from trainium_eks.local.objects.apply import Objects
from trainium_eks.local.paths import Paths
from trainium_eks.local.patience import READY_SECONDS, await_answers
from trainium_eks.local.toolchain import go_command, sources, store
from trainium_eks.model.config import namespaces
from trainium_eks.plan.graph import Graph

NAME = "training-operator"
"""Name of the process, of its Service, and the end of the kustomization's name in a stack's plan."""

_SECRET, _WEBHOOKS = f"{NAME}-webhook-cert", f"validator.{NAME}.kubeflow.org"
_RESOURCE = "pytorchjobs"
_OURS = {"trainium-eks/local": NAME}
_CERTIFICATES = Path("k8s-webhook-server", "serving-certs")
# The definition of PyTorchJobs, and the webhooks from upstream: files of its module, of one document each.
_MANIFESTS = (f"manifests/base/crds/kubeflow.org_{_RESOURCE}.yaml", "manifests/base/webhook/manifests.yaml")


@dataclass(frozen=True)
class OperatorSource:
    """The operator's program and manifests, or the reason why they are missing."""

    program: Path | None = None
    manifests: tuple[Mapping[str, Any], ...] = ()
    missing: str = ""

    @staticmethod
    def of(graph: Graph, progress: Callable[[str], None], environment: Mapping[str, str]) -> "OperatorSource":
        """Return the source for a stack that installs the operator; an empty one for another stack."""
        if not is_wanted(graph):
            return OperatorSource()
        part = toolchain.TRAINING_OPERATOR
        if toolchain.is_off(part, environment):
            return OperatorSource(missing=f"{part.switch} is off")
        try:
            [program] = toolchain.provide(
                part, progress=progress, environment=environment, patience_seconds=toolchain.PATIENCE_SECONDS
            ).values()
            with store.writing(Path(tempfile.gettempdir())), tempfile.TemporaryDirectory(prefix="trn-part-") as scratch:
                base = sources.source(part, Path(scratch), environment)
                manifests = tuple(yaml.safe_load((base / file).read_text(encoding="utf-8")) for file in _MANIFESTS)
            return OperatorSource(program.path, manifests)
        except toolchain.UnavailableError as error:
            return OperatorSource(missing=f"{NAME} could not be found or built ({error.last})")
        except (go_command.GoError, store.UnwritableError) as error:
            return OperatorSource(missing=f"its definitions cannot be had: {str(error).splitlines()[0]}")


def is_wanted(graph: Graph) -> bool:
    """Return whether a stack installs the operator."""
    return any(each.name.endswith(f"-{NAME}") for each in graph.of_type("kubernetes:kustomize/v2:Directory"))


def settle(graph: Graph, paths: Paths, found: OperatorSource, phase: Callable[[str], None]) -> list[str]:
    """Bring the operator in line with the stack's program (it runs, or is gone), and return the notes for the user."""
    if is_wanted(graph):
        phase(f"Starting {NAME}")
        return [_Operator(paths, phase).run(found)]
    if _running(paths):
        _Operator(paths, phase).remove()
    return []


class _Operator:
    """The operator of a stack with a running control plane."""

    def __init__(self, paths: Paths, waiting: Callable[[str], None]) -> None:
        self._paths = paths
        self._waiting = waiting
        self._api = Api.connect(paths.kubeconfig)
        self._objects = Objects(self._api, waiting)
        self._home = paths.root / NAME

    def run(self, found: OperatorSource) -> str:
        """Start the operator, or restart it for another program, wait for its answer, and return the note for the
        user."""
        if found.program is None:
            self.remove()
            return f"PyTorchJobs are not run: {found.missing}"
        ports = Settings.load(self._paths).ports
        webhook, health = ports[NAME], ports[f"{NAME}.healthz"]
        command = self._command(found.program, webhook, health)
        before = _running(self._paths)
        if before and not (list(before.command) == command and found.program.stat().st_mtime <= before.started):
            processes.stop(self._paths, [NAME])
            before = None
        for manifest in _objects(found.manifests, webhook):
            self._objects.apply(manifest, timeout_seconds=READY_SECONDS)
        process = before or self._start(command)
        await_answers(self._paths, NAME, [process], lambda: self._not_ready(health), self._waiting)
        return f"The Training Operator runs for real{'' if before else ' (started)'}: PyTorchJobs go through Volcano"

    def remove(self) -> None:
        """End the operator, and delete the objects that were made for it."""
        processes.stop(self._paths, [NAME])
        home = ObjectReference("v1", "Namespace", "", namespaces.TRAINING_OPERATOR)
        found = self._api.get(home)
        if found is None or not _OURS.items() <= (found["metadata"].get("labels") or {}).items():
            return
        webhooks = "admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"
        self._api.delete(ObjectReference(*webhooks, "", _WEBHOOKS))
        definition = "apiextensions.k8s.io/v1", "CustomResourceDefinition"
        for each in (ObjectReference(*definition, "", f"{_RESOURCE}.kubeflow.org"), home):
            self._objects.delete(each, timeout_seconds=READY_SECONDS)

    def _command(self, program: Path, webhook: int, health: int) -> list[str]:
        return [
            str(program),
            f"--kubeconfig={self._paths.kubeconfig}",
            "--gang-scheduler-name=volcano",
            "--enable-scheme=pytorchjob",
            f"--webhook-server-port={webhook}",
            f"--health-probe-bind-address={HOST}:{health}",
            "--metrics-bind-address=0",
        ]

    def _start(self, command: list[str]) -> Running:
        with writing(self._home):
            (self._home / _CERTIFICATES).mkdir(parents=True, exist_ok=True, mode=0o700)
        environment = {"MY_POD_NAMESPACE": namespaces.TRAINING_OPERATOR, "TMPDIR": str(self._home)}
        return processes.start(self._paths, NAME, command, environment)

    # --- Waiting --------------------------------------------------------------------------------------------------

    def _not_ready(self, health: int) -> str:
        """Return the reason to wait; empty when its webhook answers."""
        if not self._mount():
            return f"{NAME} has not made its certificates"
        if not is_healthy(f"http://{HOST}:{health}/readyz"):
            return f"{NAME} is not ready"
        try:
            self._api.create(_PROBE, dry_run=True)
        except ApiError as error:
            return error.message
        return ""

    def _mount(self) -> bool:
        """Write the Secret's certificates where a kubelet would: the operator waits for them."""
        secret = self._api.get(ObjectReference("v1", "Secret", namespaces.TRAINING_OPERATOR, _SECRET))
        data = (secret or {}).get("data") or {}
        if not {"tls.crt", "tls.key"} <= data.keys():
            return False
        directory = self._home / _CERTIFICATES
        with writing(directory):
            # The certificate last: the operator looks for it.
            for name in ("tls.key", "tls.crt"):
                content, file = base64.b64decode(data[name]), directory / name
                if not file.exists() or file.read_bytes() != content:
                    whole_file.write(file, content)
        return True


def _running(paths: Paths) -> Running | None:
    return next((each for each in processes.running(paths) if each.name == NAME), None)


def _objects(upstream: tuple[Mapping[str, Any], ...], port: int) -> list[dict[str, Any]]:
    """Return the objects to apply, in this order."""
    definition, webhooks = upstream
    home = namespaces.TRAINING_OPERATOR
    mine = []
    for each in webhooks["webhooks"]:
        if each["rules"][0]["resources"] == [_RESOURCE]:
            here = {"name": NAME, "namespace": home, "port": port}
            mine.append({**each, "clientConfig": {"service": {**each["clientConfig"]["service"], **here}}})
    return [
        dict(definition),
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": home, "labels": dict(_OURS)}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": _SECRET, "namespace": home}},
        # The API server calls a webhook's Service by its name; this one leads to this machine's process.
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": NAME, "namespace": home},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        },
        {
            "apiVersion": webhooks["apiVersion"],
            "kind": webhooks["kind"],
            "metadata": {"name": _WEBHOOKS},
            "webhooks": mine,
        },
    ]


_PROBE = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "trn-probe", "namespace": "default"},
    "spec": {
        "pytorchReplicaSpecs": {
            "Worker": {"replicas": 1, "template": {"spec": {"containers": [{"name": "pytorch", "image": "none"}]}}}
        }
    },
}
