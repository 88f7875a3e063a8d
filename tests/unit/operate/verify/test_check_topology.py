"""HyperNodes: one tree, or Volcano schedules no job that asks for a close network."""

from typing import Any

import pytest
from cluster_snapshots import hypernode, judged, the

from trainium_eks.model.volcano_config import EC2_TOPOLOGY_LABELS
from trainium_eks.operate.verify.check import Check, CheckStatus
from trainium_eks.operate.verify.local_report import LocalReport
from trainium_eks.topology import tree

REAL = LocalReport(
    real_volcano=True, running=frozenset({"vc-scheduler", "vc-controller-manager", "vc-webhook-manager"})
)
LATER = "2026-05-01T10:00:12Z"


def _judged(*added: Any, local: LocalReport | None = None) -> Check:
    return judged(lambda made: made["HyperNode"].extend(added), local=local)["topology/hypernodes"]


def test_a_tree_passes_on_aws_and_beside_a_real_volcano() -> None:
    for local in (None, REAL):
        check = _judged(local=local)
        assert (check.status, check.detail) == (CheckStatus.PASS, "3, as the nodes' labels say")


@pytest.mark.parametrize("local", [None, REAL], ids=["aws", "local"])
def test_the_younger_of_two_with_the_same_members_is_to_be_deleted(local: LocalReport | None) -> None:
    # Its name comes first, so that it is the time that counts.
    check = _judged(hypernode("tier2-0", 2, "tier1-b", "tier1-a", created=LATER), local=local)
    assert check.status is CheckStatus.FAIL
    assert check.faults == ("tier2-a and tier2-0 share tier1-a and 1 more",)
    assert check.remedy == "an administrator deletes the surplus: kubectl delete hypernodes.topology.volcano.sh tier2-0"


def test_of_two_from_the_same_second_the_first_in_the_alphabet_stays() -> None:
    for name, younger in (("tier2-0", "tier2-a"), ("tier2-b", "tier2-b")):
        assert _judged(hypernode(name, 2, "tier1-a", "tier1-b")).remedy.endswith(f"volcano.sh {younger}")


def test_what_the_controller_would_make_again_stays() -> None:
    def edit(made: Any) -> None:
        _name_switches(made)
        made["HyperNode"] = [*_wanted(made).values(), hypernode("a-persons", 1, "trn0")]

    assert (
        judged(edit)["topology/hypernodes"].remedy
        == "an administrator deletes the surplus: kubectl delete hypernodes.topology.volcano.sh a-persons"
    )


@pytest.mark.parametrize("local", [None, REAL], ids=["aws", "local"])
def test_nodes_without_their_hypernodes_fail_and_the_controllers_log_says_why(local: LocalReport | None) -> None:
    def edit(made: Any) -> None:
        _name_switches(made)
        first, *_, last = _wanted(made).values()
        spoilt = {**last, "spec": {**last["spec"], "members": []}}
        # What an earlier release's discovery left behind.
        left = hypernode("hypernode-ec2-tier1-b2c4d", 1, "gone")
        left["metadata"]["labels"] = {"volcano.sh/network-topology-source": "label"}
        made["HyperNode"] = [each for each in _wanted(made).values() if each not in (first, last)] + [spoilt, left]
        expected.update({first["metadata"]["name"]: "create", last["metadata"]["name"]: "update"})
        expected[left["metadata"]["name"]] = "delete"

    expected: dict[str, str] = {}
    check = judged(edit, local=local)["topology/hypernodes"]
    assert (check.status, check.detail) == (CheckStatus.FAIL, "not those that the nodes' labels ask for")
    assert {*check.faults} == {f"{name}: to {verb}" for name, verb in expected.items()}
    assert check.remedy.endswith("kubectl -n volcano-system logs deployment/hypernodes")


