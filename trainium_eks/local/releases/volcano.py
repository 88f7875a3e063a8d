"""Volcano's real processes, where this machine has them.

The chart's pods are simulated, so gangs are not scheduled and queues are not checked, unless ``vc-scheduler``,
``vc-controller-manager`` and ``vc-webhook-manager`` are available
(:data:`trainium_eks.local.toolchain.VOLCANO`). Then they run here, each with its container's arguments from the
chart, and with the files of its volumes; only addresses, certificates and leader election are this machine's.
"""

import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

import psutil

from trainium_eks.kube.api import Api, ApiError, ObjectReference
from trainium_eks.local import toolchain
from trainium_eks.local.changes import LocalCloudError
from trainium_eks.local.control_plane import credentials, pki, processes
from trainium_eks.local.control_plane.flags import HOST
from trainium_eks.local.control_plane.loopback import is_healthy
from trainium_eks.local.control_plane.ports import Settings
from trainium_eks.local.control_plane.processes import Running, writing
from trainium_eks.local.paths import Paths
from trainium_eks.local.patience import await_answers
from trainium_eks.local.releases.webhooks import Answering, documents, head, parsed
from trainium_eks.model.sizing.queues import QUEUE_API

CHART = "volcano"
WEBHOOK_MANAGER = "vc-webhook-manager"
SCHEDULER = "vc-scheduler"
CONTROLLERS = "vc-controller-manager"

DEPLOYMENTS: Mapping[str, str] = {WEBHOOK_MANAGER: "admission", SCHEDULER: "scheduler", CONTROLLERS: "controllers"}
"""The suffix of each program's Deployment after the release's name, in the order of starting.

Controllers and scheduler come last because their own queues go through the webhooks.
"""

OWN_QUEUES = ("root", "default")
"""Queues that the scheduler makes when it starts; all others have ``root`` above them."""

# The environment variable that holds the digest of a running process's settings.
_FINGERPRINT = "TRN_FINGERPRINT"

# Arguments of a container that this machine replaces.
_REPLACED = frozenset(
    {
        "--ca-cert-file",
        "--enable-healthz",
        "--kubeconfig",
        "--leader-elect",
        "--leader-elect-resource-namespace",
        "--listen-address",
        "--healthz-address",
        "--port",
        "--tls-cert-file",
        "--tls-private-key-file",
        "--webhook-service-name",
        "--webhook-url",
    }
)


@dataclass(frozen=True)
class Process:
    """One of Volcano's programs as its container describes it."""

    name: str
    arguments: tuple[str, ...]
    """The chart's arguments, without the ones that this machine replaces; paths of mounted files are those here."""
    environment: Mapping[str, str]
    files: Mapping[Path, str]
    account: tuple[str, str] = ("", "")


@dataclass(frozen=True)
class Programs:
    """Volcano's programs on this machine."""

    paths: Mapping[str, Path] = field(default_factory=dict)
    """By name: all of them or none."""
    missing: str = "they were not looked for"

    @staticmethod
    def provided(progress: Callable[[str], None], environment: Mapping[str, str]) -> "Programs":
        """Return the programs from the toolchain."""
        if toolchain.is_off(toolchain.VOLCANO, environment):
            return Programs(missing=f"{toolchain.VOLCANO.switch} is off")
        try:
            binaries = toolchain.provide(
                toolchain.VOLCANO,
                progress=progress,
                environment=environment,
                patience_seconds=toolchain.PATIENCE_SECONDS,
            )
        except toolchain.UnavailableError as error:
            return Programs(missing=error.summary)
        return Programs({name: binary.path for name, binary in binaries.items()})


