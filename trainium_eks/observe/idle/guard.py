"""The idle guard: one look at the cluster, and the actions due after it. Runs in a pod that has Python and nothing
else.

It reads nodes, pods and Volcano's PodGroups with the pod's own service account, and writes on nodes: since when they
are idle (:data:`SINCE`), and whether pods may come (``spec.unschedulable``). Instances to end are written to a file,
one a line; a container with the AWS CLI ends them, and lowers the Auto Scaling group's size with each.
"""

import http
import json
import os
import sys
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainium_eks.observe.idle.decision import IdleStep, Limits, Node, steps
from trainium_eks.topology.api import MERGE, NODES, ApiStatusError, Connection, Object

GROUP_LABEL = "eks.amazonaws.com/nodegroup"
"""Label of :mod:`trainium_eks.kube.cluster`, which the pod does not have; a test holds the two equal."""
SINCE = "trainium-eks/idle-since"
"""Annotation of a node: since when it is idle, as ``2026-11-22T11:46:09Z``. It is there while the node is idle."""
WARNED = "trainium-eks/idle-warned"
"""Annotation of a node that was warned of in this idleness."""
HELD = "trainium-eks/idle-held"
"""Annotation of a node that the guard cordoned; a node that a person cordoned is left alone."""

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SETTLE_SECONDS = 5.0
"""Seconds between holding a node and looking again whether a pod came before that."""

_POD_GROUPS = "/apis/scheduling.volcano.sh/v1beta1/podgroups"
_WAITING = ("", "Pending", "Inqueue", "Unknown")
"""Phases of a PodGroup that has not all its pods running (yet, or since it lost one)."""


def main(settings: Mapping[str, Any], api: Connection, to_remove: Path) -> None:
    """Look at the cluster, and a second time where nodes are due: nodes held since the first look and still idle are
    removed; the file gets their instances, one a line.

    Settings are ``groups`` (EKS name to ``minimum``, ``devices`` and ``removes``, false for warnings alone),
    ``warnSeconds``, and ``removeSeconds`` or null.
    """
    due = {step.node.name for step in look(settings, api) if step.action in ("hold", "remove")}
    if not due:
        return
    time.sleep(SETTLE_SECONDS)
    gone = [step for step in look(settings, api) if step.action == "remove" and step.node.name in due]
    for step in gone:
        _say(f"{step.node.name} ({step.node.instance}) is removed: {_for(step)}")
    to_remove.write_text("".join(f"{step.node.instance}\n" for step in gone), encoding="utf-8")


def look(settings: Mapping[str, Any], api: Connection) -> list[IdleStep]:
    """Read the cluster once, carry out the actions due on its nodes except for removals, and return all actions."""
    groups = settings["groups"]
    nodes = [each for each in api.items(NODES)[0] if _group(each) in groups]
    pods = [each for each in api.items("/api/v1/pods")[0] if not _is_over(each)]
    found = steps(
        time.time(),
        read(nodes, pods),
        waiting=waiting(groups, nodes, pods, _pod_groups(api)),
        minimum={name: group["minimum"] if group["removes"] else len(nodes) for name, group in groups.items()},
        limits=Limits(settings["warnSeconds"], settings["removeSeconds"]),
    )
    for step in found:
        _do(api, step)
    return found


def _pod_groups(api: Connection) -> list[Object]:
    try:
        return api.items(_POD_GROUPS)[0]
    except ApiStatusError as error:
        if error.status != http.HTTPStatus.NOT_FOUND:
            raise
        return []  # the cluster has no Volcano


def read(nodes: Iterable[Mapping[str, Any]], pods: Iterable[Mapping[str, Any]]) -> list[Node]:
    """Return nodes of guarded groups in the decision's terms, by the pods of all namespaces that are not over."""
    working = {pod["spec"].get("nodeName") for pod in pods if not _belongs_to_node(pod)}
    found = []
    for node in nodes:
        metadata, notes = node["metadata"], node["metadata"].get("annotations") or {}
        since = notes.get(SINCE)
        found.append(
            Node(
                metadata["name"],
                _group(node),
                busy=metadata["name"] in working,
                idle_since=datetime.fromisoformat(since).timestamp() if since else None,
                warned=WARNED in notes,
                held=HELD in notes,
                instance=str(node["spec"].get("providerID", "")).rpartition("/")[2],
            )
        )
    return found


