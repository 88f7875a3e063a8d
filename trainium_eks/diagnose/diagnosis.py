"""The diagnosis: all recognizers over one cluster, causes before their consequences."""

import re
from collections.abc import Sequence
from dataclasses import replace

from trainium_eks.diagnose import cluster_recognizers, job_recognizers, pod_recognizers
from trainium_eks.diagnose.cluster_state import ClusterState
from trainium_eks.diagnose.findings import unique
from trainium_eks.jobs.observed.watched import job_of, owner_of
from trainium_eks.kube.cluster import Object, name_of
from trainium_eks.model.finding import Finding, Report, Status, not_checked

_SHOWN = ("Node", "Queue", "Job", "Pod", "Namespace", "PersistentVolumeClaim")
UNREAD = "unread"
"""Section of the kinds that the reader may not list."""
_PLACING = ("devices", "efa", "gang", "hypernodes", "node", "pod-too", "pod-un", "pool", "taint", "topology", "volcano")
"""Starts of the names of faults that leave a job without nodes: a fault of the cluster may be their cause."""


def diagnose(cluster: ClusterState, name: str = "", *, checked: Sequence[Finding] = (), faults: bool = True) -> Report:
    """Return the findings of a stack, or of one job, service or pod and its surroundings: those of the checks
    (``checked``), and with ``faults`` also the faults of the catalogue that no check looks for."""
    logs, read = set(), cluster.log

    def log(pod: Object, previous: bool) -> Sequence[str]:
        logs.add(name_of(pod))
        return read(pod, previous)

    cluster = replace(cluster, log=log)
    around = [*checked]
    told: list[Finding] = []
    if faults:
        around += cluster_recognizers.findings(cluster)
        for job in cluster.readable("Job"):
            if not name or name_of(job) == name:
                told += job_recognizers.findings(cluster, job, is_asked=bool(name))
        told += pod_recognizers.findings(cluster, name)
    # Who asks for one job hears of the cluster's own faults where the job has no place.
    if name:
        around = [each for each in around if each.status is Status.FAIL]
        findings = [*told, *around] if any(each.fault.startswith(_PLACING) for each in told) else told
    else:
        findings = [*around, *told]
    # A command without a namespace asks in the stack's first.
    for first in cluster.outputs.namespaces[:1]:
        short = re.compile(rf" --namespace {re.escape(first.name)}(?![\w-])")
        findings = [replace(each, fix=short.sub("", each.fix)) for each in findings]
    unread = [
        not_checked(f"{UNREAD}/{kind}", kind, reason)
        for kind, reason in cluster.unread.items()
        if kind != "Job" or "Job" not in cluster.objects
    ]
    looked = {kind: len(cluster.readable(kind)) for kind in _SHOWN if kind in cluster.objects} | {"log": len(logs)}
    return Report({"lookedAt": looked}, (*unique(findings), *unread))


def known_names(cluster: ClusterState) -> set[str]:
    """Return the names that :func:`diagnose` finds something by: of jobs, and of the owners of other pods."""
    return {name_of(job) for job in cluster.readable("Job")} | {
        each for pod in cluster.readable("Pod") for each in (owner_of(pod), job_of(pod)) if each
    }