def _name_switches(made: Any) -> None:
    """Gives the two Trainium nodes a switch each, below the same ones."""
    for number in range(2):
        labels = the(made, "Node", f"trn{number}")["metadata"]["labels"]
        labels |= zip(EC2_TOPOLOGY_LABELS, ("nn-1", "nn-2", f"nn-3{number}"), strict=True)


def _wanted(made: Any) -> dict[str, Any]:
    nodes = {each["metadata"]["name"]: each["metadata"]["labels"] for each in made["Node"]}
    found = dict(tree.hypernodes(nodes, EC2_TOPOLOGY_LABELS))
    for each in found.values():
        each["metadata"]["creationTimestamp"] = LATER
    return found


def test_one_common_member_is_enough_in_every_tier() -> None:
    found = _judged(
        hypernode("tier1-c", 1, "trn1", "trn2", created=LATER), hypernode("tier3-a", 3, "tier1-a", created=LATER)
    )
    assert found.faults == ("tier2-a and tier3-a share tier1-a", "tier1-b and tier1-c share trn1")
    assert found.remedy.endswith("volcano.sh tier3-a tier1-c")


def test_a_third_is_deleted_as_well() -> None:
    check = _judged(*(hypernode(name, 2, "tier1-a", created=LATER) for name in ("tier2-b", "tier2-c")))
    assert check.faults == ("tier2-a and tier2-b and tier2-c share tier1-a",)
    assert check.remedy.endswith("volcano.sh tier2-b tier2-c")


def test_a_node_and_a_hypernode_of_one_name_are_two_members() -> None:
    assert _judged(hypernode("tier1-c", 1, "tier1-a")).status is CheckStatus.PASS


def test_a_hypernode_may_name_a_member_twice_and_select_others() -> None:
    def edit(made: Any) -> None:
        members = the(made, "HyperNode", "tier1-a")["spec"]["members"]
        members += [*members, {"type": "Node", "selector": {"regexMatch": {"pattern": "trn.*"}}}]

    assert judged(edit)["topology/hypernodes"].status is CheckStatus.PASS


def test_without_hypernodes_there_is_nothing_to_hold() -> None:
    for unserved in (frozenset[str](), frozenset({"HyperNode"})):
        check = judged(lambda made: made.pop("HyperNode"), unserved=unserved)["topology/hypernodes"]
        assert (check.status, check.detail) == (
            CheckStatus.NOT_APPLICABLE,
            "there are none: no node names its switches",
        )


@pytest.mark.parametrize("local", [LocalReport(), LocalReport({"volcano": "no chart"})], ids=["simulated", "no chart"])
def test_where_volcano_does_not_run_two_parents_hurt_nobody(local: LocalReport) -> None:
    check = _judged(hypernode("tier2-b", 2, "tier1-a", created=LATER), local=local)
    assert (check.status, check.detail) == (CheckStatus.NOT_APPLICABLE, "Volcano does not run on this machine")


def test_hypernodes_that_may_not_be_read_fail() -> None:
    found = judged(unread={"HyperNode": "hypernodes is forbidden"})
    assert found["topology/unread"].status is CheckStatus.FAIL
    assert "topology/hypernodes" not in found


def test_a_node_without_a_switch_beside_one_with_switches_is_named() -> None:
    def switched(made: Any, *, all_of_them: bool) -> None:
        for name in ("trn0", "trn1"):
            the(made, "Node", name)["metadata"]["labels"] |= dict.fromkeys(EC2_TOPOLOGY_LABELS, "nn-1")
        if not all_of_them:
            del the(made, "Node", "trn1")["metadata"]["labels"][EC2_TOPOLOGY_LABELS[0]]

    found = judged(lambda made: switched(made, all_of_them=False))["topology/ng1"]
    assert found.faults == (f"trn1: {EC2_TOPOLOGY_LABELS[0]} is missing",)
    assert "topology/ng1" not in judged(lambda made: switched(made, all_of_them=True))
    assert "topology/ng1" not in judged(), "EC2 names no switches of this type"
