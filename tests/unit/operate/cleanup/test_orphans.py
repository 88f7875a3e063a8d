"""What a broken stack left in an account of moto's, and what of it is told from what others have."""

from dataclasses import replace

from cleanup_accounts import CLUSTER, FORGOTTEN, KNOWN, NODE, REGION, Left, creating, session, state

from trainium_eks.aws.account import READS, Account
from trainium_eks.model.catalogue import prices
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.operate.cleanup import orphans
from trainium_eks.operate.cleanup.marks import Marks
from trainium_eks.operate.cleanup.recovery import OPERATIONS
from trainium_eks.operate.cleanup.state import StackState
from trainium_eks.operate.finding import Finding, Report

DEV = Marks(stack="dev")
LOST = state(("aws:s3/bucket:Bucket", "trn-dev-fsx-data-bucket-0a1b2c3", {}))
"""What is left of a state: nothing that the tests look for."""
TRN1 = CATALOGUE.price("trn1.32xlarge")


def look(held: StackState | None, marks: Marks = DEV) -> Report:
    return orphans.look(Account(REGION, session()), marks, held)


def of_kind(report: Report, kind: str) -> list[Finding]:
    return [each for each in report.findings if each.section == kind]


def healthy(left: Left) -> StackState:
    """A state that lacks only the node group of an interrupted creation, and the log group, which is its cluster's."""
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
    )


def test_a_node_group_under_a_forgotten_name_is_all_that_is_left_of_a_healthy_stack(left: Left) -> None:
    report = look(replace(healthy(left), pending=(creating("aws:route53/zone:Zone", {}),)))
    # moto's interface of a NAT gateway is never in use.
    [pending, group] = [each for each in report.findings if each.section != "network interface"]
    assert TRN1 is not None
    assert (group.id, group.data["hourlyUsd"]) == (f"node group/{FORGOTTEN}", round(2 * TRN1.hourly_usd, 4))
    assert group.data["commands"] == [
        f"aws eks delete-nodegroup --cluster-name {CLUSTER} --nodegroup-name {FORGOTTEN} --region {REGION}"
    ]
    assert "2 instances of trn1.32xlarge" in group.text
    assert (pending.section, report.facts["recovery"]) == (
        OPERATIONS,
        ["pulumi refresh --stack dev --skip-pending-creates"],
    )
    inputs = {"clusterName": CLUSTER, "nodeGroupName": FORGOTTEN}
    report = look(replace(healthy(left), pending=(creating("aws:eks/nodeGroup:NodeGroup", inputs),)))
    assert of_kind(report, "node group") == [], "it is to be imported"
    assert report.findings[0].data["importId"] == f"{CLUSTER}:{FORGOTTEN}"
    assert "pulumi import" in report.facts["recovery"][0]


def test_from_an_empty_state_no_live_cluster_is_proposed_for_deletion(left: Left) -> None:
    """An empty state may be another backend's stack, in full service."""
    report = look(state())
    assert (report.facts["stateIsEmpty"], report.facts["liveClusters"]) == (True, [CLUSTER])
    assert report.failed
    assert [each.data["commands"] for each in report.findings if each.data["commands"]] == []
    assert all(each.data["commands"] for each in look(None, Marks(cluster=CLUSTER)).findings)


def test_after_a_destroy_that_broke_off_everything_is_listed_once_and_node_groups_first(left: Left) -> None:
    account = Account(REGION, session())
    result = orphans.look(account, DEV, LOST)
    assert [each.subject for each in result.findings[:3]] == [FORGOTTEN, KNOWN, CLUSTER]
    assert [each.id for each in result.findings if not each.data["commands"]] == []
    found = {
        "instance": [],  # they go with their groups
        "volume": [left.volume],  # the root volume goes with its instance
        "NAT gateway": [f"{left.gateway} (trn-dev-network-nat-usw2-az1)"],
        "public address": [f"{left.address} (trn-dev-network-nat-usw2-az1)"],
        "load balancer": ["abc"],
        "log group": [f"/aws/eks/{CLUSTER}/cluster"],
        "KMS key": [f"{left.key} (trn-dev-key)"],
        "key alias": ["alias/trn-dev-key-alias-0a1b2c3"],
        "VPC": [f"{left.vpc} (trn-dev-network-vpc)"],
        "subnet": [f"{left.subnet} (trn-dev-network-private)"],
    }
    assert {kind: [each.subject for each in of_kind(result, kind)] for kind in found} == found
    listed = str(result.to_json())
    assert [other for other in ("payroll", "dev-2", "trn-developers") if other in listed] == []
    [role] = of_kind(result, "role")
    assert (role.subject, [command.split()[2] for command in role.data["commands"]]) == (
        NODE,
        ["delete-role-policy", "remove-role-from-instance-profile", "delete-instance-profile", "delete-role"],
    )
    [volume] = of_kind(result, "volume")
    assert volume.data["hourlyUsd"] == round(prices.gp3_monthly_usd(100) / prices.HOURS_PER_MONTH, 4)
    assert volume.text.startswith("$0.01 an hour")
    assert "of the claim training/scratch: its data is lost" in volume.text
    assert len(account.asked) > 20
    assert [each for each in account.asked if not each.partition(":")[2].startswith(READS)] == []


def test_without_a_state_only_what_is_one_clusters_is_listed(left: Left) -> None:
    result = look(None, Marks(cluster=CLUSTER))
    assert not result.facts["comparedWithState"]
    kinds = {each.section for each in result.findings}
    assert {"node group", "EKS cluster", "volume", "load balancer", "log group"} <= kinds
    assert not kinds & {"VPC", "KMS key", "role"}