class Volcano:
    """Volcano's processes of a stack. One thread at a time."""

    def __init__(self, paths: Paths, api: Api, programs: Programs, waiting: Callable[[str], None]) -> None:
        self._paths = paths
        self._api = api
        self._waiting = waiting
        self._programs = programs.paths
        self._missing = programs.missing

    def answering(self, release: str, namespace: str) -> Answering:
        """Return the address that answers for the release's webhooks; empty without programs."""
        if not self._programs:
            return {}
        url = f"https://{HOST}:{Settings.load(self._paths).ports[WEBHOOK_MANAGER]}"
        authority = credentials.certificate_authority_data(self._paths)
        return {f"{namespace}/{release}-admission-service": {"url": url, "caBundle": authority}}

    def run(self, release: str, manifest: str) -> list[str]:
        """Start missing processes, restart changed ones, and wait until all of them answer.

        Without all the programs it ends the running ones.

        Return the notes for the user.
        """
        if not self._programs:
            self.stop()
            return [f"Volcano's pods are simulated, and nothing schedules its jobs: {self._missing}"]
        wanted = described(release, manifest, self._paths.volcano)
        ports = Settings.load(self._paths).ports
        running = {each.name: each for each in processes.running(self._paths)}
        before = {name: running[name] for name in DEPLOYMENTS if name in running}
        processes.stop(self._paths, [name for name in before if name not in wanted])
        # They miss what was let in before they watch again (volcano#5325), and read all jobs when they start.
        if CONTROLLERS in before and before[CONTROLLERS].started < running["kube-apiserver"].started:
            processes.stop(self._paths, [CONTROLLERS])
            del before[CONTROLLERS]
        now = {name: self._started(process, before.get(name), ports) for name, process in wanted.items()}
        started = [name for name, each in now.items() if before.get(name) is not each]
        waiting = self._waiting if started else lambda _: None
        await_answers(self._paths, "Volcano", [*now.values()], lambda: self._not_ready(now, ports), waiting)
        if started:
            # It looks for new kinds when it starts, otherwise each 30 s, and the quotas that follow would wait for that
            # (`trainium_eks.local.objects.apply`). In EKS a minute passes before the quotas are made.
            processes.restart(self._paths, "kube-controller-manager")
        verb = "runs for real" if not started else f"runs for real (started {', '.join(started)})"
        return [f"Volcano {verb}; its webhooks answer at https://{HOST}:{ports[WEBHOOK_MANAGER]}"]

    def stop(self) -> None:
        """End Volcano's processes."""
        processes.stop(self._paths, list(DEPLOYMENTS))

    def _started(self, process: Process, before: Running | None, ports: Mapping[str, int]) -> Running:
        command = [str(self._programs[process.name]), *process.arguments, *self._own_arguments(process, ports)]
        # A file of the same name may have new content, and a program may be of another version.
        program = self._programs[process.name].stat()
        files = list(process.files.values())
        told = [command, process.environment, files, process.account, program.st_mtime_ns, program.st_size]
        fingerprint = hashlib.sha256(json.dumps(told, sort_keys=True, default=dict).encode()).hexdigest()
        if before is not None:
            with contextlib.suppress(psutil.Error, OSError):
                if psutil.Process(before.pid).environ().get(_FINGERPRINT) == fingerprint:
                    return before
            processes.stop(self._paths, [process.name])
        with writing(self._paths.volcano):
            for file, content in process.files.items():
                file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                file.write_text(content)
        environment = {
            **process.environment,
            # Its socket for changes of the log level; by default it is the same for all stacks.
            "DEBUG_SOCKET_DIR": str(self._paths.volcano),
            _FINGERPRINT: fingerprint,
        }
        return processes.start(self._paths, process.name, command, environment)

    def _own_arguments(self, process: Process, ports: Mapping[str, int]) -> list[str]:
        name, kubeconfig = process.name, credentials.kubeconfig(self._paths, credentials.ADMINISTRATOR)
        if name == CONTROLLERS:
            kubeconfig = pki.service_account_kubeconfig(self._paths, name, *process.account)
        arguments = [f"--kubeconfig={kubeconfig}", "--enable-healthz=true"]
        arguments.append(f"--healthz-address={HOST}:{ports[f'{name}.healthz']}")
        if name != WEBHOOK_MANAGER:
            metrics = f"--listen-address={HOST}:{ports[f'{name}.metrics']}"
            # The dumper writes into the machine's /tmp.
            return [*arguments, "--leader-elect=false", metrics, *(["--cache-dumper=false"] * (name == SCHEDULER))]
        certificate, key, authority = pki.serving_certificate(self._paths, WEBHOOK_MANAGER, [HOST, "localhost"])
        return [
            *arguments,
            f"--listen-address={HOST}",
            f"--port={ports[WEBHOOK_MANAGER]}",
            f"--webhook-url=https://{HOST}:{ports[WEBHOOK_MANAGER]}",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
            f"--ca-cert-file={authority}",
        ]

    # --- Waiting --------------------------------------------------------------------------------------------------

    def _not_ready(self, running: Mapping[str, Running], ports: Mapping[str, int]) -> str:
        """Return the reason to wait; empty when all processes answer."""
        for name in running:
            health = f"http://{HOST}:{ports[f'{name}.healthz']}/healthz"
            # The webhook manager serves no health until it serves webhooks; a webhook is called itself below.
            if name != WEBHOOK_MANAGER and not is_healthy(health):
                return f"{name} is not healthy"
        if SCHEDULER in running:
            for queue in OWN_QUEUES:
                if self._api.get(ObjectReference(QUEUE_API, "Queue", "", queue)) is None:
                    return f"{SCHEDULER} has not made the queue {queue}"
        if WEBHOOK_MANAGER not in running:
            return ""
        probe = {"apiVersion": QUEUE_API, "kind": "Queue", "metadata": {"name": "trn-probe"}, "spec": {"weight": 1}}
        try:
            self._api.create(probe, dry_run=True)
        except ApiError as error:
            return error.message
        return ""


