"""The making of a pod's plan from its object. Uses nothing but its arguments."""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainium_eks.local.control_plane.processes import POD_VARIABLE
from trainium_eks.local.images import images
from trainium_eks.local.images.images import LocalImage
from trainium_eks.local.spec import environment, volumes
from trainium_eks.local.spec.known import Body, PlanInputs, UnmetError
from trainium_eks.local.spec.plan import Action, Container, Isolation, Mount, PodPlan, Probe, RestartPolicy
from trainium_eks.local.spec.volumes import File, Volume
from trainium_eks.model.annotations import MACHINE_PATH

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Search path for programs after the image's programs."""

_PROBES = ("startup", "readiness", "liveness")
_DRIVER = "/run/neuron_device"
"""Where containers of nodes in an UltraServer find what Neuron's driver would show; also the volume's name."""
_TERMINATION_LOG = "/dev/termination-log"

# Variables of Volcano's in a pod of a job: the names of the pods of a task.
_PEERS = re.compile(r"VC_.+_HOSTS")


@dataclass(frozen=True)
class StartablePod:
    """A pod that can be started."""

    plan: PodPlan
    files: tuple[File, ...]
    directories: tuple[str, ...]


def is_ours(pod: Body) -> bool:
    """Return whether a pod is run here: every one of its images is local."""
    spec = pod["spec"]
    every = (*(spec.get("initContainers") or ()), *spec["containers"])
    return all(images.is_local(each.get("image") or "") for each in every)


def planned(pod: Body, known: PlanInputs) -> StartablePod:
    """Return the plan for a pod's shim."""
    spec, metadata = pod["spec"], pod["metadata"]
    found = volumes.volumes(pod, known)
    if driver := volumes.driver(known):
        found[_DRIVER] = driver
    policy = RestartPolicy(spec.get("restartPolicy") or "Always")
    init = tuple(_container(each, pod, found, known, policy) for each in spec.get("initContainers") or ())
    containers = tuple(_container(each, pod, found, known, policy) for each in spec["containers"])
    grace = spec.get("terminationGracePeriodSeconds")
    files = tuple(file for volume in found.values() for file in volume.files)
    plan = PodPlan(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        hostname=hostname(pod),
        isolation=known.isolation,
        address=known.address,
        init=init,
        containers=containers,
        grace_seconds=30.0 if grace is None else float(grace),
        deadline_seconds=spec.get("activeDeadlineSeconds"),
        network_pid=known.network_pid if known.isolation is Isolation.NET else 0,
        memory_volumes={
            str(each.source): each.memory_bytes for each in found.values() if each.memory_bytes is not None
        },
    )
    return StartablePod(plan, files, tuple(sorted({str(each.source) for each in found.values()})))


def hostname(pod: Body) -> str:
    """Return the pod's host name."""
    return str(pod["spec"].get("hostname") or pod["metadata"]["name"])[:63].rstrip("-.")


def peers(variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the pods of the same job, from Volcano's variables."""
    named = (value for name, value in variables.items() if _PEERS.fullmatch(name))
    return tuple(sorted({peer.strip() for value in named for peer in value.split(",") if peer.strip()}))


def rewritten(text: str, mounts: Sequence[Mount], names: Sequence[str]) -> str:
    """Return the text for a pod without namespaces: the machine's paths for mounts, and its address for names of peers.

    A path is one where no other character of a path comes before and the name of a directory ends after it.
    """
    for mount in sorted(mounts, key=lambda each: -len(each.target)):
        # A backslash in a replacement would have a meaning.
        path = mount.path.replace("\\", r"\\")
        text = re.sub(rf"(?<![\w./-]){re.escape(mount.target)}(?![\w.-])", path, text)
    for name in sorted(names, key=len, reverse=True):
        text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)", "127.0.0.1", text)
    return text


