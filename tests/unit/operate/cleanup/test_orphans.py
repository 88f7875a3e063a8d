"""What a broken stack left in an account of moto's, how it is distinguished from other owners' resources, and what to
do about the operations of an interrupted update."""

import shlex
from dataclasses import replace

import pytest
from aws_double import AwsDouble, AwsError
from cleanup_accounts import CLUSTER, FORGOTTEN, KNOWN, NODE, REGION, creating, left_in_moto, session, state

from trainium_eks.aws.account import READS, Account
from trainium_eks.model.catalogue import prices
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.operate.cleanup import orphans
from trainium_eks.operate.cleanup.left_over import Marks
from trainium_eks.operate.cleanup.recovery import FINDERS, OPERATIONS, advise, commands
from trainium_eks.operate.cleanup.state import StackState, StateResource
from trainium_eks.plan.resource_types import registry

DEV = Marks(stack="dev")
LOST = state(("aws:s3/bucket:Bucket", "trn-dev-fsx-data-bucket-0a1b2c3", {}))
"""What is left of a state: nothing that the tests look for."""
TRN1 = CATALOGUE.price("trn1.32xlarge")


@pytest.fixture(scope="module")
def left():
    with left_in_moto() as found:
        yield found


def look(held, marks=DEV):
    return orphans.look(Account(REGION, session()), marks, held)


def of_kind(report, kind):
    return [each for each in report.findings if each.section == kind]


def healthy(left):
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


def test_renamed_node_group_is_the_only_orphan_of_a_healthy_stack(left):
    report = look(replace(healthy(left), pending=(creating("aws:route53/zone:Zone", {}),)))
    # moto's interface of a NAT gateway is never in use.
    [pending, group] = [each for each in report.findings if each.section != "network interface"]
    assert (group.id, group.data["hourlyUsd"]) == (f"node group/{FORGOTTEN}", round(2 * TRN1.hourly_usd, 4))
    assert group.data["commands"] == [
        f"aws eks delete-nodegroup --cluster-name {CLUSTER} --nodegroup-name {FORGOTTEN} --region {REGION}"
    ]
    assert "2 instances of trn1.32xlarge" in group.text
    assert pending.section == OPERATIONS
    assert report.facts["recovery"] == ["pulumi refresh --stack dev --skip-pending-creates"]
    inputs = {"clusterName": CLUSTER, "nodeGroupName": FORGOTTEN}
    report = look(replace(healthy(left), pending=(creating("aws:eks/nodeGroup:NodeGroup", inputs),)))
    assert of_kind(report, "node group") == [], "it is to be imported"
    assert report.findings[0].data["importId"] == f"{CLUSTER}:{FORGOTTEN}"
    assert "pulumi import" in report.facts["recovery"][0]


def test_empty_state_proposes_no_live_cluster_for_deletion(left):
    """An empty state may be another backend's stack, in full service."""
    report = look(state())
    assert (report.facts["stateIsEmpty"], report.facts["liveClusters"]) == (True, [CLUSTER])
    assert report.failed
    assert [each.data["commands"] for each in report.findings if each.data["commands"]] == []
    assert all(each.data["commands"] for each in look(None, Marks(cluster=CLUSTER)).findings)


