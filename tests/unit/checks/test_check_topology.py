"""HyperNodes: one tree, or Volcano schedules no job that asks for a close network."""

from typing import Any

import pytest
from cluster_snapshots import hypernode, judged, the

from trainium_eks.checks.check import Check, CheckStatus
from trainium_eks.checks.local_report import LocalReport

REAL = LocalReport(
    real_volcano=True, running=frozenset({"vc-scheduler", "vc-controller-manager", "vc-webhook-manager"})
)
LATER = "2026-05-01T10:00:12Z"


def _judged(*added: Any, local: LocalReport | None = None) -> Check:
    return judged(lambda made: made["HyperNode"].extend(added), local=local)["topology/hypernodes"]


def test_a_tree_passes_on_aws_and_beside_a_real_volcano() -> None:
    for local in (None, REAL):
        check = _judged(local=local)
        assert (check.status, check.detail) == (CheckStatus.PASS, "3, none with members of another")


@pytest.mark.parametrize("local", [None, REAL], ids=["aws", "local"])
def test_the_younger_of_two_with_the_same_members_is_to_be_deleted(local: LocalReport | None) -> None:
    # Its name comes first, so that it is the time that counts.
    check = _judged(hypernode("tier2-0", 2, "tier1-b", "tier1-a", created=LATER), local=local)
    assert check.status is CheckStatus.FAIL
    assert check.faults == ("tier2-a and tier2-0 share tier1-a and 1 more",)
    assert check.remedy.endswith(": kubectl delete hypernodes.topology.volcano.sh tier2-0")


def test_of_two_from_the_same_second_the_one_that_volcano_keeps_stays() -> None:
    for name, younger in (("tier2-0", "tier2-a"), ("tier2-b", "tier2-b")):
        assert _judged(hypernode(name, 2, "tier1-a", "tier1-b")).remedy.endswith(f"volcano.sh {younger}")


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
        assert (check.status, check.detail) == (CheckStatus.NOT_APPLICABLE, "there are none")


@pytest.mark.parametrize("local", [LocalReport(), LocalReport({"volcano": "no chart"})], ids=["simulated", "no chart"])
def test_where_volcano_does_not_run_two_parents_hurt_nobody(local: LocalReport) -> None:
    check = _judged(hypernode("tier2-b", 2, "tier1-a", created=LATER), local=local)
    assert (check.status, check.detail) == (CheckStatus.NOT_APPLICABLE, "Volcano does not run on this machine")


def test_hypernodes_that_may_not_be_read_fail() -> None:
    found = judged(unread={"HyperNode": "hypernodes is forbidden"})
    assert found["topology/unread"].status is CheckStatus.FAIL
    assert "topology/hypernodes" not in found
