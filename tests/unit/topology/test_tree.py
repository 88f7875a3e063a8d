"""HyperNodes of any nodes: a tree, and changes that lead to it from whatever is there without leaving it on the way."""

import re
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from trainium_eks.model.node_labels import EC2_TOPOLOGY_LABELS as LAYERS
from trainium_eks.topology.tree import DOMAINS, OWNED, changes, hypernodes

# Few values, so that nodes share switches: also such that no network has, a leaf below two spines.
VALUES = st.sampled_from(["nn-1", "nn-2", "NN_1.", "x" * 63, ""])
NAMES = st.sampled_from([f"n{number}" for number in range(8)])
NODES = st.dictionaries(NAMES, st.dictionaries(st.sampled_from(LAYERS), VALUES))
FIVE = (*LAYERS, *DOMAINS)
"""The layers of a stack with UltraServers."""
IDS = st.sampled_from(["u5wy80u0o2saugxy", "0000000000000000", "ygml2651y0lwdd46", ""])
IN_ULTRASERVERS = st.dictionaries(
    NAMES, st.fixed_dictionaries({}, optional={**dict.fromkeys(LAYERS, VALUES), **dict.fromkeys(DOMAINS, IDS)})
)


def members(each):
    return [member["selector"]["exactMatch"]["name"] for member in each["spec"]["members"]]


def is_a_forest(found):
    """Whether no HyperNode has two parents: Volcano's scheduler refuses all topologies otherwise."""
    children = Counter(name for each in found.values() for name in members(each) if name in found)
    return all(count == 1 for count in children.values())


def applied(change, found):
    """What the API server has after a change."""
    if change.verb == "delete":
        return {name: each for name, each in found.items() if name != change.name}
    if change.verb == "create":
        assert change.name not in found
        return {**found, change.name: change.body}
    there = found[change.name]
    labels = {**there["metadata"]["labels"], **change.body["metadata"]["labels"]}
    made = {"metadata": {**there["metadata"], "labels": labels}, "spec": change.body["spec"]}
    return {**found, change.name: {**there, **made}}


def other(name, labels):
    spec = {"tier": 1, "members": [{"type": "Node", "selector": {"exactMatch": {"name": "n0"}}}]}
    return {"metadata": {"name": name, "labels": dict(labels)}, "spec": spec}


BY_LABEL = {"volcano.sh/network-topology-source": "label", LAYERS[-1]: "nn-1"}
KEPT = {
    "a-persons": other("a-persons", {}),
    "of-another-discovery": other("of-another-discovery", BY_LABEL),
    "hypernode-ec2-tier1-x4x5x": other("hypernode-ec2-tier1-x4x5x", {}),
}
REMOVED = {
    "hypernode-ec2-tier1-b2c4d": other("hypernode-ec2-tier1-b2c4d", BY_LABEL),
    "tier1-nn-9-0123456789": other("tier1-nn-9-0123456789", OWNED),
}


@given(NODES)
def test_every_node_is_under_its_switch_up_to_its_first_missing_layer(nodes):
    found = hypernodes(nodes, LAYERS)
    assert is_a_forest(found)
    parent = {(each["spec"]["tier"], name): key for key, each in found.items() for name in members(each)}
    for node, labels in nodes.items():
        above, member = [], node
        while (len(above) + 1, member) in parent:
            member = parent[len(above) + 1, member]
            label = found[member]["spec"]["tierName"]
            above.append((label, found[member]["metadata"]["labels"][label]))
        known = [(layer, labels.get(layer, "")) for layer in reversed(LAYERS)]
        missing = next((index for index, (_, value) in enumerate(known) if not value), len(known))
        assert above == known[:missing]
    for name, each in found.items():
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name)
        assert each["metadata"]["name"] == name
        assert OWNED.items() <= each["metadata"]["labels"].items()


def places(found, node):
    """Label and value of each HyperNode above a node, the nearest first."""
    above = []
    while parents := [name for name, each in found.items() if node in members(each)]:
        [node] = parents
        label = found[node]["spec"]["tierName"]
        above.append((label, found[node]["metadata"]["labels"][label]))
    return above


@given(IN_ULTRASERVERS)
def test_node_is_in_its_half_and_ultraserver_under_the_shared_switches(nodes):
    found = hypernodes(nodes, FIVE)
    assert is_a_forest(found)
    assert all(each["spec"]["tier"] == 5 - FIVE.index(each["spec"]["tierName"]) for each in found.values())
    inner = {
        node: [(label, labels[label]) for label in reversed(DOMAINS) if labels.get(label, "").strip("0")]
        for node, labels in nodes.items()
    }
    for node, labels in nodes.items():
        above, own = places(found, node), inner[node]
        assert above[: len(own)] == own
        sharing = [nodes[other] for other in nodes if own and inner[other][-1:] == own[-1:]] or [labels]
        for label, value in above[len(own) :]:
            assert all(each[label] == value for each in sharing)


def test_ultraserver_under_different_leaves_is_placed_under_the_spine():
    nodes = {
        f"n{number}": {
            **dict(zip(FIVE, ("nn-1", "nn-2", f"nn-{3 + number % 2}", "us", f"h{number // 2}"), strict=True))
        }
        for number in range(4)
    }
    found = hypernodes({**nodes, "bare": dict.fromkeys(LAYERS, "nn-1")}, FIVE)
    [us] = [each for each in found.values() if each["spec"]["tier"] == 2]
    assert sorted(found[name]["metadata"]["labels"][DOMAINS[1]] for name in members(us)) == ["h0", "h1"]
    assert [label for label, _ in places(found, "n0")] == [DOMAINS[1], DOMAINS[0], LAYERS[1], LAYERS[0]]
    assert [label for label, _ in places(found, "bare")] == [LAYERS[2], LAYERS[1], LAYERS[0]]


@given(IN_ULTRASERVERS, IN_ULTRASERVERS)
def test_changes_lead_from_any_tree_to_any_other_and_stay_a_forest(before, after):
    wanted = hypernodes(after, FIVE)
    there = {**hypernodes(before, FIVE), **KEPT, **REMOVED}
    for change in changes(wanted, there):
        there = applied(change, there)
        assert is_a_forest(there)
    assert there == {**wanted, **KEPT}
    assert changes(wanted, there) == []


def test_manually_changed_hypernode_is_repaired():
    wanted = hypernodes({"n0": dict.fromkeys(LAYERS, "nn-1")}, LAYERS)
    for name, each in wanted.items():
        bare = {**each, "metadata": {"name": name}}
        empty = {**each, "spec": {**each["spec"], "members": []}}
        for spoilt in (bare, empty):
            (change,) = changes(wanted, {**wanted, name: spoilt})
            assert (change.verb, change.name, change.body["spec"]) == ("update", name, each["spec"])
