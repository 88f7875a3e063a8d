"""Checks of scheduling: namespaces, their queues, Volcano, and the HyperNodes by which Volcano places jobs that ask for
a close network."""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal

from trainium_eks.diagnose.cluster_state import ClusterState
from trainium_eks.diagnose.why_no_room import shared_members
from trainium_eks.jobs.submit import planning
from trainium_eks.kube.cluster import Object, is_ready, labels_of, name_of
from trainium_eks.model.catalogue.chart_workloads import HYPERNODES
from trainium_eks.model.config.namespaces import VOLCANO as VOLCANO_NAMESPACE
from trainium_eks.model.finding import Finding, failed, not_applicable, not_checked, passed
from trainium_eks.model.node_labels import EC2_TOPOLOGY_LABELS, ULTRASERVER_LABELS
from trainium_eks.model.sizing.quantities import quantity
from trainium_eks.observe.faults.catalogue import BY_NAME
from trainium_eks.topology import tree

VOLCANO = "volcano"

CONTROLLERS = "vc-controller-manager"
WEBHOOKS = "vc-webhook-manager"

WEBHOOK_PREFIX = "volcano-admission-service-"
WEBHOOK_CONFIGURATIONS: Mapping[str, tuple[str, ...]] = {
    "MutatingWebhookConfiguration": ("jobs-mutate", "queues-mutate"),
    "ValidatingWebhookConfiguration": (
        "cronjobs-validate",
        "hypernodes-validate",
        "jobs-validate",
        "podgroups-validate",
        "queues-validate",
    ),
}
"""Webhooks of chart 1.15 by its default ``enabled_admissions``, which the stack leaves as it is (values.yaml)."""


def namespaces(cluster: ClusterState) -> Iterator[Finding]:
    """Check that each team's namespace is there, with the service account of its jobs."""
    outputs = cluster.outputs
    if not outputs.namespaces:
        yield not_applicable("namespaces/all", "namespaces", "the stack has none")
    for each in outputs.namespaces:
        id_ = f"namespaces/{each.name}"
        found = cluster.find("Namespace", each.name)
        phase = found.get("status", {}).get("phase") if found else None
        if phase != "Active":
            fault = "namespace-terminating" if found else "namespace-missing"
            detail = f"is {phase}, not Active" if found else "does not exist"
            remedy = BY_NAME[fault].mend(namespace=each.name, deploy=cluster.deploy)
            yield failed(id_, each.name, detail, remedy, fault=fault, objects=(f"Namespace {each.name}",))
        elif cluster.find("ServiceAccount", each.service_account, each.name) is None:
            detail, fault = f"has no service account {each.service_account}", "service-account-missing"
            about = (f"ServiceAccount {each.name}/{each.service_account}",)
            remedy = BY_NAME[fault].mend(deploy=cluster.deploy)
            yield failed(id_, each.name, detail, remedy, fault=fault, objects=about)
        else:
            yield passed(id_, each.name, f"Active, service account {each.service_account}")


def queues(cluster: ClusterState) -> Iterator[Finding]:
    """Check that each queue is there and Open, and that the nodes can meet the guarantees of all."""
    outputs = cluster.outputs
    if not outputs.queues:
        yield not_applicable("queues/all", "queues", "the stack has none")
    missing = "the cluster knows no queues" if "Queue" in cluster.unserved else "does not exist"
    for name in outputs.queues:
        queue = cluster.find("Queue", name)
        if queue is None:
            reason = cluster.missing(VOLCANO)
            if reason and "Queue" in cluster.unserved:
                yield not_checked(f"queues/{name}", name, reason)
            else:
                remedy = f"{cluster.deploy} makes it"
                about = (f"Queue {name}",)
                yield failed(f"queues/{name}", name, missing, remedy, fault="queue-missing", objects=about)
        else:
            yield _state(cluster, name, queue)
    yield _guarantees(cluster)