def described(release: str, manifest: str, directory: Path) -> dict[str, Process]:
    """Return each of Volcano's programs with its settings in the chart.

    The processes are in the order to start them. A container may not ask for a file that its ConfigMap does not have.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for document in documents(manifest):
        top = head(document)
        if top.get("kind") in ("ConfigMap", "Deployment"):
            found[top["kind"], top["metadata"]["name"]] = parsed(document)
    maps = {name: body.get("data") or {} for (kind, name), body in found.items() if kind == "ConfigMap"}
    wanted = {}
    for program, suffix in DEPLOYMENTS.items():
        deployment = found.get(("Deployment", f"{release}-{suffix}"))
        if deployment is not None:
            pod = deployment["spec"]["template"]["spec"]
            # The chart writes the older of the field's two names.
            account = pod.get("serviceAccountName") or pod.get("serviceAccount") or "default"
            namespace = deployment["metadata"].get("namespace", "")
            process = _process(program, pod, maps, directory / program)
            wanted[program] = replace(process, account=(namespace, account))
    return wanted


def _process(program: str, pod: Mapping[str, Any], maps: Mapping[str, Any], directory: Path) -> Process:
    container = pod["containers"][0]
    config_maps = {
        volume["name"]: volume["configMap"]["name"] for volume in pod.get("volumes") or [] if "configMap" in volume
    }
    mounts = {
        PurePosixPath(mount["mountPath"]): config_maps[mount["name"]]
        for mount in container.get("volumeMounts") or []
        if mount["name"] in config_maps
    }
    arguments, files = [], {}
    for argument in container.get("args") or []:
        flag, given, value = str(argument).partition("=")
        # The chart ends its arguments with `2>&1`, which no shell reads.
        if flag in _REPLACED or not flag.startswith("-"):
            continue
        path = PurePosixPath(value)
        if path.parent in mounts:
            data = maps.get(mounts[path.parent]) or {}
            if path.name not in data:
                raise LocalCloudError(
                    f"{program}: the ConfigMap {mounts[path.parent]} of Volcano's chart has no {path.name}"
                )
            files[directory / path.name] = data[path.name]
            value = str(directory / path.name)
        arguments.append(f"{flag}{given}{value}")
    # Values from a field of the pod (its memory limit) have no meaning here.
    environment = {each["name"]: str(each["value"]) for each in container.get("env") or [] if "value" in each}
    return Process(program, tuple(arguments), environment, files)
