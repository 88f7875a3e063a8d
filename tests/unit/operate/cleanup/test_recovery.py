"""What to do about the operations of an interrupted update, by what moto and canned answers say AWS has."""

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from aws_double import AwsDouble, AwsError
from cleanup_accounts import CLUSTER, FORGOTTEN, REGION, Left, session
from cleanup_accounts import creating as operation

from trainium_eks.aws.account import READS, Account
from trainium_eks.operate.cleanup.recovery import FINDERS, Advice, advise, commands
from trainium_eks.operate.cleanup.state import PendingOperation, StackState, StateResource
from trainium_eks.plan.resource_types import registry

NODES = "aws:eks/nodeGroup:NodeGroup"
VPC = "aws:ec2/vpc:Vpc"
ROLE = "aws:iam/role:Role"
LOGS = "aws:cloudwatch/logGroup:LogGroup"
KEY = "aws:kms/key:Key"


def interrupted(*operations: PendingOperation, held: tuple[tuple[str, str], ...] = ()) -> StackState:
    resources = tuple(StateResource(f"urn:{type_}", type_, id_) for type_, id_ in held)
    return StackState(resources, operations)


def creating(type_: str, **inputs: Any) -> StackState:
    return interrupted(operation(type_, inputs))


def advice(held: StackState, answers: Mapping[str, Any] | None = None) -> Advice:
    account = Account(REGION, session() if answers is None else AwsDouble(answers).session())
    [found] = advise(account, held)
    return found


NAMED_VPC = {"tags": {"Name": "trn-dev-network-vpc"}}


@pytest.mark.parametrize(
    ("type_", "inputs", "identity"),
    [
        (NODES, {"clusterName": CLUSTER, "nodeGroupName": FORGOTTEN}, f"{CLUSTER}:{FORGOTTEN}"),
        ("aws:eks/cluster:Cluster", {"name": CLUSTER}, CLUSTER),
        (ROLE, {"name": "trn-dev-cluster-node-0a1b2c3"}, "trn-dev-cluster-node-0a1b2c3"),
        (LOGS, {"name": f"/aws/eks/{CLUSTER}/cluster"}, f"/aws/eks/{CLUSTER}/cluster"),
        ("aws:kms/alias:Alias", {"name": "alias/trn-dev-key-alias-0a1b2c3"}, "alias/trn-dev-key-alias-0a1b2c3"),
        (VPC, NAMED_VPC, "vpc-"),
        (VPC, {"tags": {"Name": "trn-test-network-vpc"}}, ""),
        (NODES, {"clusterName": CLUSTER, "nodeGroupName": "another"}, ""),
        (NODES, {"clusterName": "no-cluster", "nodeGroupName": "g"}, ""),
        (ROLE, {"name": "trn-dev-none"}, ""),
        ("aws:s3/bucket:Bucket", {"bucket": "trn-dev-none"}, ""),
        ("aws:ecr/repository:Repository", {"name": "none"}, ""),
        (LOGS, {"namePrefix": "/aws/fsx/trn-dev-fsx-"}, ""),
    ],
)
def test_what_aws_has_is_imported_by_its_id_and_what_it_lacks_is_cleared(
    left: Left, type_: str, inputs: dict[str, Any], identity: str
) -> None:
    found = advice(creating(type_, **inputs))
    assert (found.action, found.id) == (
        ("import", left.vpc if identity == "vpc-" else identity) if identity else ("clear", "")
    )
    assert not identity or "makes a second one" in found.reason


def test_what_the_state_holds_already_is_not_imported_twice(left: Left) -> None:
    assert advice(interrupted(operation(VPC, NAMED_VPC), held=((VPC, left.vpc),))).action == "clear"


def test_a_key_may_be_one_that_was_kept(left: Left) -> None:
    found = advice(creating(KEY, tags={"Name": "trn-dev-key"}))
    assert found.action == "look"
    assert left.key in found.reason