def _guarantees(cluster: ClusterState) -> Finding:
    """Check that the Ready nodes can meet the queues' guarantees: Volcano reserves these even beyond the nodes'
    capacity."""
    id_, subject = "queues/guarantees", "guarantees"
    wanted: dict[str, Decimal] = {}
    for queue in cluster.of("Queue") if "Queue" not in cluster.unserved else ():
        spec = queue.get("spec", {})
        # A queue below another shares in its guarantee; those at the top are below Volcano's root.
        if spec.get("parent", "root") in ("", "root"):
            for resource, amount in ((spec.get("guarantee") or {}).get("resource") or {}).items():
                wanted[resource] = wanted.get(resource, Decimal(0)) + (quantity(amount) or 0)
    if not wanted:
        return not_applicable(id_, subject, "no queue has one")
    present = dict.fromkeys(wanted, Decimal(0))
    for node in filter(is_ready, cluster.of("Node")):
        for resource in wanted:
            present[resource] += quantity(node.get("status", {}).get("allocatable", {}).get(resource)) or 0
    faults = [
        f"{resource}: {amount:f} guaranteed, the Ready nodes have {present[resource]:f}"
        for resource, amount in wanted.items()
        if amount > present[resource]
    ]
    if faults:
        fault = "queue-guarantees-too-large"
        detail = "more than the nodes have: jobs of other queues wait"
        return failed(id_, subject, detail, BY_NAME[fault].mend(), faults, fault=fault)
    shown = ", ".join(f"{amount:f} of {present[resource]:f} {resource}" for resource, amount in wanted.items())
    return passed(id_, subject, shown)


def _state(cluster: ClusterState, name: str, queue: Object) -> Finding:
    id_ = f"queues/{name}"
    state = queue.get("status", {}).get("state", "")
    if state == "Open":
        return passed(id_, name, "Open")
    # Volcano's controllers write the state: where they do not run, an empty one says nothing about the queue.
    reason = simulated_volcano(cluster, CONTROLLERS, "nobody opens queues")
    if not state and reason:
        return not_checked(id_, name, reason)
    if not state:
        remedy = logs_of(cluster, CONTROLLERS, "volcano-controllers")
        return failed(id_, name, "none: the controllers have not seen it", remedy, fault="volcano-controllers-silent")
    remedy = BY_NAME["queue-closed"].mend(queue=name)
    return failed(id_, name, f"is {state}, and takes no jobs", remedy, fault="queue-closed")


def webhooks(cluster: ClusterState) -> Iterator[Finding]:
    """Check that the API server calls Volcano's webhooks for jobs and queues, and trusts their certificate."""
    id_, subject = "volcano/webhooks", "webhooks"
    wanted = [(kind, f"{WEBHOOK_PREFIX}{each}") for kind, names in WEBHOOK_CONFIGURATIONS.items() for each in names]
    found = {(kind, name_of(each)): each for kind in WEBHOOK_CONFIGURATIONS for each in cluster.of(kind)}
    faults = [f"{name}: missing" for kind, name in wanted if (kind, name) not in found]
    # The webhook manager writes its authority into them when it starts; until then every call fails.
    faults += [
        f"{name}: no certificate authority"
        for kind, name in wanted
        if not all(each["clientConfig"].get("caBundle") for each in found.get((kind, name), {}).get("webhooks") or ())
    ]
    reason = simulated_volcano(cluster, WEBHOOKS, "its webhooks are left out")
    if not faults:
        yield passed(id_, subject, f"{len(wanted)} configurations, all with a certificate authority")
    elif reason:
        yield not_checked(id_, subject, reason)
    else:
        remedy = f"{logs_of(cluster, WEBHOOKS, 'volcano-admission')}; missing ones come with {cluster.restore}"
        detail = f"{len(faults)} of {len(wanted)} configurations do not work"
        missing = [f"{kind} {name}" for kind, name in wanted if (kind, name) not in found]
        yield failed(id_, subject, detail, remedy, faults, fault="webhook-not-answering", objects=missing)


