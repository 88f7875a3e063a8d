"""The HyperNodes that a cluster's nodes should have, and the changes that make them so.

Pure functions; they need Python alone, for the controller's pod has nothing else.

A HyperNode stands for one switch, or for an UltraServer or a half of one below it. Its name follows from the labels of
the nodes under it, from the widest layer down to its own. So the API server itself refuses a second HyperNode for a
switch, and no HyperNode can have two parents.
"""

import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

API_VERSION, KIND = "topology.volcano.sh/v1alpha1", "HyperNode"

OWNED: Mapping[str, str] = {"app.kubernetes.io/managed-by": "trainium-eks"}
"""Label of the HyperNodes that the controller keeps. It touches no others but those of :func:`is_discovered`."""

_DISCOVERED_LABEL = ("volcano.sh/network-topology-source", "label")
_DISCOVERED_NAME = re.compile(r"hypernode-ec2-tier\d+-[a-z0-9]{5}")

DOMAINS = ("neuron.amazonaws.com/ultraserver-server-id-4", "neuron.amazonaws.com/ultraserver-server-id-2")
"""Labels by which Neuron's device plugin names a node's UltraServer, of four nodes, and its half of it (Neuron's guide,
"How to schedule MPI jobs to run on Neuron UltraServer on EKS"). As layers they are optional: other nodes lack them."""

# A member's name has at most 63 characters: the chart's ValidatingAdmissionPolicy wants a qualified name.
_VALUE_LENGTH = 40

Object = Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """One request to the API server."""

    verb: Literal["create", "update", "delete"]
    name: str
    body: Object
    """The whole object, or for ``update`` what a merge patch changes; empty for ``delete``."""


def hypernodes(nodes: Mapping[str, Mapping[str, str]], layers: Sequence[str]) -> dict[str, Object]:
    """Return the HyperNodes for these nodes, by name.

    A node that lacks the label of a switch's layer is in the HyperNodes of the narrower layers alone. Without the label
    of its narrowest switch and of :data:`DOMAINS` a node is in no HyperNode. Where nodes of an UltraServer name
    different switches, the UltraServer is under the switches that all its nodes name. ``layers`` are the labels in
    which nodes say their place, the widest first; a layer's tier is its number from the narrowest, 1, whichever layers
    a node has.
    """
    made: dict[str, Object] = {}
    members: dict[str, set[tuple[str, str]]] = {}
    tiers = {layer: tier for tier, layer in enumerate(reversed(layers), 1)}
    shared: dict[tuple[str, str], Sequence[tuple[str, str]]] = {}
    for labels in nodes.values():
        if inner := _domains(labels, layers):
            switches = _switches(labels, layers)
            shared[inner[-1]] = [each for each in shared.get(inner[-1], switches) if each in switches]
    for node, labels in nodes.items():
        type_, member = "Node", node
        inner = _domains(labels, layers)
        path = [*inner, *(shared[inner[-1]] if inner else _switches(labels, layers))]
        for place, (layer, value) in enumerate(path):
            name = _name(tiers[layer], path[place:])
            members.setdefault(name, set()).add((member, type_))
            made.setdefault(name, _head(name, tiers[layer], layer, value))
            type_, member = KIND, name
    return {name: _with_members(head, sorted(members[name])) for name, head in made.items()}


def changes(wanted: Mapping[str, Object], existing: Mapping[str, Object]) -> list[Change]:
    """Return the changes that turn the existing HyperNodes into the wanted ones.

    A HyperNode is created before its parent and deleted after it, so that Volcano's scheduler never sees one part of
    the tree contradict another.
    """
    found = []
    for name, each in sorted(wanted.items(), key=lambda item: (item[1]["spec"]["tier"], item[0])):
        there = existing.get(name)
        if there is None:
            found.append(Change("create", name, each))
        elif there["spec"] != each["spec"] or not each["metadata"]["labels"].items() <= _labels(there).items():
            body = {"metadata": {"labels": each["metadata"]["labels"]}, "spec": each["spec"]}
            found.append(Change("update", name, body))
    surplus = [
        each
        for name, each in existing.items()
        if name not in wanted and (OWNED.items() <= _labels(each).items() or is_discovered(name, each))
    ]
    surplus.sort(key=lambda each: (-each["spec"]["tier"], each["metadata"]["name"]))
    return [*found, *(Change("delete", each["metadata"]["name"], {}) for each in surplus)]


def is_discovered(name: str, hypernode: Object) -> bool:
    """Return whether Volcano's own discovery made a HyperNode, as earlier releases of this library configured it."""
    return _DISCOVERED_LABEL in _labels(hypernode).items() and _DISCOVERED_NAME.fullmatch(name) is not None


def _domains(labels: Mapping[str, str], layers: Sequence[str]) -> list[tuple[str, str]]:
    """Label and value of a node's half and UltraServer. The driver's id of none consists of zeros."""
    named = [(layer, labels.get(layer, "")) for layer in reversed(layers) if layer in DOMAINS]
    return [(layer, value) for layer, value in named if value.strip("0")]


def _switches(labels: Mapping[str, str], layers: Sequence[str]) -> list[tuple[str, str]]:
    """Label and value of each switch, the narrowest first, up to the first that is missing."""
    named = [(layer, labels.get(layer, "")) for layer in reversed(layers) if layer not in DOMAINS]
    return list(itertools.takewhile(lambda each: each[1], named))


def _name(tier: int, path: Sequence[tuple[str, str]]) -> str:
    digest = hashlib.sha256(json.dumps(path).encode()).hexdigest()[:10]
    value = re.sub(r"[^a-z0-9]+", "-", path[0][1].lower())[:_VALUE_LENGTH].strip("-")
    return "-".join(filter(None, (f"tier{tier}", value, digest)))


def _head(name: str, tier: int, label: str, value: str) -> Object:
    metadata = {"name": name, "labels": {**OWNED, label: value}}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": {"tier": tier, "tierName": label}}


def _with_members(head: Object, found: Sequence[tuple[str, str]]) -> Object:
    members = [{"type": type_, "selector": {"exactMatch": {"name": name}}} for name, type_ in found]
    return {**head, "spec": {**head["spec"], "members": members}}


def _labels(hypernode: Object) -> Mapping[str, str]:
    return hypernode["metadata"].get("labels") or {}
