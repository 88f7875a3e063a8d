"""Recognizers of faults of pods: failed starts, ends, lines of logs, and devices held after the end."""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from trainium_eks.diagnose import why_not_started
from trainium_eks.diagnose.cluster_recognizers import PATIENCE
from trainium_eks.diagnose.cluster_state import ClusterState
from trainium_eks.diagnose.findings import found, of_reason
from trainium_eks.jobs.objects.job import REFUSED
from trainium_eks.jobs.observed.job_snapshot import JobSnapshot, ended_at
from trainium_eks.jobs.observed.watched import job_of, owner_of
from trainium_eks.jobs.watch import endings
from trainium_eks.jobs.watch.endings import Exit
from trainium_eks.kube.cluster import (
    Object,
    condition,
    is_bound,
    is_over,
    is_running,
    moment,
    name_of,
    namespace_of,
    when,
)
from trainium_eks.model.finding import Finding
from trainium_eks.model.policies.admission import ACCELERATOR_PREFIXES, GROUP_ANNOTATION, SCHEDULER
from trainium_eks.observe.faults.catalogue import in_log, in_message
from trainium_eks.observe.faults.fault import Speaker

RECENT = timedelta(hours=1)
"""Age of an end that is still news: Kubernetes keeps events as long."""

REPEATED = timedelta(minutes=5)
"""Time within which a controller tries again and reports it."""

AFTER_GRACE = timedelta(seconds=20)
"""Time after its grace period in which a kubelet has long finished a pod."""

MOST_LOGS = 32
"""Logs that one cluster reads."""

RAISED = "program-raised"
"""Fault of any exception of Python, the last of the catalogue."""

_NOT_STARTED = ("StartError", "ContainerCannotRun", "RunContainerError")
"""Reasons of an end in which containerd speaks: no program has run."""

_BEFORE_ERROR = re.compile(r"^(.*exit code \d+( of rank \d+)?|rank \d+): ")
"""Words of the gang launcher before a program's own error."""

_CODES = {
    126: "command-not-executable",
    127: "command-not-found",
    REFUSED: "job-refused",
    **dict.fromkeys((132, 136, 139), "program-crashed"),  # 128 and SIGILL, SIGFPE, SIGSEGV
    134: "program-aborted",  # SIGABRT
    135: "shared-memory-full",  # SIGBUS
    137: "out-of-memory",  # SIGKILL
}


def findings(cluster: ClusterState, name: str) -> Iterator[Finding]:
    """Yield the faults of all pods, or of those that ``name`` asks for; their job reports the ends of a gang's pods."""
    ends = {job["metadata"].get("uid"): ended_at(job) for job in cluster.readable("Job")}
    pods = [pod for pod in cluster.readable("Pod") if not name or _is_asked(pod, name)]
    others: list[Object] = []
    yield from uncounted(cluster, pods)
    for pod in pods:
        owners = [owner.get("uid") for owner in pod["metadata"].get("ownerReferences") or ()]
        gang = next((uid for uid in owners if uid in ends), "")
        yield from lingering(cluster, pod, ends.get(gang))
        if not gang:
            others.append(pod)
            yield from starting(cluster, _job(pod), pod, _about(pod))
    for read, (pod, ended) in enumerate(failed(others)):
        is_news = bool(name) or is_recent(cluster, ended.finished)
        if read < MOST_LOGS and is_news and not why_not_started.ended_by_node(pod):
            yield of_exit(cluster, pod, ended, _about(pod), _job(pod))
    if not name:
        yield from refused(cluster)


def _is_asked(pod: Object, name: str) -> bool:
    return name in (owner_of(pod), job_of(pod)) or name_of(pod).startswith(f"{name}-") or name_of(pod) == name


def _job(pod: Object) -> str:
    return owner_of(pod) or job_of(pod)


def _about(pod: Object) -> str:
    job, namespace = _job(pod), namespace_of(pod)
    return f"pod {name_of(pod)} of {namespace}" if job == name_of(pod) else f"pods of {job} in {namespace}"


def is_recent(cluster: ClusterState, at: datetime | None) -> bool:
    """Return whether something happened within :data:`RECENT`."""
    return at is not None and cluster.now - at < RECENT


def starting(cluster: ClusterState, job: str, pod: Object, about: str) -> Iterator[Finding]:
    """Yield the reasons why a pod outside a gang does not start; ``job`` is its name in the commands of remedies."""
    uid = pod["metadata"].get("uid")
    events = tuple(
        sorted((each for each in cluster.readable("Event") if each["involvedObject"].get("uid") == uid), key=when)
    )
    if is_over(pod) or is_running(pod) or pod["metadata"].get("deletionTimestamp"):
        return
    snapshot = JobSnapshot(cluster.now, {"metadata": {"name": job}, "spec": {}}, pods=(pod,), events=events)
    if not is_bound(pod):
        for reason in why_not_started.warned(snapshot, [pod]):
            yield of_reason(reason, about, namespace_of(pod))
            return
        scheduled = condition(pod, "PodScheduled")
        waits = cluster.now - moment(pod["metadata"]["creationTimestamp"]) > PATIENCE
        if waits and scheduled.get("status") == "False":
            words = f"no node takes {name_of(pod)}: {scheduled.get('message')}"
            yield found("pod-unplaced", about, words, pod=name_of(pod), namespace=namespace_of(pod))
        return
    for reason in why_not_started.reasons(snapshot):
        if reason.fault == "crash-loop":
            ended = endings.first_failure(endings.exits([pod]))
            if ended is not None:
                yield of_exit(cluster, pod, ended, about, job, is_previous=True)
                return
        if reason.fault:
            yield of_reason(reason, about, namespace_of(pod))
            return


