"""What a broken stack left in an account of moto's, and what of it is told from what others have."""

from collections.abc import Iterator

import pytest
from cleanup_accounts import CLUSTER, FORGOTTEN, KNOWN, REGION, Left, fill, session, state
from moto import mock_aws

from trainium_eks.aws.account import READS, Account
from trainium_eks.model.catalogue import prices
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.operate.cleanup import orphans
from trainium_eks.operate.cleanup.left_over import Result
from trainium_eks.operate.cleanup.marks import Marks
from trainium_eks.operate.cleanup.state import StackState

NODE = "trn-dev-cluster-node-0a1b2c3"
DEV = Marks(stack="dev")
LOST = state(("aws:s3/bucket:Bucket", "trn-dev-fsx-data-bucket-0a1b2c3", {}))
"""What is left of a state: nothing that the tests look for."""
TRN1 = CATALOGUE.price("trn1.32xlarge")


@pytest.fixture(scope="module", autouse=True)
def left() -> Iterator[Left]:
    with pytest.MonkeyPatch.context() as patch, mock_aws():
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        yield fill()


def look(held: StackState | None, marks: Marks = DEV) -> Result:
    return orphans.look(Account(REGION, session()), marks, held)


def names(result: Result, kind: str) -> list[str]:
    return [each.name for each in result.found if each.kind == kind]


def healthy(left: Left) -> StackState:
    """A state that lacks only the node group of an interrupted creation."""
    return state(
        ("aws:eks/cluster:Cluster", CLUSTER, {"name": CLUSTER}),
        ("aws:eks/nodeGroup:NodeGroup", f"{CLUSTER}:{KNOWN}", {}),
        ("aws:ec2/vpc:Vpc", left.vpc, {}),
        ("aws:ec2/subnet:Subnet", left.subnet, {}),
        ("aws:ec2/eip:Eip", left.address, {}),
        ("aws:ec2/natGateway:NatGateway", left.gateway, {}),
        ("aws:kms/key:Key", left.key, {}),
        ("aws:kms/alias:Alias", "alias/trn-dev-key-alias-0a1b2c3", {}),
        ("aws:iam/role:Role", NODE, {}),
        ("aws:cloudwatch/logGroup:LogGroup", f"/aws/eks/{CLUSTER}/cluster", {}),
        pending=1,
    )


def test_a_node_group_under_a_forgotten_name_is_all_that_is_left_of_a_healthy_stack(left: Left) -> None:
    result = look(healthy(left))
    # moto's interface of a NAT gateway is never in use.
    [group] = [each for each in result.found if each.kind != "network interface"]
    assert TRN1 is not None
    assert (group.kind, group.name, group.hourly_usd) == ("node group", FORGOTTEN, 2 * TRN1.hourly_usd)
    assert group.commands == (
        f"aws eks delete-nodegroup --cluster-name {CLUSTER} --nodegroup-name {FORGOTTEN} --region {REGION}",
    )
    assert "2 instances of trn1.32xlarge" in group.note
    assert result.pending == 1


def test_from_an_empty_state_no_live_cluster_is_proposed_for_deletion(left: Left) -> None:
    """An empty state may be another backend's stack, in full service."""
    result = look(state())
    assert (result.empty_state, result.live) == (True, (CLUSTER,))
    assert result.found
    assert [each.commands for each in result.found if each.commands] == []
    assert any(each.commands for each in look(None, Marks(cluster=CLUSTER)).found)


def test_after_a_destroy_that_broke_off_everything_is_listed_once_and_node_groups_first(left: Left) -> None:
    result = look(LOST)
    assert [each.name for each in result.found[:3]] == [FORGOTTEN, KNOWN, CLUSTER]
    assert names(result, "instance") == []  # they go with their groups
    assert names(result, "volume") == [left.volume]  # the root volume goes with its instance
    assert names(result, "NAT gateway") == [f"{left.gateway} (trn-dev-network-nat-usw2-az1)"]
    assert names(result, "public address") == [f"{left.address} (trn-dev-network-nat-usw2-az1)"]
    assert names(result, "load balancer") == ["abc"]
    assert names(result, "log group") == [f"/aws/eks/{CLUSTER}/cluster"]
    assert names(result, "KMS key") == [left.key]
    assert names(result, "key alias") == ["alias/trn-dev-key-alias-0a1b2c3"]
    assert names(result, "VPC") == [f"{left.vpc} (trn-dev-network-vpc)"]
    assert [name.split()[0] for name in names(result, "subnet")] == [left.subnet]


def test_nothing_of_another_stack_or_program_is_listed(left: Left) -> None:
    listed = str([each.to_json() for each in look(LOST).found])
    assert "payroll" not in listed
    assert "dev-2" not in listed
    assert "trn-developers" not in listed


def test_a_role_is_removed_with_all_that_hangs_on_it() -> None:
    [role] = [each for each in look(LOST).found if each.kind == "role"]
    assert role.name == NODE
    assert [command.split()[2] for command in role.commands] == [
        "delete-role-policy",
        "remove-role-from-instance-profile",
        "delete-instance-profile",
        "delete-role",
    ]


def test_a_claims_volume_has_its_price_and_says_whose_data_goes(left: Left) -> None:
    [volume] = [each for each in look(LOST).found if each.kind == "volume"]
    assert volume.hourly_usd == pytest.approx(prices.gp3_monthly_usd(100) / prices.HOURS_PER_MONTH)
    assert "of the claim training/scratch: its data is lost" in volume.note


def test_without_a_state_only_what_is_one_clusters_is_listed(left: Left) -> None:
    result = look(None, Marks(cluster=CLUSTER))
    assert not result.has_state
    kinds = {each.kind for each in result.found}
    assert {"node group", "EKS cluster", "volume", "load balancer", "log group"} <= kinds
    assert not kinds & {"VPC", "KMS key", "role"}


def test_aws_is_only_read(left: Left) -> None:
    account = Account(REGION, session())
    orphans.look(account, Marks(stack="dev"), LOST)
    assert len(account.asked) > 20
    assert [each for each in account.asked if not each.partition(":")[2].startswith(READS)] == []