def _container(
    body: Body, pod: Body, found: Mapping[str, Volume], known: PlanInputs, policy: RestartPolicy
) -> Container:
    name = body["name"]
    if body.get("restartPolicy"):
        why = "init containers with a restartPolicy (sidecars) are unsupported: make it one of the pod's containers"
        raise UnmetError("CreateContainerConfigError", why, name)
    image = known.find_image(body["image"])
    if image is None:
        why = f"Container image {body['image']!r} is not on this machine: {images.how_to_make(body['image'])}"
        raise UnmetError("ErrImageNeverPull", why, name)
    given = environment.variables(pod, body, known)
    made = _defaults(image, known) | given
    # The library's workloads stay importable, even if the container sets a path.
    made["PYTHONPATH"] = ":".join(filter(None, (given.get("PYTHONPATH"), str(known.workloads))))
    argv = environment.command(body, made)
    mounts = volumes.mounts(body, found, made)
    if _DRIVER in found:
        # Nothing can be mounted in sysfs itself.
        mounts = (*mounts, Mount(str(found[_DRIVER].source), _DRIVER, read_only=True))
        made["TRN_NEURON_SYSFS"] = _DRIVER
    log = str(known.directory.termination_log(name))
    own = (
        Mount(log, body.get("terminationMessagePath") or _TERMINATION_LOG),
        *(Mount(str(known.directory.path / file), f"/etc/{file}") for file in ("hosts", "hostname", "resolv.conf")),
    )
    directory = body.get("workingDir") or "/"
    hooks = body.get("lifecycle") or {}
    actions = {
        **{kind: _action(body.get(f"{kind}Probe"), body) for kind in _PROBES},
        **{kind: _action(hooks.get(kind), body) for kind in ("postStart", "preStop")},
    }
    if known.isolation is Isolation.PLAIN:
        scratch = str(known.directory.scratch(name))
        names = peers(given)
        seen = (*mounts, own[0])
        made |= {"HOME": scratch, "TMPDIR": scratch, "HOSTNAME": hostname(pod)}
        made = {key: rewritten(value, seen, names) for key, value in made.items()}
        argv = tuple(rewritten(each, seen, names) for each in argv)
        for kind, action in actions.items():
            if action is not None:
                words = tuple(rewritten(each, seen, names) for each in action.command)
                actions[kind] = replace(action, command=words)
        directory = rewritten(directory, seen, ()) if body.get("workingDir") else scratch
    probes = {kind: _probe(body.get(f"{kind}Probe"), actions[kind]) for kind in _PROBES}
    return Container(
        name=name,
        argv=argv,
        environment=made,
        directory=directory,
        mounts=(*own, *_hidden(image, pod, known), *mounts) if known.isolation is not Isolation.PLAIN else mounts,
        restart=policy,
        **probes,
        post_start=actions["postStart"],
        pre_stop=actions["preStop"],
        termination_log=log,
        message_from_log=body.get("terminationMessagePolicy") == "FallbackToLogsOnError",
        read_only_root=bool((body.get("securityContext") or {}).get("readOnlyRootFilesystem")),
    )


def _defaults(image: LocalImage, known: PlanInputs) -> dict[str, str]:
    made = {
        "PATH": f"{image.programs}:{SYSTEM_PATH}",
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        "VIRTUAL_ENV": str(image.path),
        POD_VARIABLE: str(known.directory.path),
        # The image and the machine are read-only within.
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    if known.proxy and known.isolation is Isolation.NET:
        for name in ("http_proxy", "https_proxy"):
            made |= {name: known.proxy, name.upper(): known.proxy}
        made["no_proxy"] = made["NO_PROXY"] = f"{known.api_server[0]},.svc,.cluster.local"
    return made


def _hidden(image: LocalImage, pod: Body, known: PlanInputs) -> tuple[Mount, ...]:
    """Return mounts of needed paths of the machine that a container's own directories, such as ``/tmp``, would hide."""
    needed = {str(image.path), sys.base_prefix, str(known.workloads)}
    given = (pod["metadata"].get("annotations") or {}).get(MACHINE_PATH, "")
    needed |= {os.path.normpath(given)} if os.path.isabs(given) and os.path.exists(given) else set()
    own = ("/tmp/", "/var/tmp/", "/run/", "/dev/")
    return tuple(Mount(path, path, read_only=True) for path in sorted(needed) if path.startswith(own))


def _probe(body: Body | None, action: Action | None) -> Probe | None:
    if body is None or action is None:
        return None
    grace = body.get("terminationGracePeriodSeconds")
    return Probe(
        action,
        initial_delay_seconds=float(body.get("initialDelaySeconds") or 0),
        period_seconds=float(body.get("periodSeconds") or 10),
        timeout_seconds=float(body.get("timeoutSeconds") or 1),
        success_threshold=int(body.get("successThreshold") or 1),
        failure_threshold=int(body.get("failureThreshold") or 3),
        grace_seconds=None if grace is None else float(grace),
    )


def _action(body: Body | None, container: Body) -> Action | None:
    if not body:
        return None
    if "exec" in body:
        return Action(command=tuple(body["exec"].get("command") or ()))
    if "httpGet" in body:
        asked = body["httpGet"]
        return Action(
            host=asked.get("host") or "",
            port=_port(asked["port"], container),
            http_path=asked.get("path") or "/",
            scheme=asked.get("scheme") or "HTTP",
            headers=tuple((each["name"], each["value"]) for each in asked.get("httpHeaders") or ()),
        )
    if "tcpSocket" in body:
        return Action(host=body["tcpSocket"].get("host") or "", port=_port(body["tcpSocket"]["port"], container))
    if "sleep" in body:
        return Action(sleep_seconds=float(body["sleep"]["seconds"]))
    if "grpc" in body:
        why = "gRPC probes are not known here: use exec, tcpSocket or httpGet"
        raise UnmetError("CreateContainerConfigError", why, container["name"])
    return None


def _port(port: Any, container: Body) -> int:
    if isinstance(port, int):
        return port
    for each in container.get("ports") or ():
        if each.get("name") == port:
            return int(each["containerPort"])
    raise UnmetError("CreateContainerConfigError", f"no port of the container is called {port!r}", container["name"])
