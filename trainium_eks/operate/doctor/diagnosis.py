"""The diagnosis: all recognizers over one examination, causes before their consequences."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from trainium_eks.jobs.explain import why_not_started
from trainium_eks.jobs.explain.cluster_snapshot import job_of
from trainium_eks.jobs.explain.watched import owner_of
from trainium_eks.kube.cluster import Object, name_of, namespace_of
from trainium_eks.model.finding import Finding, Report, Status, not_checked
from trainium_eks.operate.doctor import cluster_recognizers, job_recognizers, pod_recognizers
from trainium_eks.operate.doctor.examination import Examination
from trainium_eks.operate.doctor.findings import FAULTS, unique
from trainium_eks.operate.verify import verify

_SHOWN = ("Node", "Queue", "Job", "Pod", "Namespace", "PersistentVolumeClaim")
UNREAD = "unread"
"""Section of the kinds that the reader may not list."""
HEADINGS = {**verify.HEADINGS, FAULTS: "Faults", UNREAD: "Not looked at"}
_PLACING = ("devices", "efa", "gang", "hypernodes", "node", "pod-too", "pod-un", "pool", "taint", "topology", "volcano")
"""Starts of the names of faults that leave a job without nodes: a fault of the cluster may be their cause."""


def diagnose(examination: Examination, name: str = "", *, checks: bool = True, faults: bool = True) -> Report:
    """Return the findings of a stack, or of one job, service or pod and its surroundings: of the checks, and the faults
    that no check looks for."""
    cluster = examination.examined.cluster
    logs, read = set(), examination.log

    def log(pod: Object, previous: bool) -> Sequence[str]:
        logs.add(name_of(pod))
        return read(pod, previous)

    examination = replace(examination, log=log)
    around = cluster_recognizers.checks(examination) if checks else []
    told: list[Finding] = []
    if faults:
        around += cluster_recognizers.findings(examination)
        told = [*_of_jobs(examination, name), *_of_pods(examination, name)]
    # Who asks for one job hears of the cluster's own faults where the job has no place.
    if name:
        around = [each for each in around if each.status is Status.FAIL]
        findings = [*told, *around] if any(each.fault.startswith(_PLACING) for each in told) else told
    else:
        findings = [*around, *told]
    # A command without a namespace asks in the stack's first.
    for first in examination.examined.outputs.namespaces[:1]:
        short = re.compile(rf" --namespace {re.escape(first.name)}(?![\w-])")
        findings = [replace(each, fix=short.sub("", each.fix)) for each in findings]
    unread = [
        not_checked(f"{UNREAD}/{kind}", kind, reason)
        for kind, reason in cluster.unread.items()
        if kind != "Job" or "Job" not in cluster.objects
    ]
    looked = {kind: len(examination.of(kind)) for kind in _SHOWN if kind in cluster.objects} | {"log": len(logs)}
    return Report({"lookedAt": looked}, (*unique(findings), *unread))


def known_names(examination: Examination) -> set[str]:
    """Return the names that :func:`diagnose` finds something by: of jobs, and of the owners of other pods."""
    return {name_of(job) for job in examination.of("Job")} | {
        each for pod in examination.of("Pod") for each in (owner_of(pod), job_of(pod)) if each
    }


def _is_asked(pod: Object, name: str) -> bool:
    return name in (owner_of(pod), job_of(pod)) or name_of(pod).startswith(f"{name}-") or name_of(pod) == name


def _of_jobs(examination: Examination, name: str) -> Iterator[Finding]:
    for job in examination.of("Job"):
        if not name or name_of(job) == name:
            yield from job_recognizers.findings(examination, job, is_asked=bool(name))


def _of_pods(examination: Examination, name: str) -> Iterator[Finding]:
    ends = {job["metadata"].get("uid"): job_recognizers.ended_at(job) for job in examination.of("Job")}
    pods = [pod for pod in examination.of("Pod") if not name or _is_asked(pod, name)]
    others: list[Object] = []
    yield from pod_recognizers.uncounted(examination, pods)
    for pod in pods:
        owners = [owner.get("uid") for owner in pod["metadata"].get("ownerReferences") or ()]
        gang = next((uid for uid in owners if uid in ends), "")
        yield from pod_recognizers.lingering(examination, pod, ends.get(gang))
        if not gang:
            others.append(pod)
            yield from pod_recognizers.starting(examination, _job(pod), pod, _about(pod))
    for read, (pod, ended) in enumerate(pod_recognizers.failed(others)):
        is_news = bool(name) or pod_recognizers.is_recent(examination, ended.finished)
        if read < pod_recognizers.MOST_LOGS and is_news and not why_not_started.ended_by_node(pod):
            yield pod_recognizers.of_exit(examination, pod, ended, _about(pod), _job(pod))
    if not name:
        yield from pod_recognizers.refused(examination)


def _job(pod: Object) -> str:
    return owner_of(pod) or job_of(pod)


def _about(pod: Object) -> str:
    job, namespace = _job(pod), namespace_of(pod)
    return f"pod {name_of(pod)} of {namespace}" if job == name_of(pod) else f"pods of {job} in {namespace}"
