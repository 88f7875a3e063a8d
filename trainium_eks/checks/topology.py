"""Topology: the HyperNodes by which Volcano places jobs that ask for a close network."""

from collections.abc import Iterator, Sequence

from trainium_eks.checks.check import Check, failed, not_applicable, passed
from trainium_eks.checks.cluster import Object, name_of
from trainium_eks.checks.examined import Examined

Member = tuple[str, str]
"""Its type (``Node`` or ``HyperNode``) and its name."""


def hypernodes(examined: Examined) -> Iterator[Check]:
    """No member has two parents.

    Volcano 1.15 names HyperNodes with random suffixes and looks for those that exist in a cache. While many nodes join,
    the cache lags, and a label value gets a second HyperNode with the members of the first. The scheduler then refuses
    the whole topology, and with it every job that has ``spec.networkTopology`` (``addChild`` and ``updateAncestors`` of
    its ``hyper_node_info.go``). It stays so until a node or a HyperNode comes or goes: nothing else starts a discovery.
    """
    id_, subject = "topology/hypernodes", "HyperNodes"
    found = examined.cluster.of("HyperNode")
    if examined.local is not None and not examined.local.real_volcano:
        yield not_applicable(id_, subject, "Volcano does not run on this machine")
    elif not found:
        yield not_applicable(id_, subject, "there are none")
    elif shared := shared_members(found):
        younger = dict.fromkeys(name for parents in shared for name in parents[1:])
        delete = f"kubectl delete hypernodes.topology.volcano.sh {' '.join(younger)}"
        remedy = f"delete the younger, and Volcano discovers the topology anew: {delete}"
        detail = "members with two parents: jobs with spec.networkTopology may wait for ever"
        faults = [f"{' and '.join(parents)} share {_named(members)}" for parents, members in shared.items()]
        yield failed(id_, subject, detail, remedy, faults)
    else:
        yield passed(id_, subject, f"{len(found)}, none with members of another")


def shared_members(found: Sequence[Object]) -> dict[tuple[str, ...], list[str]]:
    """HyperNodes that have members in common, the oldest first, to those members.

    Of two from the same second, the later in the alphabet counts as the younger: Volcano, too, keeps the other.
    """
    parents: dict[Member, list[str]] = {}
    for each in sorted(found, key=lambda each: (each["metadata"]["creationTimestamp"], name_of(each))):
        for member in _members(each):
            parents.setdefault(member, []).append(name_of(each))
    shared: dict[tuple[str, ...], list[str]] = {}
    for (_, name), names in sorted(parents.items()):
        if len(names) > 1:
            shared.setdefault(tuple(names), []).append(name)
    return shared


def _members(hypernode: Object) -> set[Member]:
    """Those that it names. Discovery names all; only people select nodes by a pattern or by labels."""
    members = hypernode["spec"].get("members") or ()
    return {
        (each["type"], each["selector"]["exactMatch"]["name"]) for each in members if "exactMatch" in each["selector"]
    }


def _named(members: Sequence[str]) -> str:
    return members[0] + (f" and {len(members) - 1} more" if len(members) > 1 else "")