def test_interrupted_destroy_lists_everything_once_and_node_groups_first(left):
    account = Account(REGION, session())
    result = orphans.look(account, DEV, LOST)
    assert [each.subject for each in result.findings[:3]] == [FORGOTTEN, KNOWN, CLUSTER]
    assert [each.id for each in result.findings if not each.data["commands"]] == []
    found = {
        "instance": [],  # they are deleted with their groups
        "volume": [left.volume],  # the root volume is deleted with its instance
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
    removal = ["delete-role-policy", "remove-role-from-instance-profile", "delete-instance-profile", "delete-role"]
    assert (role.subject, [command.split()[2] for command in role.data["commands"]]) == (NODE, removal)
    [volume] = of_kind(result, "volume")
    assert volume.data["hourlyUsd"] == round(prices.gp3_monthly_usd(100) / prices.HOURS_PER_MONTH, 4)
    assert volume.text.startswith("$0.01 an hour")
    assert "of the claim training/scratch: its data is lost" in volume.text
    # Only leftovers of AWS' own races are marked as such.
    assert {each.section for each in result.findings if each.data.get("race")} == {"volume", "log group"}
    assert len(account.asked) > 20
    assert [each for each in account.asked if not each.partition(":")[2].startswith(READS)] == []
    # Without a state only what is one cluster's is listed.
    result = look(None, Marks(cluster=CLUSTER))
    assert not result.facts["comparedWithState"]
    kinds = {each.section for each in result.findings}
    assert {"node group", "EKS cluster", "volume", "load balancer", "log group"} <= kinds
    assert not kinds & {"VPC", "KMS key", "role"}


NODES, ROLE, LOGS = "aws:eks/nodeGroup:NodeGroup", "aws:iam/role:Role", "aws:cloudwatch/logGroup:LogGroup"
VPC, ALIAS = "aws:ec2/vpc:Vpc", "aws:kms/alias:Alias"
NAMED_VPC = {"tags": {"Name": "trn-dev-network-vpc"}}
GROUP = {"clusterName": CLUSTER, "nodeGroupName": FORGOTTEN}


def interrupted(*operations, held=()):
    resources = tuple(StateResource(f"urn:{type_}", type_, id_) for type_, id_ in held)
    return StackState(resources, operations)


def interrupted_creation(type_, **inputs):
    return interrupted(creating(type_, inputs))


def advice(held, answers=None):
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
def test_existing_resource_is_imported_and_a_missing_one_is_cleared(left, type_, inputs, identity):
    found = advice(interrupted_creation(type_, **inputs))
    wanted = left.vpc if identity == "vpc-" else identity
    assert (found.action, found.id) == ("import" if identity else "clear", wanted)
    assert not identity or "makes a second one" in found.reason


def test_uncertain_operation_is_neither_imported_nor_cleared(left):
    held = interrupted(creating(VPC, NAMED_VPC), held=((VPC, left.vpc),))
    assert advice(held).action == "clear", "the state has it already"
    kept = advice(interrupted_creation("aws:kms/key:Key", tags={"Name": "trn-dev-key"}))
    assert (kept.action, left.key in kept.reason) == ("look", True)
    tags = [{"Key": "Name", "Value": "n"}]
    answers = {"ec2:DescribeVpcs": {"Vpcs": [{"VpcId": each, "Tags": tags} for each in ("vpc-1", "vpc-2")]}}
    found = advice(interrupted_creation(VPC, tags={"Name": "n"}), answers)
    assert (found.action, "several may be it: vpc-1, vpc-2" in found.reason) == ("look", True)
    link = {"AssociationId": "dra-0123456789abcdef0", "FileSystemPath": "/a", "Lifecycle": "AVAILABLE"}
    answers = {"fsx:DescribeDataRepositoryAssociations": {"Associations": [link, {**link, "FileSystemPath": "/b"}]}}
    type_, inputs = (
        "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation",
        {"fileSystemId": "fs-0123456789abcdef0"},
    )
    for path, what in (("/a", ("import", link["AssociationId"])), ("/c", ("clear", ""))):
        found = advice(interrupted_creation(type_, fileSystemPath=path, **inputs), answers)
        assert (found.action, found.id) == what
    for code in ("AccessDenied", "Throttling", "InternalError"):
        found = advice(interrupted_creation(NODES, **GROUP), {"eks:DescribeNodegroup": AwsError(code)})
        assert (found.action, found.reason.startswith("not looked at: ")) == ("look", True)


def test_advice_for_a_node_group_follows_its_status():
    said = {"CREATING": "wait until", "CREATE_FAILED": "pulumi up --replace", "ACTIVE": "makes a second one"}
    for status, reason in said.items():
        answers = {"eks:DescribeNodegroup": {"nodegroup": {"status": status}}}
        found = advice(interrupted_creation(NODES, **GROUP), answers)
        assert (found.action, reason in found.reason) == ("import", True)


@pytest.mark.parametrize("inputs", [{}, {"name": {"4dabf18193072939515e22adb298388d": "secret"}}])
def test_state_without_the_name_is_no_reason_to_clear(left, inputs):
    for type_ in FINDERS:
        found = advice(interrupted_creation(type_, **inputs))
        assert (type_, found.action) == (type_, "look")
        assert "the state" in found.reason
        assert registry.find(type_), "a type that is known"


@pytest.mark.parametrize("kind", ["updating", "deleting", "reading"])
def test_refresh_settles_other_operations_and_cluster_objects_are_checked(kind):
    assert advice(interrupted(replace(creating(NODES, {}), kind=kind)), {}).action == "refresh"
    named = {"name": "fsx", "namespace": "team"}
    claim = interrupted_creation("kubernetes:core/v1:PersistentVolumeClaim", metadata=named)
    assert "kubectl get persistentvolumeclaim fsx -n team: import it as team/fsx" in advice(claim, {}).reason
    release = interrupted_creation("kubernetes:helm.sh/v3:Release", name="volcano", namespace="volcano-system")
    assert "helm list --pending --failed -n volcano-system" in advice(release, {}).reason


def test_commands_import_and_clear_only_after_a_full_search(left):
    made, missing = creating(NODES, GROUP), creating(ROLE, {"name": "trn-dev-none"})
    unknown = creating("aws:route53/zone:Zone", {})
    account = Account(REGION, session())

    def advised(*operations):
        return commands("dev", advise(account, interrupted(*operations)))

    imported, refresh = advised(made, missing)
    assert shlex.split(imported) == [
        *("pulumi", "import", NODES, "r0", f"{CLUSTER}:{FORGOTTEN}", "--stack", "dev"),
        *("--parent", "parent=urn:pulumi:dev::p::a::component"),
        *("--provider", "provider=urn:pulumi:dev::p::pulumi:providers:aws::aws"),
        *("--protect=false", "--generate-code=false"),
    ]
    assert refresh == "pulumi refresh --stack dev --clear-pending-creates"
    assert advised(made, missing, unknown) == [imported, "pulumi refresh --stack dev --skip-pending-creates"]
    assert advised(replace(made, kind="deleting")) == ["pulumi refresh --stack dev"]
    assert commands("dev", []) == []
    assert [each for each in account.asked if not each.partition(":")[2].startswith(READS)] == []
