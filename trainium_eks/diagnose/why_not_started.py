"""Reasons why a pod that has a node does not run: its image, its volumes, its configuration, the node itself."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

from trainium_eks.diagnose.reason import Cause, Reason, fault_reason, shortened
from trainium_eks.jobs.observed.free_capacity import name_some
from trainium_eks.jobs.observed.job_snapshot import JobSnapshot, wanted_pods
from trainium_eks.kube.cluster import (
    Object,
    condition,
    is_bound,
    is_over,
    is_ready,
    is_running,
    moment,
    name_of,
    namespace_of,
)
from trainium_eks.observe.faults.catalogue import in_message
from trainium_eks.observe.faults.fault import Speaker

IMAGE_REASONS = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError")
"""Reasons of a container that waits for its image (kubelet, ``pkg/kubelet/images/types.go``)."""

_BEFORE = ("ContainerCreating", "PodInitializing")
"""Reasons of a container whose turn has not come. With any other one but these it cannot be made (kubelet,
``pkg/kubelet/kuberuntime``)."""

_VOLUME_EVENTS = ("FailedMount", "FailedAttachVolume", "FailedMapVolume")
_PROGRESS = ("Pulling", "Pulled", "Created", "Started")
"""Reasons of events that follow the mounts: a warning before them is over."""

_LOCAL = "local/"
_CODE = re.compile(r"(: (unknown|not found|unavailable|canceled))+$")
"""End of containerd's messages: a code of gRPC, which follows the reason and is none."""

_RETRIED = timedelta(minutes=1)
"""Time in which a kubelet makes a sandbox that failed while its node's network plugin started."""

STARTS_WITHIN = timedelta(minutes=10)
"""Time after which a pod with a node that neither runs nor pulls an image is overdue."""

_SANDBOX = "FailedCreatePodSandBox"
"""Reason of an event of a pod whose network or first container could not be made."""

_SPEAKERS: Mapping[str, Speaker] = {
    **dict.fromkeys(_VOLUME_EVENTS, Speaker.VOLUME),
    **dict.fromkeys(("FailedScheduling", "Unschedulable", "NotTriggerScaleUp"), Speaker.SCHEDULER),
    **dict.fromkeys((_SANDBOX, "FailedPostStartHook", "FailedSync"), Speaker.RUNTIME),
    "FailedCreate": Speaker.ADMISSION,
    "InspectFailed": Speaker.REGISTRY,
}


def speaker(event: Object) -> Speaker | None:
    """Return the speaker of an event; None for an unknown reason, because its words could mean anything."""
    if event.get("reason") in ("Failed", "BackOff"):
        return Speaker.REGISTRY if "pull" in str(event.get("message")) else Speaker.RUNTIME
    return _SPEAKERS.get(str(event.get("reason")))


def reasons(snapshot: JobSnapshot) -> Iterator[Reason]:
    """Yield the reasons why pods that have nodes wait."""
    waiting = [pod for pod in snapshot.pods if is_bound(pod) and not is_running(pod) and not is_over(pod)]
    for pod in waiting:
        for status in _statuses(pod):
            waits = (status.get("state") or {}).get("waiting") or {}
            if waits.get("reason") in IMAGE_REASONS:
                yield _image(snapshot, pod, str(status.get("image") or ""), waits)
            elif waits.get("reason") == "CrashLoopBackOff":
                sentence = f"a container of {name_of(pod)} ends again and again: {waits.get('message', '')}"
                yield fault_reason(Cause.CONFIG, "crash-loop", sentence, job=snapshot.name)
            elif waits.get("reason") in _BEFORE:
                if waits.get("message"):  # by the local cloud; a kubelet says it in events
                    yield _unmounted(snapshot, pod, str(waits["message"]))
            elif waits:
                yield _config(snapshot, pod, waits)
    yield from lost_nodes(snapshot)
    yield from warned(snapshot, waiting)
    if waiting and all(map(is_bound, snapshot.pods)) and len(snapshot.pods) >= wanted_pods(snapshot.job):
        yield _under_way(snapshot, waiting)


