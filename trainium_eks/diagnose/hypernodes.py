"""HyperNodes with common members, over which Volcano refuses the whole topology."""

from collections.abc import Sequence

from trainium_eks.kube.cluster import Object, labels_of, name_of
from trainium_eks.topology import tree

Member = tuple[str, str]
"""Type (``Node`` or ``HyperNode``) and name of a member."""


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
    """Return members by name. The controller names all members; only people select nodes by a pattern or by labels."""
    members = hypernode["spec"].get("members") or ()
    return {
        (each["type"], each["selector"]["exactMatch"]["name"]) for each in members if "exactMatch" in each["selector"]
    }
