"""A pod's status for the API server, made from the state that its shim writes."""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from trainium_eks.local.spec.known import Body, UnmetError


def status(
    pod: Body,
    state: Mapping[str, Any] | None,
    *,
    host_ip: str,
    address: str,
    image_ids: Mapping[str, str],
    unmet: UnmetError | None = None,
) -> dict[str, Any]:
    """Return a pod's complete status.

    Conditions of the pod keep their times while they stay the same. The state is the shim's, None before there is one;
    the image ids are by the name that containers use.
    """
    spec, before = pod["spec"], pod.get("status") or {}
    told = (state or {}).get("containers") or {}
    init, main = spec.get("initContainers") or (), spec["containers"]
    statuses = {
        each["name"]: _container(pod, each, told.get(each["name"]), image_ids, unmet) for each in (*init, *main)
    }
    phase = _phase(state, [statuses[each["name"]] for each in main])
    over = phase in ("Succeeded", "Failed")
    if over:
        for each in statuses.values():
            each["ready"], each["started"] = False, False
    initialized = bool((state or {}).get("initialized")) or (not init and unmet is None and state is not None)
    ready = not over and all(statuses[each["name"]]["ready"] for each in main)
    made: dict[str, Any] = {
        "phase": phase,
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "startTime": before.get("startTime") or rfc3339(time.time()),
        "containerStatuses": [statuses[each["name"]] for each in main],
        "conditions": _conditions(
            pod, phase, initialized=initialized, ready=ready, has_sandbox=bool(told) and not over
        ),
    }
    if init:
        made["initContainerStatuses"] = [statuses[each["name"]] for each in init]
    if address:
        made |= {"podIP": address, "podIPs": [{"ip": address}]}
    if reason := (state or {}).get("reason"):
        made |= {"reason": reason, "message": (state or {}).get("message") or ""}
    return made


def lost_state(state: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Return the final state of a pod without a shim that is not started again."""
    containers = {}
    for name, each in (state.get("containers") or {}).items():
        containers[name] = each
        if each["state"] != "terminated":
            containers[name] = {
                **each,
                "state": "terminated",
                "exitCode": 137,
                "reason": "ContainerStatusUnknown",
                "message": "The container could not be located when the pod was terminated",
                "startedAt": each.get("startedAt") or now,
                "finishedAt": now,
                "ready": False,
                "started": False,
            }
    return {**state, "containers": containers, "ended": True}


def unknown(pod: Body) -> dict[str, Any]:
    """Return the state of a pod that ran and has no files left on this machine."""
    spec = pod["spec"]
    every = (*(spec.get("initContainers") or ()), *spec["containers"])
    return {
        "reason": "",
        "message": "",
        "initialized": True,
        "containers": {
            each["name"]: {"state": "running", "restartCount": 0, "ready": False, "started": False, "last": None}
            for each in every
        },
    }


def is_reported(made: Mapping[str, Any], told: Mapping[str, Any]) -> bool:
    """Return whether the API server has a status already; its additional fields do not count."""
    return all(_without_nothing(value) == _without_nothing(_part(told, key, value)) for key, value in made.items())


def rfc3339(seconds: float) -> str:
    """Return a time as Kubernetes writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _phase(state: Mapping[str, Any] | None, main: Iterable[Body]) -> str:
    if state is None:
        return "Pending"
    main = list(main)
    if state.get("ended"):
        codes = [(each["state"].get("terminated") or {}).get("exitCode") for each in main]
        failed = state.get("reason") or any(code != 0 for code in codes)
        return "Failed" if failed else "Succeeded"
    if not state.get("initialized"):
        return "Pending"
    waiting = [each for each in main if "waiting" in each["state"]]
    restarted = any(each["restartCount"] for each in main)
    return "Pending" if len(waiting) == len(main) and not restarted else "Running"


def _container(
    pod: Body, body: Body, told: Mapping[str, Any] | None, image_ids: Mapping[str, str], unmet: UnmetError | None
) -> dict[str, Any]:
    made: dict[str, Any] = {
        "name": body["name"],
        "image": body["image"],
        "imageID": image_ids.get(body["image"], ""),
        "ready": False,
        "started": False,
        "restartCount": 0,
    }
    if told is None:
        waiting = {"reason": "ContainerCreating"}
        if unmet is not None and unmet.container in ("", body["name"]):
            waiting = {"reason": unmet.reason, "message": unmet.message}
        return {**made, "state": {"waiting": waiting}}
    made |= {"ready": told["ready"], "started": told["started"], "restartCount": told["restartCount"]}
    if told["restartCount"] or told["state"] != "waiting":
        run = told["restartCount"] - (told["state"] == "waiting")
        made["containerID"] = f"local://{pod['metadata']['uid']}-{body['name']}-{run}"
    if told["last"]:
        made["lastState"] = {"terminated": _terminated(told["last"])}
    if told["state"] == "running":
        made["state"] = {"running": {"startedAt": rfc3339(told["startedAt"])}}
    elif told["state"] == "terminated":
        made["state"] = {"terminated": _terminated(told)}
    else:
        waiting = {"reason": told["reason"] or "ContainerCreating"}
        made["state"] = {"waiting": waiting | ({"message": told["message"]} if told["message"] else {})}
    return made


def _terminated(told: Mapping[str, Any]) -> dict[str, Any]:
    made = {
        "exitCode": told["exitCode"],
        "reason": told["reason"],
        "startedAt": rfc3339(told["startedAt"]),
        "finishedAt": rfc3339(told["finishedAt"]),
    }
    return made | ({"message": told["message"]} if told["message"] else {})


def _conditions(pod: Body, phase: str, *, initialized: bool, ready: bool, has_sandbox: bool) -> list[dict[str, Any]]:
    over = phase in ("Succeeded", "Failed")
    why = "PodCompleted" if phase == "Succeeded" else "PodFailed" if over else "ContainersNotReady"
    before = {each["type"]: each for each in (pod.get("status") or {}).get("conditions") or ()}
    gates = [each["conditionType"] for each in pod["spec"].get("readinessGates") or ()]
    gated = all((before.get(gate) or {}).get("status") == "True" for gate in gates)
    wanted = {
        "PodReadyToStartContainers": (has_sandbox, ""),
        "Initialized": (initialized or phase == "Succeeded", "" if initialized else "ContainersNotInitialized"),
        "ContainersReady": (ready, "" if ready else why),
        "Ready": (ready and gated, "" if ready and gated else why if not ready else "ReadinessGatesNotReady"),
    }
    made = []
    for kind, (is_true, reason) in wanted.items():
        told = "True" if is_true else "False"
        same = (before.get(kind) or {}).get("status") == told
        since = before[kind].get("lastTransitionTime") if same else None
        made.append({"type": kind, "status": told, "lastTransitionTime": since or rfc3339(time.time())})
        made[-1]["reason"] = (reason or None) if not is_true else None
    return made


def _part(told: Mapping[str, Any], key: str, value: object) -> object:
    if key != "conditions" or not isinstance(value, list):
        return told.get(key)
    known = {each["type"]: each for each in told.get(key) or ()}
    found = [known.get(each["type"]) or {} for each in value]
    return [{name: each.get(name) for name in wanted} for each, wanted in zip(found, value, strict=True)]


def _without_nothing(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _without_nothing(each) for key, each in value.items() if each not in (None, "", {}, [])}
    if isinstance(value, list | tuple):
        return [_without_nothing(each) for each in value]
    return value