def simulated_volcano(cluster: ClusterState, binary: str, so: str) -> str:
    """Return why one of Volcano's processes does not run on this machine; empty when it does, or on AWS."""
    missing = cluster.missing(VOLCANO)
    if missing or cluster.local is None or cluster.local.real_volcano:
        return missing
    return f"{binary} is not on PATH, so {so}"


def logs_of(cluster: ClusterState, binary: str, deployment: str) -> str:
    """Return the command that shows the log of one of Volcano's processes."""
    if cluster.local is not None:
        return f"trn local logs {binary}"
    return f"kubectl -n {VOLCANO_NAMESPACE} logs deploy/{deployment}"


def hypernodes(cluster: ClusterState) -> Iterator[Finding]:
    """Check that the HyperNodes match the nodes' labels, and that no member has two parents.

    Over a member with two parents Volcano's scheduler refuses the whole topology, and with it every job that has
    ``spec.networkTopology`` (``addChild`` and ``updateAncestors`` of its ``hyper_node_info.go``, 1.15). The controller
    makes no such member; a person can, or Volcano's own discovery where it is on.
    """
    id_, subject = "topology/hypernodes", "HyperNodes"
    found = {name_of(each): each for each in cluster.of("HyperNode")}
    nodes = {name_of(each): labels_of(each) for each in cluster.of("Node")}
    due = tree.changes(tree.hypernodes(nodes, planning.topology_labels(cluster.outputs)), found)
    if cluster.local is not None and not cluster.local.real_volcano:
        yield not_applicable(id_, subject, "Volcano does not run on this machine")
    elif not found and not due:
        yield not_applicable(id_, subject, "there are none: no node names its switches")
    elif shared := shared_members([*found.values()]):
        surplus = dict.fromkeys(name for parents in shared for name in parents[1:])
        remedy = BY_NAME["hypernodes-doubled"].mend(hypernodes=" ".join(surplus))
        detail = "members with two parents: jobs with spec.networkTopology may wait for ever"
        faults = [f"{' and '.join(parents)} share {_named(members)}" for parents, members in shared.items()]
        yield failed(id_, subject, detail, remedy, faults, fault="hypernodes-doubled")
    elif due:
        log = f"kubectl -n {HYPERNODES.namespace} logs deployment/{HYPERNODES.name}"
        remedy = BY_NAME["hypernodes-outdated"].mend(log=log)
        faults = [f"{change.name}: to {change.verb}" for change in due]
        yield failed(
            id_, subject, "not those that the nodes' labels ask for", remedy, faults, fault="hypernodes-outdated"
        )
    else:
        yield passed(id_, subject, f"{len(found)}, as the nodes' labels say")


def switches(cluster: ClusterState) -> Iterator[Finding]:
    """Check that each node names its switches, where a node of its group names one, and its UltraServer, where its type
    is in one: Volcano places no gang by the network on a node that is in no HyperNode."""
    types = cluster.outputs.catalogue
    for group in cluster.outputs.node_groups:
        nodes = {name_of(node): labels_of(node) for node in cluster.nodes_of(group.eks_name)}
        named = any({*EC2_TOPOLOGY_LABELS} & labels.keys() for labels in nodes.values())
        due: tuple[str, ...] = EC2_TOPOLOGY_LABELS if named else ()
        due += ULTRASERVER_LABELS if types[group.instance_type].ultraserver_nodes else ()
        faults = [
            f"{name}: {label} is missing" for name, labels in nodes.items() for label in due if label not in labels
        ]
        if faults:
            remedy = BY_NAME["switch-unknown"].mend(restore=cluster.deploy if cluster.local is not None else "")
            id_, subject = f"topology/{group.name}", f"{group.name} switches"
            yield failed(id_, subject, f"{len(faults)} labels missing", remedy, faults, fault="switch-unknown")


def _named(members: Sequence[str]) -> str:
    return members[0] + (f" and {len(members) - 1} more" if len(members) > 1 else "")