def refused(cluster: ClusterState) -> Iterator[Finding]:
    """Yield faults of owners without pods, such as a ReplicaSet, because the API server refuses their pods."""
    owners = {
        owner.get("uid") for pod in cluster.readable("Pod") for owner in pod["metadata"].get("ownerReferences") or ()
    }
    jobs = {job["metadata"].get("uid") for job in cluster.readable("Job")}
    for event in sorted(cluster.readable("Event"), key=when, reverse=True):
        about = event["involvedObject"]
        is_news = event.get("reason") == "FailedCreate" and cluster.now - when(event) < REPEATED
        if not is_news or about.get("uid") in owners | jobs:
            continue
        known = in_message(str(event.get("message")), Speaker.ADMISSION)
        names = {"job": about.get("name"), "namespace": about.get("namespace"), "deploy": cluster.deploy}
        fault = known.name if known else "pods-refused"
        where = f"{about.get('kind')} {about.get('name')} of {about.get('namespace')}"
        yield found(fault, where, str(event.get("message")), **names)


def of_exit(
    cluster: ClusterState, pod: Object, ended: Exit, about: str, job: str, *, is_previous: bool = False
) -> Finding:
    """Return the fault that ended a container: by its log, its message, its exit code."""
    namespace = namespace_of(pod)
    node = pod["spec"].get("nodeName")
    names: dict[str, object] = {"job": job, "namespace": namespace, "pod": ended.pod, "node": node, "rank": ended.node}
    start = f"{ended.pod} ended with {ended.meaning}"
    if ended.reason == "OOMKilled":
        return found("out-of-memory", about, f"{start}: {ended.message}".rstrip(": "), **names)
    log = [*cluster.log(pod, is_previous)]
    error = endings.first_error(log)
    known = in_log([error, _BEFORE_ERROR.sub("", error)]) if error else None
    if known is not None:
        return found(known[0].name, about, f"{start}: {error}", **names)
    known, more = in_log(log), f"; {error}" if error else ""
    # An exit code says more than an exception that may have been caught.
    if known is not None and (known[0].name != RAISED or ended.code not in _CODES):
        return found(known[0].name, about, f"{start}: {known[1]}{more}", **names)
    speaker = Speaker.RUNTIME if ended.reason in _NOT_STARTED else Speaker.PROGRAM
    said = in_message(ended.message, speaker)
    named = said.name if said and said.name != RAISED else _CODES.get(ended.code) or (RAISED if said else "")
    fault = named or ("crash-loop" if is_previous else "container-failed")
    return found(fault, about, f"{start}: {error or ended.message}".rstrip(": "), **names)


def lingering(cluster: ClusterState, pod: Object, ended_at: datetime | None) -> Iterator[Finding]:
    """Yield faults of pods that should be gone, or that their node has refused or ended. ``ended_at``: None for a
    running job, and without a job."""
    name, namespace = name_of(pod), namespace_of(pod)
    about = f"pod {name} of {namespace}"
    leaving = pod["metadata"].get("deletionTimestamp")
    if leaving:
        if cluster.now - moment(leaving) > AFTER_GRACE:
            held = ", ".join(pod["metadata"].get("finalizers") or ()) or f"node {pod['spec'].get('nodeName')}"
            sentence = f"is Terminating since {leaving} ({held})"
            yield found("pod-stuck-terminating", about, sentence, pod=name, namespace=namespace)
        return
    if reason := why_not_started.ended_by_node(pod):
        if ended_at is None:  # the end of a job tells it of its pods
            yield of_reason(reason, about, namespace)
    elif ended_at is not None and is_bound(pod) and not is_over(pod) and cluster.now - ended_at > PATIENCE:
        sentence = f"runs on {pod['spec']['nodeName']} although its job ended at {ended_at:%H:%M:%S}"
        yield found("devices-held-after-end", about, sentence, pod=name, namespace=namespace)


def uncounted(cluster: ClusterState, pods: Iterable[Object]) -> Iterator[Finding]:
    """Yield pods of Volcano with devices that no queue counts, because their PodGroup does not exist."""
    if "PodGroup" not in cluster.objects:
        return
    groups = {(namespace_of(each), name_of(each)) for each in cluster.readable("PodGroup")}
    for pod in pods:
        spec, namespace = pod["spec"], namespace_of(pod)
        asked = {name for one in spec["containers"] for name in (one.get("resources") or {}).get("limits") or ()}
        holds = is_bound(pod) and not is_over(pod) and any(each.startswith(ACCELERATOR_PREFIXES) for each in asked)
        group = (pod["metadata"].get("annotations") or {}).get(GROUP_ANNOTATION, "")
        is_leaving = pod["metadata"].get("deletionTimestamp") is not None
        if holds and not is_leaving and spec.get("schedulerName") == SCHEDULER and (namespace, group) not in groups:
            about = f"pod {name_of(pod)} of {namespace}"
            sentence = f"holds {', '.join(sorted(asked))}, and there is no PodGroup {group!r}"
            yield found("devices-not-counted", about, sentence, pod=name_of(pod), namespace=namespace)


def failed(pods: Sequence[Object]) -> Iterator[tuple[Object, Exit]]:
    """Yield the failed pods that nothing has replaced: of one owner none is newer, and none has succeeded."""
    owners: dict[str, list[Object]] = {}
    for pod in pods:
        names = [owner.get("uid", "") for owner in pod["metadata"].get("ownerReferences") or ()]
        owners.setdefault(next(iter(names), name_of(pod)), []).append(pod)
    for siblings in owners.values():
        newest = max(siblings, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
        if any((pod.get("status") or {}).get("phase") == "Succeeded" for pod in siblings):
            continue
        if (newest.get("status") or {}).get("phase") == "Failed":
            ended = endings.first_failure(endings.exits([newest]))
            if ended is not None:
                yield newest, ended