def waiting(
    groups: Mapping[str, Any],
    nodes: Iterable[Mapping[str, Any]],
    pods: Iterable[Mapping[str, Any]],
    pod_groups: Iterable[Mapping[str, Any]],
) -> set[str]:
    """Return the groups with nodes that a pending gang, or a pending pod, could use.

    A gang that has no pods yet counts for every group with the devices it asks for; for every group where it names no
    devices, as the PodGroups of plain TorchX's jobs, where devices are limits alone (Volcano reads the requests of the
    job's template).
    """
    unbound = [pod for pod in pods if not pod["spec"].get("nodeName")]
    placed = {(pod["metadata"]["namespace"], _gang(pod)) for pod in unbound}
    asked = [
        (set(each["spec"].get("minResources") or {}), dict[str, str]())
        for each in pod_groups
        if (each.get("status") or {}).get("phase", "") in _WAITING
        and (each["metadata"]["namespace"], each["metadata"]["name"]) not in placed
    ]
    asked += [(_resources(pod), pod["spec"].get("nodeSelector") or {}) for pod in unbound if _has_devices(pod)]
    labels = [(_group(node), node["metadata"].get("labels") or {}) for node in nodes]
    return {
        group
        for resources, selector in asked
        for group, has in labels
        if _asks(resources, groups[group]["devices"]) and selector.items() <= has.items()
    }


def _asks(resources: Iterable[str], devices: Iterable[str]) -> bool:
    """Return whether any device is among the resources. A PodGroup names them as a quota does:
    ``requests.aws.amazon.com/neuron``."""
    named = {each.removeprefix("requests.") for each in resources}
    return not named.isdisjoint(devices) or not any("/" in each for each in named)


def _has_devices(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod asks for extended resources, which are resources with a domain."""
    return any("/" in each for each in _resources(pod))


def _resources(pod: Mapping[str, Any]) -> set[str]:
    return {
        resource
        for container in pod["spec"]["containers"]
        for kind in ("requests", "limits")
        for resource in (container.get("resources") or {}).get(kind) or ()
    }


def _gang(pod: Mapping[str, Any]) -> str:
    return str((pod["metadata"].get("annotations") or {}).get("scheduling.k8s.io/group-name", ""))


def _group(node: Mapping[str, Any]) -> str:
    return str((node["metadata"].get("labels") or {}).get(GROUP_LABEL, ""))


def _is_over(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _belongs_to_node(pod: Mapping[str, Any]) -> bool:
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(owner.get("kind") in ("DaemonSet", "Node") for owner in owners)


def _do(api: Connection, step: IdleStep) -> None:
    """Carry out an action on the node's object. Removal belongs to another container."""
    if step.action == "remove":
        return
    if step.action == "warn":
        _say(f"warning: {step.node.name} of {step.node.group} is {_for(step)}")
        api.send("POST", "/api/v1/namespaces/default/events", _event(step)).read()
    change: dict[str, Any] = {
        "mark": _notes({SINCE: _text(time.time())}),
        "clear": _notes({SINCE: None, WARNED: None}),
        "warn": _notes({WARNED: "true"}),
        "hold": {**_notes({HELD: "true"}), "spec": {"unschedulable": True}},
        "release": {**_notes({HELD: None}), "spec": {"unschedulable": None}},
    }[step.action]
    api.send("PATCH", f"{NODES}/{step.node.name}", change, content=MERGE).read()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _for(step: IdleStep) -> str:
    return f"idle for {step.idle_seconds / 60:.0f} minutes"


def _notes(notes: Mapping[str, str | None]) -> dict[str, Any]:
    return {"metadata": {"annotations": dict(notes)}}


def _event(step: IdleStep) -> dict[str, Any]:
    """Return an event of a node, which has no namespace: Kubernetes keeps such events in ``default``, by the node's
    name as its UID."""
    name, now = step.node.name, _text(time.time())
    return {
        "metadata": {"generateName": f"{name}.", "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": name, "uid": name},
        "reason": "IdleAccelerator",
        "message": f"{step.node.group}: {_for(step)}",
        "type": "Warning",
        "source": {"component": "idle-guard"},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


def _text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


if __name__ == "__main__":
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    main(json.loads(os.environ["SETTINGS"]), Connection(host, int(port), ACCOUNT), Path(sys.argv[1]))
