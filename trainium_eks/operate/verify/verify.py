"""Every check of a cluster against its stack's outputs and state."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from trainium_eks.kube.cluster import UnreadError
from trainium_eks.model.finding import Finding, Status
from trainium_eks.observe.faults.catalogue import BY_NAME
from trainium_eks.operate.verify import comparison, nodes, scheduling, storage, topology, workloads
from trainium_eks.operate.verify.check_input import CheckInput

NOT_AS_DECLARED = "not-as-declared"
"""Fault of a failure without a fault of its own."""

Section = tuple[str, str, Callable[[CheckInput], Iterable[Finding]]]
"""First part of the ids, subject, and checks."""

SECTIONS: Sequence[Section] = (
    ("server", "versions", nodes.server),
    ("server", "local processes", workloads.processes),
    ("nodes", "nodes", nodes.counts),
    ("devices", "devices", nodes.devices),
    ("plugins", "plugins and add-ons", workloads.plugins),
    ("storage", "storage", storage.checks),
    ("volcano", "processes", workloads.volcano),
    ("volcano", "webhooks", scheduling.webhooks),
    ("topology", "HyperNodes", topology.hypernodes),
    ("topology", "switches", topology.switches),
    ("namespaces", "namespaces", scheduling.namespaces),
    ("queues", "queues", scheduling.queues),
    ("objects", "objects", comparison.checks),
)
"""All sections, in the order in which a cluster comes up: an early failure is the cause of later ones."""


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
}


def verify(examined: CheckInput, sections: Sequence[Section] = SECTIONS) -> Iterator[Finding]:
    """Yield the findings of these sections; each failure names its fault and the fault's cause.

    A section ends before the first kind of object that could not be read.
    """
    for _, _, judge in sections:
        try:
            for each in judge(examined):
                fault = each.fault or NOT_AS_DECLARED
                told = {**each.data, "fault": fault, "cause": BY_NAME[fault].cause}
                yield replace(each, data=told) if each.status is Status.FAIL else each
        except UnreadError:
            continue  # the doctor names the kinds
