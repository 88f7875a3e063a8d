"""HyperNodes: one tree, or Volcano schedules no job that asks for a close network."""

import pytest
from cluster_snapshots import NEURON, REAL, group, hypernode, judged, outputs, the

from trainium_eks.diagnose.local_report import LocalReport
from trainium_eks.model.finding import Status
from trainium_eks.model.node_labels import EC2_TOPOLOGY_LABELS, ULTRASERVER_LABELS
from trainium_eks.topology import tree

LATER = "2026-05-01T10:00:12Z"
SURPLUS = "an administrator deletes the surplus: kubectl delete hypernodes.topology.volcano.sh"


def _judged(*added, local=None):
    return judged(lambda made: made["HyperNode"].extend(added), local=local)["topology/hypernodes"]


@pytest.mark.parametrize("local", [None, REAL], ids=["aws", "local"])
def test_younger_of_two_equal_hypernodes_is_to_be_deleted(local):
    assert (_judged(local=local).status, _judged(local=local).text) == (Status.PASS, "3, as the nodes' labels say")
    # Its name comes first, so that it is the time that counts.
    found = _judged(hypernode("tier2-0", 2, "tier1-b", "tier1-a", created=LATER), local=local)
    assert found.status is Status.FAIL
    assert found.details == ("tier2-a and tier2-0 share tier1-a and 1 more",)
    assert found.fix == f"{SURPLUS} tier2-0"
    for name, later in (("tier2-0", "tier2-a"), ("tier2-b", "tier2-b")):  # of one second: by the alphabet
        assert _judged(hypernode(name, 2, "tier1-a", "tier1-b")).fix == f"{SURPLUS} {later}"


def test_hypernode_that_the_controller_would_recreate_is_kept():
    def edit(made):
        _name_switches(made)
        made["HyperNode"] = [*_wanted(made).values(), hypernode("a-persons", 1, "trn0")]

    assert judged(edit)["topology/hypernodes"].fix == f"{SURPLUS} a-persons"


def test_node_without_hypernode_fails_with_the_controllers_reason():
    def edit(made):
        _name_switches(made)
        first, *_, last = _wanted(made).values()
        spoilt = {**last, "spec": {**last["spec"], "members": []}}
        # What an earlier release's discovery left behind.
        left = hypernode("hypernode-ec2-tier1-b2c4d", 1, "gone")
        left["metadata"]["labels"] = {"volcano.sh/network-topology-source": "label"}
        made["HyperNode"] = [each for each in _wanted(made).values() if each not in (first, last)] + [spoilt, left]
        expected.update({first["metadata"]["name"]: "create", last["metadata"]["name"]: "update"})
        expected[left["metadata"]["name"]] = "delete"

    expected = {}
    found = judged(edit)["topology/hypernodes"]
    assert (found.status, found.text) == (Status.FAIL, "not those that the nodes' labels ask for")
    assert {*found.details} == {f"{name}: to {verb}" for name, verb in expected.items()}
    assert found.fix.endswith("kubectl -n volcano-system logs deployment/hypernodes")


def _name_switches(made):
    """Gives the two Trainium nodes a switch each, below the same ones."""
    for number in range(2):
        labels = the(made, "Node", f"trn{number}")["metadata"]["labels"]
        labels |= zip(EC2_TOPOLOGY_LABELS, ("nn-1", "nn-2", f"nn-3{number}"), strict=True)


def _wanted(made):
    nodes = {each["metadata"]["name"]: each["metadata"]["labels"] for each in made["Node"]}
    found = dict(tree.hypernodes(nodes, EC2_TOPOLOGY_LABELS))
    for each in found.values():
        each["metadata"]["creationTimestamp"] = LATER
    return found


def test_ultraserver_node_names_it_and_counts_in_its_tier():
    def edit(made):
        _name_switches(made)
        labels = the(made, "Node", "trn0")["metadata"]["labels"]
        labels |= zip(ULTRASERVER_LABELS, ("us", "half"), strict=True)

    stack = outputs(nodeGroups=[{**group("ng1", NEURON, 8, 2), "instanceType": "trn2u.48xlarge"}])
    found = judged(edit, stack=stack)
    missing = [f"trn1: {label} is missing" for label in ULTRASERVER_LABELS]
    [switches] = [each for each in found.values() if each.fault == "switch-unknown"]
    assert [each for each in switches.details if "trn1:" in each] == missing
    assert any(each.startswith("tier2-us-") for each in found["topology/hypernodes"].details)


def test_duplicate_hypernodes_are_found_in_every_tier():
    found = _judged(
        hypernode("tier1-c", 1, "trn1", "trn2", created=LATER), hypernode("tier3-a", 3, "tier1-a", created=LATER)
    )
    assert found.details == ("tier2-a and tier3-a share tier1-a", "tier1-b and tier1-c share trn1")
    assert found.fix == f"{SURPLUS} tier3-a tier1-c"
    found = _judged(*(hypernode(name, 2, "tier1-a", created=LATER) for name in ("tier2-b", "tier2-c")))
    assert found.details == ("tier2-a and tier2-b and tier2-c share tier1-a",)
    assert found.fix == f"{SURPLUS} tier2-b tier2-c"
    assert _judged(hypernode("tier1-c", 1, "tier1-a")).status is Status.PASS, "a node and a HyperNode of one name"

    # A HyperNode may name a member twice, and select others.
    def edit(made):
        members = the(made, "HyperNode", "tier1-a")["spec"]["members"]
        members += [*members, {"type": "Node", "selector": {"regexMatch": {"pattern": "trn.*"}}}]

    assert judged(edit)["topology/hypernodes"].status is Status.PASS


def test_topology_is_not_applicable_without_volcano():
    for unserved in (frozenset[str](), frozenset({"HyperNode"})):
        found = judged(lambda made: made.pop("HyperNode"), unserved=unserved)["topology/hypernodes"]
        assert (found.status, found.text) == (Status.NOT_APPLICABLE, "there are none: no node names its switches")
    for local in (LocalReport(), LocalReport({"volcano": "no chart"})):
        found = _judged(hypernode("tier2-b", 2, "tier1-a", created=LATER), local=local)
        assert (found.status, found.text) == (Status.NOT_APPLICABLE, "Volcano does not run on this machine")
