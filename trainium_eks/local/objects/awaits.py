"""The readiness of Kubernetes objects, and the reason of a wait: the rules of Pulumi's Kubernetes provider.

Pure: decides about objects that were read. The rules per kind come from
https://www.pulumi.com/registry/packages/kubernetes/installation-configuration/ ("await logic") and ``kubectl rollout
status``; a kind without a rule, such as a custom one, is ready as soon as it is applied.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Object = Mapping[str, Any]

SKIP_AWAIT = "pulumi.com/skipAwait"
"""Annotation: ``"true"`` makes an object ready at once."""
TIMEOUT_SECONDS = "pulumi.com/timeoutSeconds"
"""Annotation: how long to wait for this object, instead of the default."""


@dataclass(frozen=True)
class Readiness:
    """The state of an object: ready, or not yet and why, or failed: it will not become ready by waiting."""

    reason: str = ""
    failed: bool = False

    @property
    def ready(self) -> bool:
        """Return whether the object matches its manifest."""
        return not self.reason


Related = Callable[[str], Sequence[Object]]
"""Reads the other objects that an object's readiness depends on, of the kind ``StorageClass`` (of a claim),
``EndpointSlice`` (of a Service) or ``Pod`` (of a failed Job, for the reasons)."""

_READY = Readiness()


def readiness(object_: Object, related: Related = lambda _: ()) -> Readiness:
    """Return whether an object is ready."""
    metadata = object_.get("metadata") or {}
    if (metadata.get("annotations") or {}).get(SKIP_AWAIT) == "true":
        return _READY
    if metadata.get("deletionTimestamp"):
        return Readiness("it is being deleted")
    group = str(object_.get("apiVersion")).rpartition("/")[0]
    rule = _RULES.get((group, str(object_.get("kind"))))
    return rule(object_, related) if rule else _READY


def timeout_seconds(object_: Object, default: float) -> float:
    """Return how long to wait for an object: its annotation, or the default."""
    value = ((object_.get("metadata") or {}).get("annotations") or {}).get(TIMEOUT_SECONDS)
    if value is None:
        return default
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ValueError(f"the annotation {TIMEOUT_SECONDS} must be a positive number of seconds, not {value!r}")
    return seconds


def pods_wait_for(pods: Sequence[Object]) -> list[str]:
    """Return the reasons why pods are not ready: one line for each reason, with the number of its pods."""
    reasons = Counter(reason for pod in pods if (reason := _pod_reason(pod)))
    return [f"{count} pod{'s' if count > 1 else ''}: {reason}" for reason, count in reasons.most_common(10)]


def warnings(events: Sequence[Object], reference_name: str, *, most: int = 5) -> list[str]:
    """Return the latest warnings on an object and on objects with its name as prefix, one line each."""
    names = re.compile(rf"{re.escape(reference_name)}([-.].*)?")
    about = [
        each
        for each in events
        if each.get("type") != "Normal" and names.fullmatch((each.get("involvedObject") or {}).get("name") or "")
    ]
    about.sort(key=lambda each: each.get("lastTimestamp") or each.get("eventTime") or "")
    lines = [f"{each.get('reason')}: {str(each.get('message') or '').strip()}" for each in about]
    return list(dict.fromkeys(reversed(lines)))[:most]


# --- Rules per kind -----------------------------------------------------------------------------------------------


def _deployment(object_: Object, _: Related) -> Readiness:
    if reason := _unseen(object_):
        return Readiness(reason)
    spec, status = object_.get("spec") or {}, _status(object_)
    if spec.get("paused"):
        return _READY  # nothing rolls out until a user resumes it
    wanted = spec.get("replicas", 1)
    progressing = _condition(object_, "Progressing")
    stuck = f" ({progressing.get('message')})" if progressing.get("status") == "False" else ""
    if status.get("updatedReplicas", 0) < wanted:
        return Readiness(f"{status.get('updatedReplicas', 0)} of {wanted} pods are of the newest template{stuck}")
    if status.get("replicas", 0) > status.get("updatedReplicas", 0):
        return Readiness(f"{status['replicas'] - status.get('updatedReplicas', 0)} old pods still run{stuck}")
    if status.get("availableReplicas", 0) < wanted:
        return Readiness(f"{status.get('availableReplicas', 0)} of {wanted} pods are available{stuck}")
    return _READY


def _stateful_set(object_: Object, _: Related) -> Readiness:
    if reason := _unseen(object_):
        return Readiness(reason)
    spec, status = object_.get("spec") or {}, _status(object_)
    wanted, strategy = spec.get("replicas", 1), spec.get("updateStrategy") or {}
    if status.get("readyReplicas", 0) < wanted:
        return Readiness(f"{status.get('readyReplicas', 0)} of {wanted} pods are ready")
    if strategy.get("type") == "OnDelete":
        return _READY
    partition = (strategy.get("rollingUpdate") or {}).get("partition") or 0
    if status.get("updateRevision") == status.get("currentRevision"):
        return _READY
    updated, of_those = status.get("updatedReplicas", 0), max(wanted - partition, 0)
    if partition and updated >= of_those:
        return _READY
    return Readiness(f"{updated} of {of_those} pods are of the newest template")


def _daemon_set(object_: Object, _: Related) -> Readiness:
    if reason := _unseen(object_):
        return Readiness(reason)
    status = _status(object_)
    wanted = status.get("desiredNumberScheduled", 0)
    on_delete = ((object_.get("spec") or {}).get("updateStrategy") or {}).get("type") == "OnDelete"
    if not on_delete and status.get("updatedNumberScheduled", 0) < wanted:
        return Readiness(f"{status.get('updatedNumberScheduled', 0)} of {wanted} pods are of the newest template")
    if status.get("numberAvailable", 0) < wanted:
        return Readiness(f"{status.get('numberAvailable', 0)} of {wanted} pods are available")
    return _READY


def _replication_controller(object_: Object, _: Related) -> Readiness:
    if reason := _unseen(object_):
        return Readiness(reason)
    wanted, available = (object_.get("spec") or {}).get("replicas", 1), _status(object_).get("availableReplicas", 0)
    return _READY if available >= wanted else Readiness(f"{available} of {wanted} pods are available")


def _job(object_: Object, related: Related) -> Readiness:
    spec, status = object_.get("spec") or {}, _status(object_)
    if _condition(object_, "Complete").get("status") == "True" or spec.get("suspend"):
        return _READY  # a suspended job runs when a user resumes it
    failed = _condition(object_, "Failed")
    if failed.get("status") == "True":
        why = ": ".join(filter(None, (failed.get("reason"), failed.get("message")))) or "the job failed"
        return Readiness("\n  ".join([why, *pods_wait_for(related("Pod"))]), failed=True)
    return Readiness(
        f"{status.get('succeeded', 0)} of {spec.get('completions', 1)} pods have succeeded, "
        f"{status.get('active', 0)} active, {status.get('failed', 0)} failed"
    )


def _pod(object_: Object, _: Related) -> Readiness:
    phase = _status(object_).get("phase")
    if phase == "Succeeded" or _condition(object_, "Ready").get("status") == "True":
        return _READY
    reason = _pod_reason(object_) or f"it is {phase or 'not yet seen by the scheduler'}"
    return Readiness(reason, failed=phase == "Failed")


def _claim(object_: Object, related: Related) -> Readiness:
    phase = _status(object_).get("phase") or "Pending"
    if phase == "Bound":
        return _READY
    if phase == "Lost":
        return Readiness(f"its volume {(object_.get('spec') or {}).get('volumeName')} is gone", failed=True)
    if any(each.get("volumeBindingMode") == "WaitForFirstConsumer" for each in related("StorageClass")):
        return _READY  # bound when a pod uses it
    return Readiness(f"it is {phase}, not Bound")


def _volume(object_: Object, _: Related) -> Readiness:
    status, spec = _status(object_), object_.get("spec") or {}
    phase = status.get("phase")
    if phase in ("Available", "Bound"):
        return _READY
    if phase == "Failed":
        why = status.get("message") or status.get("reason") or "no reason is given"
        return Readiness(f"it is Failed: {why}", failed=True)
    if phase == "Released" and spec.get("persistentVolumeReclaimPolicy") == "Retain":
        claim = spec.get("claimRef") or {}
        name = (object_.get("metadata") or {}).get("name")
        return Readiness(
            f"it is Released: it still names the claim {claim.get('namespace')}/{claim.get('name')} that is gone, and "
            "Kubernetes binds it to no other; once its data is not that claim's any more: kubectl patch "
            f'persistentvolume {name} --type=json -p \'[{{"op":"remove","path":"/spec/claimRef/uid"}}]\'',
            failed=True,
        )
    return Readiness(f"it is {phase or 'not yet seen by the controller'}, neither Available nor Bound")


def _service(object_: Object, related: Related) -> Readiness:
    spec = object_.get("spec") or {}
    if spec.get("type") == "LoadBalancer" and not (_status(object_).get("loadBalancer") or {}).get("ingress"):
        return Readiness("no load balancer has an address for it")
    if not spec.get("selector") or spec.get("type") == "ExternalName":
        return _READY
    ready = sum(
        1
        for each in related("EndpointSlice")
        for endpoint in each.get("endpoints") or ()
        if (endpoint.get("conditions") or {}).get("ready", True)
    )
    return _READY if ready else Readiness("no pod that it selects is ready")


def _ingress(object_: Object, _: Related) -> Readiness:
    if (_status(object_).get("loadBalancer") or {}).get("ingress"):
        return _READY
    return Readiness("no ingress controller has given it an address")


def _definition(object_: Object, _: Related) -> Readiness:
    names = _condition(object_, "NamesAccepted")
    if names.get("status") == "False":
        return Readiness(f"its names are taken: {names.get('message')}", failed=True)
    return _has_condition(object_, "Established")


def _api_service(object_: Object, _: Related) -> Readiness:
    return _has_condition(object_, "Available")


def _has_condition(object_: Object, type_: str) -> Readiness:
    found = _condition(object_, type_)
    return _READY if found.get("status") == "True" else Readiness(found.get("message") or f"it is not {type_}")


def _namespace(object_: Object, _: Related) -> Readiness:
    phase = _status(object_).get("phase")
    return _READY if phase == "Active" else Readiness(f"it is {phase or 'not Active'}")


def _quota(object_: Object, _: Related) -> Readiness:
    wanted, seen = (object_.get("spec") or {}).get("hard") or {}, _status(object_).get("hard") or {}
    return _READY if wanted == seen else Readiness("the controller has not seen its limits")


def _secret(object_: Object, _: Related) -> Readiness:
    if object_.get("type") != "kubernetes.io/service-account-token" or (object_.get("data") or {}).get("token"):
        return _READY
    return Readiness("its service account's token is not made")


_RULES: Mapping[tuple[str, str], Callable[[Object, Related], Readiness]] = {
    ("apps", "Deployment"): _deployment,
    ("apps", "StatefulSet"): _stateful_set,
    ("apps", "DaemonSet"): _daemon_set,
    ("", "ReplicationController"): _replication_controller,
    ("batch", "Job"): _job,
    ("", "Pod"): _pod,
    ("", "PersistentVolumeClaim"): _claim,
    ("", "PersistentVolume"): _volume,
    ("", "Service"): _service,
    ("networking.k8s.io", "Ingress"): _ingress,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _definition,
    ("apiregistration.k8s.io", "APIService"): _api_service,
    ("", "Namespace"): _namespace,
    ("", "ResourceQuota"): _quota,
    ("", "Secret"): _secret,
}


# --- Common parts -------------------------------------------------------------------------------------------------


def _status(object_: Object) -> Mapping[str, Any]:
    return object_.get("status") or {}


def _condition(object_: Object, type_: str) -> Mapping[str, Any]:
    return next((each for each in _status(object_).get("conditions") or () if each.get("type") == type_), {})


def _unseen(object_: Object) -> str:
    """Return a reason when the status belongs to an older manifest than the object's; empty otherwise."""
    generation = (object_.get("metadata") or {}).get("generation", 0)
    if _status(object_).get("observedGeneration", 0) >= generation > 0:
        return ""
    return "its controller has not seen it"


def _pod_reason(pod: Object) -> str:
    """Return why a pod is not ready: as near to the cause as its status gets."""
    status = _status(pod)
    if status.get("phase") == "Succeeded" or _condition(pod, "Ready").get("status") == "True":
        return ""
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        if reason := _container_reason(container):
            return reason
    if status.get("phase") == "Failed":
        return _joined("the pod failed", status)
    scheduled = _condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        return _joined("not scheduled", scheduled)
    ready = _condition(pod, "Ready")
    return _joined("not ready", ready) if ready.get("status") == "False" else ""


def _container_reason(container: Mapping[str, Any]) -> str:
    state, name = container.get("state") or {}, f"container {container.get('name')}"
    ended = state.get("terminated") or (container.get("lastState") or {}).get("terminated") or {}
    exit_code = ended.get("exitCode", 0)
    waiting = state.get("waiting") or {}
    if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
        died = f" (last exit code {exit_code})" if exit_code else ""
        return f"{_joined(name, waiting)}{died}"
    if exit_code and not container.get("ready"):
        return f"{_joined(name, ended)} (exit code {exit_code})"
    return ""


def _joined(start: str, status: Mapping[str, Any]) -> str:
    return ": ".join(filter(None, (start, status.get("reason"), status.get("message"))))
