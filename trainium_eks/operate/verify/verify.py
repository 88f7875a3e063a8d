"""Every check of a cluster against its stack's outputs and state."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

from trainium_eks.diagnose.cluster_state import ClusterState, UnreadError
from trainium_eks.diagnose.diagnosis import UNREAD
from trainium_eks.diagnose.findings import FAULTS
from trainium_eks.model.finding import Finding, Status
from trainium_eks.observe.faults.catalogue import BY_NAME
from trainium_eks.operate.verify import comparison, nodes, scheduling, storage, workloads
from trainium_eks.operate.verify.comparison import ObjectComparison

NOT_AS_DECLARED = "not-as-declared"
"""Fault of a failure without another fault."""

_Check = Callable[[ClusterState], Iterable[Finding]]

SECTIONS: Mapping[str, _Check] = {
    "versions": nodes.server,
    "local processes": workloads.processes,
    "nodes": nodes.counts,
    "devices": nodes.devices,
    "plugins and add-ons": workloads.plugins,
    "storage": storage.checks,
    "Volcano's processes": workloads.volcano,
    "webhooks": scheduling.webhooks,
    "HyperNodes": scheduling.hypernodes,
    "switches": scheduling.switches,
    "namespaces": scheduling.namespaces,
    "queues": scheduling.queues,
}
"""Checks by subject, in the order in which a cluster comes up: an early failure is the cause of later ones."""

TEAM_SECTIONS = ("HyperNodes", "switches", "local processes", "nodes", "devices", "queues")
"""Subjects of checks whose objects a researcher may read."""

HEADINGS: Mapping[str, str] = {
    "server": "API server",
    "nodes": "Nodes",
    "devices": "Devices",
    "plugins": "Plugins and add-ons",
    "storage": "Storage",
    "volcano": "Volcano",
    "topology": "Network topology",
    "namespaces": "Namespaces",
    "queues": "Queues",
    "objects": "What the stack made",
    FAULTS: "Faults",
    UNREAD: "Not looked at",
}
"""Headings of the sections of a diagnosis, by the first part of the findings' ids."""


def verify(cluster: ClusterState, made: ObjectComparison | None = None) -> list[Finding]:
    """Return the findings of all checks that the reader of the cluster may see; each failure names its fault and the
    fault's cause. ``made`` is the comparison of the stack's objects, None where nothing was compared.

    A section ends before the first kind of object that could not be read.
    """
    found: list[Finding] = []
    compared: _Check = partial(comparison.checks, made=made or ObjectComparison())
    for subject, check in [*SECTIONS.items(), ("objects", compared)]:
        if cluster.namespace and subject not in (*TEAM_SECTIONS, "objects"):
            continue
        with suppress(UnreadError):  # the doctor names the kinds
            for each in check(cluster):
                fault = each.fault or NOT_AS_DECLARED
                told = {**each.data, "fault": fault, "cause": BY_NAME[fault].cause}
                found.append(replace(each, data=told) if each.status is Status.FAIL else each)
    return comparison.without_repeats(found)
