"""Topology: the HyperNodes by which Volcano places jobs that ask for a close network."""

from collections.abc import Iterator, Sequence

from trainium_eks.diagnose.cluster_state import ClusterState
from trainium_eks.diagnose.hypernodes import shared_members
from trainium_eks.jobs.submit import planning
from trainium_eks.kube.cluster import labels_of, name_of
from trainium_eks.model.catalogue.chart_workloads import HYPERNODES
from trainium_eks.model.finding import Finding, failed, not_applicable, passed
from trainium_eks.model.volcano_config import EC2_TOPOLOGY_LABELS, ULTRASERVER_LABELS
from trainium_eks.observe.faults.catalogue import BY_NAME
from trainium_eks.topology import tree


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
    types = planning.catalogue(cluster.outputs)
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
