"""Reasons why a pod that has a node does not run: its image, its volumes, its configuration, the node itself."""

import re
from collections.abc import Iterator, Sequence

from trainium_eks.jobs.explain.cluster_snapshot import ClusterSnapshot, is_bound, is_running
from trainium_eks.jobs.explain.reason import Cause, Reason
from trainium_eks.jobs.explain.room import some
from trainium_eks.kube.cluster import Object, is_ready, name_of

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
            held = (status.get("state") or {}).get("waiting") or {}
            if held.get("reason") in IMAGE_REASONS:
                yield _image(str(status.get("image") or ""), held)
            elif held.get("reason") in CONFIG_REASONS:
                yield _config(snapshot, pod, held)
            elif held.get("reason") == "CrashLoopBackOff":
                words = held.get("message", "")
                fix = f"see what it says: trn logs {snapshot.name} --previous"
                yield Reason(Cause.CONFIG, f"a container of {name_of(pod)} ends again and again: {words}", fix)
    yield from lost_nodes(snapshot)
    yield from _mounts(snapshot, waiting)
    if waiting and all(map(is_bound, snapshot.pods)):
        yield _under_way(snapshot, waiting)


def _statuses(pod: Object) -> Sequence[Object]:
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _image(image: str, held: Object) -> Reason:
    reason, message = held["reason"], " ".join(str(held.get("message", "")).split())
    if image.startswith(_LOCAL) or reason == "ErrImageNeverPull":
        name = image.removeprefix(_LOCAL).partition(":")[0]
        how = "" if name == "torch" else " --requirements FILE"
        fix = f"trn local images make {name}{how}; `trn local images` lists those it has"
        return Reason(Cause.IMAGE, f"this machine has no image {image}", fix)
    if reason == "InvalidImageName":
        return Reason(Cause.IMAGE, f"{image!r} is no name of an image", "submit it anew with a good --image")
    # Docker Hub says of a private image, too, that it may not exist.
    if _DENIED.search(message):
        fix = (
            "the nodes' role must be allowed to pull from that repository; in the stack's own: trn image push"
            if _ECR.match(image)
            else f"bring it into the stack's repository: trn image mirror {image}"
        )
        return Reason(Cause.IMAGE, f"the registry refuses to give {image} to the nodes", fix)
    if "not found" in message or "NotFound" in message:
        fix = "trn image push" if _ECR.match(image) else "mend --image, or bring it over: trn image mirror"
        return Reason(Cause.IMAGE, f"there is no image {image}", fix)
    fix = f"a registry the nodes do not reach? Bring it into the stack's own: trn image mirror {image}"
    return Reason(Cause.IMAGE, f"the image {image} cannot be pulled: {_last_part(message) or reason}", fix)


def _last_part(message: str) -> str:
    """Return a wrapped error's own words, which stand last."""
    return message.rpartition(": ")[2] if len(message) > 120 else message


def _config(snapshot: ClusterSnapshot, pod: Object, held: Object) -> Reason:
    words = " ".join(str(held.get("message", "")).split()) or held["reason"]
    fix = f"make what is missing, or mend the job and submit it anew: trn cancel {snapshot.name}"
    return Reason(Cause.CONFIG, f"a container of {name_of(pod)} cannot be made: {words}", fix)


def lost_nodes(snapshot: ClusterSnapshot) -> Iterator[Reason]:
    """Yield a reason for pods on nodes that are gone or not ready: Kubernetes waits minutes before it gives them up."""
    if snapshot.nodes is None:
        return
    nodes = {name_of(node): node for node in snapshot.nodes}
    held = [pod for pod in snapshot.pods if is_bound(pod) and not _has_sound_node(pod, nodes)]
    if not held:
        return
    names = list(dict.fromkeys(str(pod["spec"]["nodeName"]) for pod in held))
    state = "gone" if names[0] not in nodes else "not ready"
    fix = (
        "it restarts on other nodes when Kubernetes gives the pods up, about a minute after a node is gone and five "
        f"after one stops answering; at once: kubectl delete pod {name_of(held[0])}"
    )
    yield Reason(Cause.NODE, f"its node {some(names, most=2)} is {state}", fix)


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
            fix = f"submit it anew with one that is there, after: trn cancel {snapshot.name}"
            yield Reason(Cause.VOLUME, f"there is no claim {name}; {has}", fix)
        elif bound[name] != "Bound":
            fix = f"what it waits for: kubectl describe pvc {name}; the whole storage: trn verify"
            yield Reason(Cause.VOLUME, f"its claim {name} is {bound[name]}, not Bound", fix)


def _mounts(snapshot: ClusterSnapshot, waiting: Sequence[Object]) -> Iterator[Reason]:
    uids = {pod["metadata"].get("uid") for pod in waiting}
    failed = [
        event
        for event in snapshot.events
        if event.get("reason") in _VOLUME_EVENTS and event["involvedObject"].get("uid") in uids
    ]
    if failed:
        words = " ".join(str(failed[-1].get("message", "")).split())
        sentence = f"a volume of {failed[-1]['involvedObject']['name']} does not mount: {words[:300]}"
        yield Reason(Cause.VOLUME, sentence, "trn verify says what is wrong with the storage")


def _under_way(snapshot: ClusterSnapshot, waiting: Sequence[Object]) -> Reason:
    uids = {pod["metadata"].get("uid") for pod in waiting}
    mine = [event for event in snapshot.events if event["involvedObject"].get("uid") in uids]
    pulling = {event["involvedObject"]["name"] for event in mine if event.get("reason") == "Pulling"}
    pulling -= {event["involvedObject"]["name"] for event in mine if event.get("reason") == "Pulled"}
    total = len(snapshot.pods)
    has = "all its pods have nodes" if total > 1 else "its pod has a node"
    doing = f"{len(pulling)} of {total} pull the image" if pulling else f"{total - len(waiting)} of {total} run already"
    return Reason(Cause.STARTING, f"{has}; {doing}", "")