@pytest.mark.parametrize(
    ("status", "reason"),
    [("CREATING", "wait until it is not"), ("CREATE_FAILED", "pulumi up --replace"), ("ACTIVE", "makes a second one")],
)
def test_how_far_a_node_group_came_is_said(status: str, reason: str) -> None:
    answers = {"eks:DescribeNodegroup": {"nodegroup": {"status": status}}}
    found = advice(creating(NODES, clusterName="c", nodeGroupName="g"), answers)
    assert found.action == "import"
    assert reason in found.reason


def test_two_that_may_be_it_are_left_to_the_reader() -> None:
    tags = [{"Key": "Name", "Value": "n"}]
    answers = {"ec2:DescribeVpcs": {"Vpcs": [{"VpcId": each, "Tags": tags} for each in ("vpc-1", "vpc-2")]}}
    found = advice(creating(VPC, tags={"Name": "n"}), answers)
    assert found.action == "look"
    assert "several may be it: vpc-1, vpc-2" in found.reason


@pytest.mark.parametrize("error", [AwsError("AccessDenied"), AwsError("Throttling"), AwsError("InternalError")])
def test_what_aws_does_not_answer_is_never_cleared(error: AwsError) -> None:
    found = advice(creating(NODES, clusterName="c", nodeGroupName="g"), {"eks:DescribeNodegroup": error})
    assert found.action == "look"
    assert found.reason.startswith("not looked at: ")


@pytest.mark.parametrize("inputs", [{}, {"name": {"4dabf18193072939515e22adb298388d": "secret"}}])
def test_a_state_that_does_not_hold_the_name_is_never_a_reason_to_clear(left: Left, inputs: dict[str, Any]) -> None:
    for type_ in FINDERS:
        found = advice(creating(type_, **inputs))
        assert (type_, found.action) == (type_, "look")
        assert "the state" in found.reason


@pytest.mark.parametrize("kind", ["updating", "deleting", "reading"])
def test_a_refresh_settles_the_others_alone(kind: str) -> None:
    assert advice(interrupted(replace(operation(NODES, {}), kind=kind)), {}).action == "refresh"


def test_objects_and_releases_are_looked_for_in_the_cluster() -> None:
    claim = creating("kubernetes:core/v1:PersistentVolumeClaim", metadata={"name": "fsx", "namespace": "team"})
    assert "kubectl get persistentvolumeclaim fsx -n team: import it as team/fsx" in advice(claim, {}).reason
    release = creating("kubernetes:helm.sh/v3:Release", name="volcano", namespace="volcano-system")
    assert "helm list --pending --failed -n volcano-system" in advice(release, {}).reason


def test_the_commands_import_and_clear_only_when_everything_was_looked_at(left: Left) -> None:
    made = operation(NODES, {"clusterName": CLUSTER, "nodeGroupName": FORGOTTEN})
    missing = operation(ROLE, {"name": "trn-dev-none"})
    unknown = operation("aws:route53/zone:Zone", {})
    account = Account(REGION, session())
    imported, refresh = commands("dev", advise(account, interrupted(made, missing)))
    assert shlex.split(imported) == [
        *("pulumi", "import", NODES, "r0", f"{CLUSTER}:{FORGOTTEN}", "--stack", "dev"),
        *("--parent", "parent=urn:pulumi:dev::p::a::component"),
        *("--provider", "provider=urn:pulumi:dev::p::pulumi:providers:aws::aws"),
        *("--protect=false", "--generate-code=false"),
    ]
    assert refresh == "pulumi refresh --stack dev --clear-pending-creates"
    assert commands("dev", advise(account, interrupted(made, missing, unknown))) == [
        imported,
        "pulumi refresh --stack dev --skip-pending-creates",
    ]
    assert commands("dev", advise(account, interrupted(replace(made, kind="deleting")))) == [
        "pulumi refresh --stack dev"
    ]
    assert commands("dev", []) == []
    assert [each for each in account.asked if not each.partition(":")[2].startswith(READS)] == []


def test_every_finder_is_of_a_type_that_is_known() -> None:
    assert [type_ for type_ in FINDERS if registry.find(type_) is None] == []
