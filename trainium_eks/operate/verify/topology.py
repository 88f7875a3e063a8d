"""Topology: the HyperNodes by which Volcano places jobs that ask for a close network."""

from collections.abc import Iterator, Sequence

from trainium_eks.kube.cluster import Object, labels_of, name_of
from trainium_eks.model.catalogue.chart_workloads import HYPERNODES
from trainium_eks.model.volcano_config import EC2_TOPOLOGY_LABELS
from trainium_eks.operate.verify.check import Check, failed, not_applicable, passed
from trainium_eks.operate.verify.examined import Examined
from trainium_eks.topology import tree

Member = tuple[str, str]
"""Its type (``Node`` or ``HyperNode``) and its name."""


def hypernodes(examined: Examined) -> Iterator[Check]:
    """Check that the HyperNodes match the nodes' labels, and that no member has two parents.

    Over a member with two parents Volcano's scheduler refuses the whole topology, and with it every job that has
    ``spec.networkTopology`` (``addChild`` and ``updateAncestors`` of its ``hyper_node_info.go``, 1.15). The controller
    makes no such member; a person can, or Volcano's own discovery where somebody turned it on.
    """
    id_, subject = "topology/hypernodes", "HyperNodes"
    found = {name_of(each): each for each in examined.cluster.of("HyperNode")}
    nodes = {name_of(each): labels_of(each) for each in examined.cluster.of("Node")}
    due = tree.changes(tree.hypernodes(nodes, EC2_TOPOLOGY_LABELS), found)
    if examined.local is not None and not examined.local.real_volcano:
        yield not_applicable(id_, subject, "Volcano does not run on this machine")
    elif not found and not due:
        yield not_applicable(id_, subject, "there are none: no node names its switches")
    elif shared := shared_members([*found.values()]):
        surplus = dict.fromkeys(name for parents in shared for name in parents[1:])
        remedy = f"kubectl delete hypernodes.topology.volcano.sh {' '.join(surplus)}"
        detail = "members with two parents: jobs with spec.networkTopology may wait for ever"
        faults = [f"{' and '.join(parents)} share {_named(members)}" for parents, members in shared.items()]
        yield failed(id_, subject, detail, remedy, faults)
    elif due:
        remedy = f"its controller says why: kubectl -n {HYPERNODES.namespace} logs deployment/{HYPERNODES.name}"
        faults = [f"{change.name}: to {change.verb}" for change in due]
        yield failed(id_, subject, "not those that the nodes' labels ask for", remedy, faults)
    else:
        yield passed(id_, subject, f"{len(found)}, as the nodes' labels say")


def shared_members(found: Sequence[Object]) -> dict[tuple[str, ...], list[str]]:
    """Return each group of HyperNodes with common members, and these members.

    The HyperNode to keep comes first: the controller's own, which it would make again, otherwise the oldest.
    """

    def is_less_wanted(each: Object) -> tuple[bool, str, str]:
        return not tree.OWNED.items() <= labels_of(each).items(), each["metadata"]["creationTimestamp"], name_of(each)

    parents: dict[Member, list[str]] = {}
    for each in sorted(found, key=is_less_wanted):
        for member in _members(each):
            parents.setdefault(member, []).append(name_of(each))
    shared: dict[tuple[str, ...], list[str]] = {}
    for (_, name), names in sorted(parents.items()):
        if len(names) > 1:
            shared.setdefault(tuple(names), []).append(name)
    return shared


def _members(hypernode: Object) -> set[Member]:
    """Members by name. The controller names all members; only people select nodes by a pattern or by labels."""
    members = hypernode["spec"].get("members") or ()
    return {
        (each["type"], each["selector"]["exactMatch"]["name"]) for each in members if "exactMatch" in each["selector"]
    }


def _named(members: Sequence[str]) -> str:
    return members[0] + (f" and {len(members) - 1} more" if len(members) > 1 else "")
