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

NODES, ROLE, LOGS = "aws:eks/nodeGroup:NodeGroup", "aws:iam/role:Role", "aws:cloudwatch/logGroup:LogGroup"
VPC, ALIAS = "aws:ec2/vpc:Vpc", "aws:kms/alias:Alias"
NAMED_VPC = {"tags": {"Name": "trn-dev-network-vpc"}}
GROUP = {"clusterName": CLUSTER, "nodeGroupName": FORGOTTEN}


def interrupted(*operations: PendingOperation, held: tuple[tuple[str, str], ...] = ()) -> StackState:
    resources = tuple(StateResource(f"urn:{type_}", type_, id_) for type_, id_ in held)
    return StackState(resources, operations)


def creating(type_: str, **inputs: Any) -> StackState:
    return interrupted(operation(type_, inputs))


def advice(held: StackState, answers: Mapping[str, Any] | None = None) -> Advice:
    account = Account(REGION, session() if answers is None else AwsDouble(answers).session())
    [found] = advise(account, held)
    return found


@pytest.mark.parametrize(
    ("type_", "inputs", "identity"),
    [
        (NODES, GROUP, f"{CLUSTER}:{FORGOTTEN}"),
        ("aws:eks/cluster:Cluster", {"name": CLUSTER}, CLUSTER),
        (ROLE, {"name": "trn-dev-cluster-node-0a1b2c3"}, "trn-dev-cluster-node-0a1b2c3"),
        (LOGS, {"name": f"/aws/eks/{CLUSTER}/cluster"}, f"/aws/eks/{CLUSTER}/cluster"),
        (ALIAS, {"name": "alias/trn-dev-key-alias-0a1b2c3"}, "alias/trn-dev-key-alias-0a1b2c3"),
        (VPC, NAMED_VPC, "vpc-"),
        (VPC, {"tags": {"Name": "trn-test-network-vpc"}}, ""),
        (NODES, {**GROUP, "nodeGroupName": "another"}, ""),
        (NODES, {**GROUP, "clusterName": "no-cluster"}, ""),
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
    wanted = left.vpc if identity == "vpc-" else identity
    assert (found.action, found.id) == ("import" if identity else "clear", wanted)
    assert not identity or "makes a second one" in found.reason


def test_what_is_not_sure_is_neither_imported_nor_cleared(left: Left) -> None:
    held = interrupted(operation(VPC, NAMED_VPC), held=((VPC, left.vpc),))
    assert advice(held).action == "clear", "the state has it already"
    kept = advice(creating("aws:kms/key:Key", tags={"Name": "trn-dev-key"}))
    assert (kept.action, left.key in kept.reason) == ("look", True)
    tags = [{"Key": "Name", "Value": "n"}]
    answers = {"ec2:DescribeVpcs": {"Vpcs": [{"VpcId": each, "Tags": tags} for each in ("vpc-1", "vpc-2")]}}
    found = advice(creating(VPC, tags={"Name": "n"}), answers)
    assert found.action == "look"
    assert "several may be it: vpc-1, vpc-2" in found.reason
    for code in ("AccessDenied", "Throttling", "InternalError"):
        found = advice(creating(NODES, **GROUP), {"eks:DescribeNodegroup": AwsError(code)})
        assert found.action == "look"
        assert found.reason.startswith("not looked at: ")


@pytest.mark.parametrize(
    ("status", "reason"),
    [("CREATING", "wait until it is not"), ("CREATE_FAILED", "pulumi up --replace"), ("ACTIVE", "makes a second one")],
)
def test_how_far_a_node_group_came_is_said(status: str, reason: str) -> None:
    answers = {"eks:DescribeNodegroup": {"nodegroup": {"status": status}}}
    found = advice(creating(NODES, **GROUP), answers)
    assert found.action == "import"
    assert reason in found.reason


@pytest.mark.parametrize("inputs", [{}, {"name": {"4dabf18193072939515e22adb298388d": "secret"}}])
def test_a_state_that_does_not_hold_the_name_is_never_a_reason_to_clear(left: Left, inputs: dict[str, Any]) -> None:
    for type_ in FINDERS:
        found = advice(creating(type_, **inputs))
        assert (type_, found.action) == (type_, "look")
        assert "the state" in found.reason
        assert registry.find(type_), "a type that is known"


@pytest.mark.parametrize("kind", ["updating", "deleting", "reading"])
def test_a_refresh_settles_the_others_alone(kind: str) -> None:
    assert advice(interrupted(replace(operation(NODES, {}), kind=kind)), {}).action == "refresh"


def test_objects_and_releases_are_looked_for_in_the_cluster() -> None:
    claim = creating("kubernetes:core/v1:PersistentVolumeClaim", metadata={"name": "fsx", "namespace": "team"})
    assert "kubectl get persistentvolumeclaim fsx -n team: import it as team/fsx" in advice(claim, {}).reason
    release = creating("kubernetes:helm.sh/v3:Release", name="volcano", namespace="volcano-system")
    assert "helm list --pending --failed -n volcano-system" in advice(release, {}).reason


def test_the_commands_import_and_clear_only_when_everything_was_looked_at(left: Left) -> None:
    made, missing = operation(NODES, GROUP), operation(ROLE, {"name": "trn-dev-none"})
    unknown = operation("aws:route53/zone:Zone", {})
    account = Account(REGION, session())

    def told(*operations: PendingOperation) -> list[str]:
        return commands("dev", advise(account, interrupted(*operations)))

    imported, refresh = told(made, missing)
    assert shlex.split(imported) == [
        *("pulumi", "import", NODES, "r0", f"{CLUSTER}:{FORGOTTEN}", "--stack", "dev"),
        *("--parent", "parent=urn:pulumi:dev::p::a::component"),
        *("--provider", "provider=urn:pulumi:dev::p::pulumi:providers:aws::aws"),
        *("--protect=false", "--generate-code=false"),
    ]
    assert refresh == "pulumi refresh --stack dev --clear-pending-creates"
    assert told(made, missing, unknown) == [imported, "pulumi refresh --stack dev --skip-pending-creates"]
    assert told(replace(made, kind="deleting")) == ["pulumi refresh --stack dev"]
    assert commands("dev", []) == []
    assert [each for each in account.asked if not each.partition(":")[2].startswith(READS)] == []
