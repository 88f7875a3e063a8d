"""Reasons why a pod that has a node does not run: its image, its volumes, its configuration, the node itself."""

import re
from collections.abc import Iterator, Sequence

from trainium_eks.jobs.explain.cluster_snapshot import ClusterSnapshot, is_bound, is_running
from trainium_eks.jobs.explain.reason import Cause, Reason, held
from trainium_eks.jobs.explain.room import some
from trainium_eks.kube.cluster import Object, is_ready, name_of, namespace_of
from trainium_eks.observe.faults.catalogue import in_message

IMAGE_REASONS = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError")
"""Reasons of a container that waits for its image (kubelet, ``pkg/kubelet/images/types.go``)."""

CONFIG_REASONS = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
"""Reasons of a container that cannot be created (kubelet, ``pkg/kubelet/kuberuntime``)."""

_VOLUME_EVENTS = ("FailedMount", "FailedAttachVolume", "FailedMapVolume")
_LOCAL = "local/"
_ECR = re.compile(r"\d{12}\.dkr\.ecr\.[a-z0-9-]+\.amazonaws\.com")
_DENIED = re.compile(r"denied|forbidden|unauthorized|no basic auth|authorization failed|\b40[13]\b", re.IGNORECASE)


def reasons(snapshot: ClusterSnapshot) -> Iterator[Reason]:
    """Yield the reasons why pods that have nodes wait."""
    waiting = [pod for pod in snapshot.pods if is_bound(pod) and not is_running(pod)]
    for pod in waiting:
        for status in _statuses(pod):
            waits = (status.get("state") or {}).get("waiting") or {}
            if waits.get("reason") in IMAGE_REASONS:
                yield _image(str(status.get("image") or ""), waits)
            elif waits.get("reason") in CONFIG_REASONS:
                yield _config(snapshot, pod, waits)
            elif waits.get("reason") == "CrashLoopBackOff":
                sentence = f"a container of {name_of(pod)} ends again and again: {waits.get('message', '')}"
                yield held(Cause.CONFIG, "crash-loop", sentence, job=snapshot.name)
    yield from lost_nodes(snapshot)
    yield from _mounts(snapshot, waiting)
    if waiting and all(map(is_bound, snapshot.pods)):
        yield _under_way(snapshot, waiting)


def _statuses(pod: Object) -> Sequence[Object]:
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _image(image: str, waits: Object) -> Reason:
    reason, message = waits["reason"], " ".join(str(waits.get("message", "")).split())
    if image.startswith(_LOCAL) or reason == "ErrImageNeverPull":
        name = image.removeprefix(_LOCAL).partition(":")[0]
        how = "" if name == "torch" else " --requirements FILE"
        sentence = f"this machine has no image {image}"
        return held(Cause.IMAGE, "image-not-on-machine", sentence, image=f"{name}{how}")
    if reason == "InvalidImageName":
        return held(Cause.IMAGE, "image-name-invalid", f"{image!r} is no name of an image")
    # Docker Hub says of a private image, too, that it may not exist.
    if _DENIED.search(message):
        fix = (
            "the nodes' role must be allowed to pull from that repository; in the stack's own: trn image push"
            if _ECR.match(image)
            else f"bring it into the stack's repository: trn image mirror {image}"
        )
        return Reason(Cause.IMAGE, f"the registry refuses to give {image} to the nodes", fix, "image-refused")
    if "not found" in message or "NotFound" in message:
        fix = "trn image push" if _ECR.match(image) else "mend --image, or bring it over: trn image mirror"
        return Reason(Cause.IMAGE, f"there is no image {image}", fix, "image-missing")
    sentence = f"the image {image} cannot be pulled: {_last_part(message) or reason}"
    return held(Cause.IMAGE, "image-unreachable", sentence, image=image)


def _last_part(message: str) -> str:
    """Return a wrapped error's own words, which stand last."""
    return message.rpartition(": ")[2] if len(message) > 120 else message


def _config(snapshot: ClusterSnapshot, pod: Object, waits: Object) -> Reason:
    words = " ".join(str(waits.get("message", "")).split()) or waits["reason"]
    known = in_message(words)
    fault = known.name if known else "container-not-made"
    sentence = f"a container of {name_of(pod)} cannot be made: {words}"
    return held(Cause.CONFIG, fault, sentence, job=snapshot.name, namespace=namespace_of(pod))


def lost_nodes(snapshot: ClusterSnapshot) -> Iterator[Reason]:
    """Yield a reason for pods on nodes that are gone or not ready: Kubernetes waits minutes before it gives them up."""
    if snapshot.nodes is None:
        return
    nodes = {name_of(node): node for node in snapshot.nodes}
    lost = [pod for pod in snapshot.pods if is_bound(pod) and not _has_sound_node(pod, nodes)]
    if not lost:
        return
    names = list(dict.fromkeys(str(pod["spec"]["nodeName"]) for pod in lost))
    state = "gone" if names[0] not in nodes else "not ready"
    yield held(Cause.NODE, "node-lost", f"its node {some(names, most=2)} is {state}", pod=name_of(lost[0]))


def _has_sound_node(pod: Object, nodes: dict[str, Object]) -> bool:
    node = nodes.get(pod["spec"]["nodeName"])
    return node is not None and is_ready(node)


def claims(snapshot: ClusterSnapshot) -> Iterator[Reason]:
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
            has = f"the namespace has {some(sorted(bound))}" if bound else "the namespace has none"
            yield held(Cause.VOLUME, "claim-missing", f"there is no claim {name}; {has}", job=snapshot.name)
        elif bound[name] != "Bound":
            sentence = f"its claim {name} is {bound[name]}, not Bound"
            names = {"claim": name, "namespace": namespace_of(snapshot.job), "deploy": "trn local up or pulumi up"}
            yield held(Cause.VOLUME, "claim-not-bound", sentence, **names)


def _mounts(snapshot: ClusterSnapshot, waiting: Sequence[Object]) -> Iterator[Reason]:
    uids = {pod["metadata"].get("uid") for pod in waiting}
    failed = [
        event
        for event in snapshot.events
        if event.get("reason") in _VOLUME_EVENTS and event["involvedObject"].get("uid") in uids
    ]
    if failed:
        words = " ".join(str(failed[-1].get("message", "")).split())
        about = failed[-1]["involvedObject"]
        sentence = f"a volume of {about['name']} does not mount: {words[:300]}"
        known = in_message(words)
        names = {"pod": about["name"], "namespace": about.get("namespace"), "job": snapshot.name}
        yield held(Cause.VOLUME, known.name if known else "mount-failed", sentence, **names)


def _under_way(snapshot: ClusterSnapshot, waiting: Sequence[Object]) -> Reason:
    uids = {pod["metadata"].get("uid") for pod in waiting}
    mine = [event for event in snapshot.events if event["involvedObject"].get("uid") in uids]
    pulling = {event["involvedObject"]["name"] for event in mine if event.get("reason") == "Pulling"}
    pulling -= {event["involvedObject"]["name"] for event in mine if event.get("reason") == "Pulled"}
    total = len(snapshot.pods)
    has = "all its pods have nodes" if total > 1 else "its pod has a node"
    doing = f"{len(pulling)} of {total} pull the image" if pulling else f"{total - len(waiting)} of {total} run already"
    return Reason(Cause.STARTING, f"{has}; {doing}", "")