def _statuses(pod: Object) -> Sequence[Object]:
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _image(snapshot: JobSnapshot, pod: Object, image: str, waits: Object) -> Reason:
    # Older kubelets name the cause in the event alone.
    failed = [each for each in reversed(_about(snapshot, (pod,), "Failed")) if speaker(each) is Speaker.REGISTRY]
    said = [str(waits.get("message", "")), *(str(each.get("message")) for each in failed)]
    reason, message = waits["reason"], " ".join(next((each for each in said if ": " in each), said[0]).split())
    if image.startswith(_LOCAL) or reason == "ErrImageNeverPull":
        name = image.removeprefix(_LOCAL).partition(":")[0]
        how = "" if name == "torch" else " --requirements FILE"
        sentence = f"this machine has no image {image}"
        return fault_reason(Cause.IMAGE, "image-not-on-machine", sentence, image=f"{name}{how}")
    if reason == "InvalidImageName":
        return fault_reason(Cause.IMAGE, "image-name-invalid", f"{image!r} is not an image name: {message or reason}")
    known = in_message(message, Speaker.REGISTRY)
    fault = known.name if known else "image-unreachable"
    sentence = f"the image {image} cannot be pulled"
    if fault == "image-missing":
        sentence = f"there is no image {image}"
    elif fault == "image-refused":
        sentence = f"the registry refuses to give {image} to the nodes"
    words = _last_words(message)
    return fault_reason(Cause.IMAGE, fault, f"{sentence}: {reason if words in ('', image) else words}", image=image)


def _last_words(message: str) -> str:
    """Return a wrapped error's own words, which stand last but for the code."""
    words = _CODE.sub("", message)
    return words if len(words) <= 120 else words[-120:].partition(": ")[2] or words[-120:]


def _config(snapshot: JobSnapshot, pod: Object, waits: Object) -> Reason:
    words = " ".join(str(waits.get("message", "")).split()) or waits["reason"]
    known = in_message(words, Speaker.RUNTIME)
    fault = known.name if known else "container-not-made"
    sentence = f"a container of {name_of(pod)} cannot be made: {words}"
    return fault_reason(Cause.CONFIG, fault, sentence, **_names(snapshot, pod))


def ended_by_node(pod: Object) -> Reason | None:
    """Return the reason of a pod that its kubelet refused or ended as a whole, with containers or without; None for
    another pod. ``status.reason`` is empty for a pod whose container failed."""
    status = pod.get("status") or {}
    if status.get("phase") != "Failed" or not status.get("reason"):
        return None
    words = " ".join(f"{status['reason']}: {status.get('message') or 'without a message'}".split())
    known = in_message(words, Speaker.KUBELET)
    fault = known.name if known else "pod-ended-by-node"
    node = pod["spec"].get("nodeName")
    sentence = f"{name_of(pod)} was refused or ended by node {node}: {words}"
    return fault_reason(Cause.NODE, fault, sentence, node=node, namespace=namespace_of(pod))


def lost_nodes(snapshot: JobSnapshot) -> Iterator[Reason]:
    """Yield a reason for pods on nodes that are gone or not ready: Kubernetes waits minutes before it gives them up."""
    if snapshot.nodes is None:
        return
    nodes = {name_of(node): node for node in snapshot.nodes}
    ready = {name for name, node in nodes.items() if is_ready(node)}
    lost = [pod for pod in snapshot.pods if is_bound(pod) and pod["spec"]["nodeName"] not in ready]
    if not lost:
        return
    names = list(dict.fromkeys(str(pod["spec"]["nodeName"]) for pod in lost))
    state = "gone" if names[0] not in nodes else "not ready"
    yield fault_reason(Cause.NODE, "node-lost", f"its node {name_some(names, most=2)} is {state}", pod=name_of(lost[0]))


def claims(snapshot: JobSnapshot) -> Iterator[Reason]:
    """Yield a reason for claims that are missing or not bound. Volcano 1.15 says nothing of a missing one: the pod gets
    no condition."""
    if snapshot.claims is None:
        return
    bound = {name_of(each): (each.get("status") or {}).get("phase") for each in snapshot.claims}
    wanted = dict.fromkeys(
        volume["persistentVolumeClaim"]["claimName"]
        for task in snapshot.job["spec"].get("tasks") or ()
        for volume in task["template"]["spec"].get("volumes") or ()
        if "persistentVolumeClaim" in volume
    )
    for name in wanted:
        if name not in bound:
            has = f"the namespace has {name_some(sorted(bound))}" if bound else "the namespace has none"
            yield fault_reason(Cause.VOLUME, "claim-missing", f"there is no claim {name}; {has}", job=snapshot.name)
        elif bound[name] != "Bound":
            sentence = f"its claim {name} is {bound[name]}, not Bound"
            names = {"claim": name, "namespace": namespace_of(snapshot.job), "deploy": "trn local up or pulumi up"}
            yield fault_reason(Cause.VOLUME, "claim-not-bound", sentence, **names)


