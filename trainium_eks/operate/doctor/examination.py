"""Examination: one snapshot of a cluster, or of the part that a researcher may read."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from trainium_eks.jobs.explain import cluster_snapshot
from trainium_eks.jobs.explain.cluster_snapshot import ClusterSnapshot
from trainium_eks.jobs.explain.room import has_devices
from trainium_eks.jobs.objects.identity import JOB_API
from trainium_eks.kube import cluster
from trainium_eks.kube.cluster import Object, name_of, namespace_of
from trainium_eks.operate.verify.check_input import CheckInput
from trainium_eks.operate.verify.scheduling import unscheduled

TEAM_KINDS: Mapping[str, str] = {
    **{kind: cluster.KINDS[kind] for kind in ("Node", "Queue", "HyperNode", "PersistentVolumeClaim", "ServiceAccount")},
    "Pod": "v1",
    "Event": "v1",
    "Service": "v1",
    "Job": JOB_API,
    "PodGroup": "scheduling.volcano.sh/v1beta1",
}
"""Kinds that a researcher may read: API version of each."""

KINDS: Mapping[str, str] = {
    **cluster.KINDS,
    **TEAM_KINDS,
    "EndpointSlice": "discovery.k8s.io/v1",
    "NodeClaim": "karpenter.sh/v1",
}
"""Kinds that an administrator's examination reads, by one list each."""

Log = Callable[[Object, bool], Sequence[str]]
"""Function that returns the last lines of a pod's log, or with True of its container before the last restart; none
where the log cannot be read."""


@dataclass(frozen=True)
class Examination:
    """A snapshot, and the way to logs."""

    examined: CheckInput
    now: datetime
    log: Log
    namespace: str = ""
    """The only namespace that was read; empty for all."""

    def of(self, kind: str) -> tuple[Object, ...]:
        """Return the objects of a kind; none where it may not be read."""
        return self.examined.cluster.objects.get(kind, ())

    def names(self, kind: str, namespace: str = "") -> set[str]:
        """Return the names of the objects of a kind, in a namespace."""
        return {name_of(each) for each in self.of(kind) if namespace_of(each) == namespace}

    def around(self, job: Object) -> ClusterSnapshot:
        """Return the snapshot of one Volcano job."""
        here = ("", namespace_of(job))
        objects = {
            kind: None
            if kind in self.examined.cluster.unread
            else [
                each
                for each in self.of(kind)
                if namespace_of(each) in here or (kind == "Pod" and has_devices(each["spec"]))
            ]
            for kind in TEAM_KINDS
        }
        local = self.examined.local
        return cluster_snapshot.of_objects(
            self.now,
            job,
            objects,
            groups=self.examined.outputs.node_groups,
            unscheduled=unscheduled(local),
            is_local=local is not None,
        )
