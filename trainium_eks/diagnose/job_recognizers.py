"""Recognizers of faults of Volcano's jobs: reasons of waits, causes of failures, and faults of running jobs."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

from trainium_eks.diagnose import why_not_started, why_pending
from trainium_eks.diagnose.cluster_recognizers import PATIENCE
from trainium_eks.diagnose.cluster_state import ClusterState
from trainium_eks.diagnose.findings import found, of_reason
from trainium_eks.diagnose.pod_recognizers import REPEATED, is_recent, of_exit
from trainium_eks.jobs.objects.identity import in_rank_order
from trainium_eks.jobs.observed.job_snapshot import ENDED, FAILURES, JobSnapshot, ended_at, wanted_pods
from trainium_eks.jobs.submit.examples import EXAMPLES
from trainium_eks.jobs.watch import endings
from trainium_eks.jobs.watch.steps import parse_all, progress
from trainium_eks.kube import pod_text
from trainium_eks.kube.cluster import Object, condition, is_bound, is_over, is_running, moment, name_of, namespace_of
from trainium_eks.model.alerts import AlertSettings
from trainium_eks.model.annotations import annotation
from trainium_eks.model.finding import Finding
from trainium_eks.model.validation.problems import plural
from trainium_eks.observe.faults.catalogue import BY_NAME, in_log


def findings(cluster: ClusterState, job: Object, *, is_asked: bool) -> Iterator[Finding]:
    """Yield the faults of one job; with ``is_asked`` (by its name) also the wait for its turn, and an old end."""
    snapshot = cluster.snapshot_of(job)
    about = f"job {name_of(job)} of {namespace_of(job)}"
    if snapshot.phase in ENDED:
        if snapshot.phase in FAILURES and (is_asked or is_recent(cluster, ended_at(job))):
            yield from _end(cluster, snapshot, about)
        return
    yield from _block(cluster, snapshot, about)
    reason = why_pending.why(snapshot)
    failed = [pod for pod in snapshot.pods if (pod.get("status") or {}).get("phase") == "Failed"]
    if reason is not None and reason.fault == "crash-loop":
        yield from _end(cluster, snapshot, about, is_previous=True)
    elif reason is not None and reason.fault and (is_asked or not BY_NAME[reason.fault].waits):
        yield of_reason(reason, about, namespace_of(job))
    elif snapshot.phase == "Running" and endings.first_failure(endings.exits(failed)):
        # No policy of the job restarts or ends it: the rest waits for that pod.
        yield from _end(cluster, replace(snapshot, pods=tuple(failed)), about)
    elif reason is None:
        lost = next(why_not_started.lost_nodes(snapshot), None)
        if lost is not None:
            yield of_reason(lost, about, namespace_of(job))
        else:
            yield from _half_ended(snapshot, about, PATIENCE if is_asked else REPEATED)
            if is_asked:
                yield from _standstill(cluster, snapshot, about)
    yield from _parts(snapshot, about)
    if "Service" not in cluster.unread:
        yield from _service(cluster, snapshot, about)


def _end(cluster: ClusterState, snapshot: JobSnapshot, about: str, *, is_previous: bool = False) -> Iterator[Finding]:
    reason = why_pending.why_ended(snapshot)
    namespace = namespace_of(snapshot.job)
    if reason is not None and reason.fault:
        yield of_reason(reason, about, namespace)
        return
    ended = endings.first_failure(endings.exits(snapshot.pods))
    if ended is not None:
        pod = next(pod for pod in snapshot.pods if name_of(pod) == ended.pod)
        yield of_exit(cluster, pod, ended, about, snapshot.name, is_previous=is_previous)
        return
    told = [each.cause for each in endings.restarts(snapshot) if each.cause != endings.UNKNOWN]
    if told:
        yield found("container-failed", about, f"it failed: {told[-1]}", job=snapshot.name, namespace=namespace)
        return
    read = f"{plural(len(snapshot.pods), 'pod')} left and {plural(len(snapshot.events), 'event')}"
    sentence = f"it is {snapshot.phase}; read: {read}; none of them names a cause"
    if warning := next((each for each in reversed(snapshot.events) if each.get("type") == "Warning"), None):
        sentence += f"; the newest warning: {warning.get('message')}"
    yield found("end-unexplained", about, sentence, job=snapshot.name, namespace=namespace)


def _half_ended(snapshot: JobSnapshot, about: str, patience: timedelta) -> Iterator[Finding]:
    """Yield a fault for a gang of which some nodes have ended with success, and others go on alone."""
    over = [pod for pod in snapshot.pods if (pod.get("status") or {}).get("phase") == "Succeeded"]
    last = max((each.finished for each in endings.exits(over) if each.finished), default=None)
    if over and len(over) < len(snapshot.pods) and last is not None and snapshot.now - last > patience:
        names = ", ".join(map(name_of, over[:2]))
        ago = (snapshot.now - last) // timedelta(minutes=1)
        sentence = f"{len(over)} of its pods ended with success {ago} min ago ({names}), and the rest keeps running"
        yield found("training-stalled", about, sentence, job=snapshot.name, namespace=namespace_of(snapshot.job))


def _block(cluster: ClusterState, snapshot: JobSnapshot, about: str) -> Iterator[Finding]:
    # Whose pods all run is in a block that was extended: its end at the submission says nothing.
    if snapshot.pods and all(map(is_running, snapshot.pods)):
        return
    ends = pod_text.time((snapshot.job["metadata"].get("annotations") or {}).get(annotation("capacity-block-ends")))
    if ends is not None and ends < cluster.now:
        yield found("capacity-block-ended", about, f"its Capacity Block ended at {ends:%Y-%m-%d %H:%M} UTC")


def _parts(snapshot: JobSnapshot, about: str) -> Iterator[Finding]:
    """Yield a fault for a gang of which some pods have run for a while, and others have no node."""
    running = [pod for pod in snapshot.pods if is_running(pod)]
    homeless = [pod for pod in snapshot.pods if not is_bound(pod) and not is_over(pod)]
    missing = max(wanted_pods(snapshot.job) - len(snapshot.pods), 0)
    since = [moment(at) for pod in running if (at := condition(pod, "Ready").get("lastTransitionTime"))]
    lacking = len(homeless) + missing
    if running and lacking and since and all(snapshot.now - at > PATIENCE for at in since):
        names = {"job": snapshot.name, "namespace": namespace_of(snapshot.job)}
        sentence = f"{len(running)} of its pods run, and {lacking} have no node"
        yield found("gang-partly-placed", about, sentence, **names)


def _service(cluster: ClusterState, snapshot: JobSnapshot, about: str) -> Iterator[Finding]:
    """Yield a fault for a gang without its headless Service. Volcano makes it before the pods."""
    job, namespace = snapshot.job, namespace_of(snapshot.job)
    is_wanted = "svc" in (job["spec"].get("plugins") or {}) and wanted_pods(job) > 1
    if is_wanted and any(map(is_running, snapshot.pods)) and snapshot.name not in cluster.names("Service", namespace):
        sentence = f"there is no Service {snapshot.name}, by which its ranks find each other"
        yield found("rendezvous-service-missing", about, sentence, job=snapshot.name, namespace=namespace)


def _standstill(cluster: ClusterState, snapshot: JobSnapshot, about: str) -> Iterator[Finding]:
    """Yield the fault of a running job without steps, by its logs: without a known line the standstill itself."""
    pods = in_rank_order(snapshot.job, snapshot.pods)
    log = [*cluster.log(pods[0], False)] if pods else []
    steps = progress(parse_all(log), cluster.now.timestamp(), running=True)
    if steps is not None and not steps.stalled:
        return
    names = {"job": snapshot.name, "namespace": namespace_of(snapshot.job)}
    for pod in pods[:2]:
        known = in_log(log if pod is pods[0] else cluster.log(pod, False))
        if known is not None:
            yield found(known[0].name, about, f"{name_of(pod)}: {known[1]}", **names)
            return
    if steps is not None:
        yield found("training-stalled", about, "it has made no step for ten times its pace", **names)
        return
    began = [moment(at) for pod in pods if (at := condition(pod, "Ready").get("lastTransitionTime"))]
    command = json.dumps(snapshot.job["spec"])
    # A user's script may print no steps.
    if began and log and any(f" {example.module}" in command for example in EXAMPLES.values()):
        minutes = (cluster.now - max(began)) // timedelta(minutes=1)
        if minutes >= AlertSettings().first_step_minutes:
            words = f"it has run for {minutes} min, and the last {plural(len(log), 'line')} of rank 0 show no step"
            yield found("training-stalled", about, words, **names)