def warned(snapshot: JobSnapshot, waiting: Sequence[Object]) -> Iterator[Reason]:
    """Yield a reason for the newest warning about pods that wait, if it is of a volume, of the network and the runtime,
    or names a fault."""
    left = {pod["metadata"].get("uid"): pod for pod in waiting}
    for event in reversed(snapshot.events):
        pod = left.get(event["involvedObject"].get("uid"))
        if pod is None or event.get("reason") in _PROGRESS:
            left.pop(event["involvedObject"].get("uid"), None)
        elif event.get("type") == "Warning" and (who := speaker(event)):
            words = " ".join(str(event.get("message", "")).split())
            if who is Speaker.VOLUME:
                yield _unmounted(snapshot, pod, words)
            elif (known := in_message(words, who)) or (
                event["reason"] == _SANDBOX and _waited(snapshot, pod) > _RETRIED
            ):
                fault = known.name if known else "sandbox-not-made"
                yield fault_reason(Cause.CONFIG, fault, f"{name_of(pod)}: {words}", **_names(snapshot, pod))


def _unmounted(snapshot: JobSnapshot, pod: Object, words: str) -> Reason:
    known = in_message(words, Speaker.VOLUME)
    sentence = f"a volume of {name_of(pod)} does not mount: {shortened(words)}"
    return fault_reason(Cause.VOLUME, known.name if known else "mount-failed", sentence, **_names(snapshot, pod))


def _names(snapshot: JobSnapshot, pod: Object) -> dict[str, object]:
    node = pod["spec"].get("nodeName")
    return {"pod": name_of(pod), "namespace": namespace_of(pod), "job": snapshot.name, "node": node}


def _about(snapshot: JobSnapshot, pods: Sequence[Object], *reasons: str) -> list[Object]:
    """Return the events of some pods with one of these reasons, the oldest first."""
    uids = {pod["metadata"].get("uid") for pod in pods}
    return [
        event
        for event in snapshot.events
        if event.get("reason") in reasons and event["involvedObject"].get("uid") in uids
    ]


def _under_way(snapshot: JobSnapshot, waiting: Sequence[Object]) -> Reason:
    pulling = {event["involvedObject"]["name"] for event in _about(snapshot, waiting, "Pulling")}
    pulling -= {event["involvedObject"]["name"] for event in _about(snapshot, waiting, "Pulled")}
    # A container that runs and is not ready yet may load for long.
    for pod in (each for each in waiting if (each.get("status") or {}).get("phase") == "Pending"):
        overdue = _waited(snapshot, pod)
        if overdue > STARTS_WITHIN and name_of(pod) not in pulling:
            minutes = overdue // timedelta(minutes=1)
            said = _last_warning(snapshot, [pod]) or "no event says why"
            sentence = f"{name_of(pod)} has had a node for {minutes} min and does not run; {said}"
            return fault_reason(Cause.CONFIG, "container-not-made", sentence, **_names(snapshot, pod))
    total = len(snapshot.pods)
    has = "all its pods have nodes" if total > 1 else "its pod has a node"
    doing = f"{len(pulling)} of {total} pull the image" if pulling else f"{total - len(waiting)} of {total} run already"
    return Reason(Cause.STARTING, "; ".join(filter(None, (has, doing, _last_warning(snapshot, waiting)))), "")


def _waited(snapshot: JobSnapshot, pod: Object) -> timedelta:
    """Return the time since a pod has a node."""
    since = condition(pod, "PodScheduled").get("lastTransitionTime") or pod["metadata"]["creationTimestamp"]
    return snapshot.now - moment(since)


def _last_warning(snapshot: JobSnapshot, pods: Sequence[Object]) -> str:
    """Return the newest event of the first pod of which it is a warning; empty where all have gone on since."""
    for pod in pods:
        about = (
            each
            for each in reversed(snapshot.events)
            if each["involvedObject"].get("uid") == pod["metadata"].get("uid")
        )
        if (last := next(about, None)) and last.get("type") == "Warning" and last.get("reason") not in _PROGRESS:
            return " ".join(f"{name_of(pod)}: {last.get('message', '')}".split())
    return ""
