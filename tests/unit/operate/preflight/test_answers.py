"""What each check makes of AWS' answers."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import full_environments
import pytest
from aws_double import Answer, AwsDouble, AwsError
from deploy_needs import PLACE
from good_account import ACCOUNT, DEPLOYER, GOOD, NOW, ask, ask_one, changed, of

from trainium_eks.aws.account import Account
from trainium_eks.operate.finding import Finding, Status
from trainium_eks.operate.preflight import reach
from trainium_eks.operate.preflight.deploy_rights import needed
from trainium_eks.operate.preflight.needs import Needs
from trainium_eks.operate.preflight.present import AccountState
from trainium_eks.operate.preflight.run import answered, look
from trainium_eks.plan.graph import Graph, Resource

OWN = {"Environment": "prod", "ManagedBy": "pulumi"}
CLUSTER = "trn-prod-cluster-eks-0a1b2c3"
TRN_NODES = "trn-prod-cluster-trn1-base-nodes"


@dataclass(frozen=True)
class Case:
    """A question about production, AWS' answers, and what the check makes of them."""

    id: str
    answers: Mapping[str, Answer]
    status: str
    text: str
    fix: str = ""
    change: Callable[[Graph], Graph] = lambda graph: graph


def caller(arn: str, account: str = ACCOUNT) -> dict[str, Answer]:
    return {"sts:GetCallerIdentity": {"Account": account, "Arn": arn}}


def session(role: str) -> dict[str, Answer]:
    return caller(f"arn:aws:sts::{ACCOUNT}:assumed-role/{role}/me")


def region(status: str) -> dict[str, Answer]:
    return {"ec2:DescribeRegions": {"Regions": [{"RegionName": "us-west-2", "OptInStatus": status}]}}


def offered(*zones: str) -> dict[str, Answer]:
    return {"ec2:DescribeInstanceTypeOfferings": {"InstanceTypeOfferings": [{"Location": zone} for zone in zones]}}


def placement(strategy: str) -> dict[str, Answer]:
    return {"ec2:DescribePlacementGroups": {"PlacementGroups": [{"GroupName": "mine", "Strategy": strategy}]}}


def placed(prod: Graph) -> Graph:
    return changed(prod, "trn-prod-cluster-trn1-base-template", placement={"groupName": "mine"})


def kubernetes(**versions: str) -> dict[str, Answer]:
    every = [
        {
            "clusterVersion": name.replace("_", ".").lstrip("v"),
            "versionStatus": status,
            "endOfStandardSupportDate": datetime(2027, 3, 27, tzinfo=UTC),
        }
        for name, status in versions.items()
    ]
    return {"eks:DescribeClusterVersions": {"clusterVersions": every}}


def published(**values: str) -> dict[str, Answer]:
    """Parameters of this image, and of the newest release."""
    root = "/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/x86_64/neuron"
    image = "amazon-eks-node-al2023-x86_64-neuron-1.35-v20260930"
    names = {"image": f"{root}/{image}/image_id", "newest": f"{root}/recommended/release_version"}
    return {"ssm:GetParameters": {"Parameters": [{"Name": names[key], "Value": values[key]} for key in values]}}


VPC_CNI = [
    {"addonVersion": "v1.24.0-eksbuild.1"},
    {"addonVersion": "v1.22.0-eksbuild.1", "compatibilities": [{"defaultVersion": True}]},
]
AMI = "versions/AL2023_x86_64_NEURON/1.35.8-20260930"
KEPT = f"arn:aws:kms:us-west-2:{ACCOUNT}:key/0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"


def kept(state: str) -> dict[str, Answer]:
    known = {"KeyMetadata": {"KeyId": KEPT.rpartition("/")[2], "KeyState": state}}
    keys = {"ResourceTagMappingList": [{"ResourceARN": KEPT}]}
    return {"resourcegroupstaggingapi:GetResources": keys, "kms:DescribeKey": known}


def with_kept(prod: Graph) -> Graph:
    return replace(prod, config={**prod.config, "keptKeyArn": KEPT})


def clusters(*names: str) -> dict[str, Answer]:
    def describe(asked: Mapping[str, Any]) -> Answer:
        return {"cluster": {"name": asked["name"], "version": "1.35", "status": "ACTIVE", "tags": OWN}}

    return {"eks:ListClusters": {"clusters": [*names]}, "eks:DescribeCluster": describe}


def repository(tags: dict[str, str]) -> dict[str, Answer]:
    arn = f"arn:aws:ecr:us-west-2:{ACCOUNT}:repository/trainium-eks-prod/training"
    return {
        "ecr:DescribeRepositories": {"repositories": [{"repositoryArn": arn}]},
        "ecr:ListTagsForResource": {"tags": [{"Key": key, "Value": value} for key, value in tags.items()]},
    }


REPOSITORY = "names/trainium-eks-prod/training"
IMAGE = f"{ACCOUNT}.dkr.ecr.us-west-2.amazonaws.com/mirror/volcano:v1"


def with_image(prod: Graph) -> Graph:
    job = next(each for each in prod.resources if each.type == "kubernetes:batch/v1:Job")
    return changed(prod, job.name, spec={"template": {"spec": {"containers": [{"image": IMAGE}]}}})


SUBNET = "subnet-0a1b2c3d4e5f60711"
ADOPTED = {
    "vpcId": "vpc-0a1b2c3d4e5f60718",
    "cidrBlock": "10.64.0.0/16",
    "privateSubnets": [
        {"id": SUBNET, "zoneId": "usw2-az4", "cidrBlock": "10.64.0.0/18"},
        {"id": "subnet-0a1b2c3d4e5f60712", "zoneId": "usw2-az1", "cidrBlock": "10.64.64.0/18"},
    ],
}


def adopting(prod: Graph) -> Graph:
    return replace(prod, config={**prod.config, "existingNetwork": ADOPTED})


def subnet(**other: Any) -> dict[str, Answer]:
    described = {
        "SubnetId": SUBNET,
        "VpcId": ADOPTED["vpcId"],
        "AvailabilityZoneId": "usw2-az4",
        "CidrBlock": "10.64.0.0/18",
        "AvailableIpAddressCount": 16000,
        **other,
    }
    return {"ec2:DescribeSubnets": {"Subnets": [described]}}


def volumes(gibibytes: int) -> dict[str, Answer]:
    own = {"Size": 9999, "Tags": [{"Key": key, "Value": value} for key, value in OWN.items()]}
    return {"ec2:DescribeVolumes": {"Volumes": [{"Size": gibibytes}, own]}}


LUSTRE: dict[str, Answer] = {
    "fsx:DescribeFileSystems": {
        "FileSystems": [
            {"StorageCapacity": size, "LustreConfiguration": {"DeploymentType": kind}}
            for kind, size in (("PERSISTENT_2", 96000), ("SCRATCH_2", 1200))
        ]
    }
}

CASES = {
    "another account": Case(
        "account/id",
        caller(DEPLOYER, "999999999999"),
        "fail",
        f"the credentials are of 999999999999, the config allows {ACCOUNT}",
    ),
    "a region that is off": Case("account/region", region("not-opted-in"), "fail", "not enabled in this account"),
    # A session does not tell its role's path. EKS refuses a second access entry.
    "a deployer with an entry": Case("account/deployer", session("ml-platform-oncall"), "fail", ""),
    "a user of the role's name": Case(
        "account/deployer", caller(f"arn:aws:iam::{ACCOUNT}:user/ml-platform-oncall"), "pass", ""
    ),
    "the root user": Case("account/rights", caller(f"arn:aws:iam::{ACCOUNT}:root"), "not checked", ""),
    "a service without its role": Case(
        "account/AWSServiceRoleForAmazonFSx",
        {"iam:GetRole": AwsError("NoSuchEntity")},
        "warn",
        "",
        "aws iam create-service-linked-role --aws-service-name fsx.amazonaws.com",
    ),
    "a zone without the type": Case(
        "capacity/trn1.32xlarge",
        offered("usw2-az1", "usw2-az2"),
        "fail",
        "not offered in usw2-az4; offered in usw2-az1, usw2-az2",
        "pulumi config set --path 'nodeGroups[0].zoneId' usw2-az1",
    ),
    "no placement group": Case(
        "capacity/mine",
        {"ec2:DescribePlacementGroups": AwsError("InvalidPlacementGroup.Unknown")},
        "fail",
        "",
        change=placed,
    ),
    "a cluster placement group": Case("capacity/mine", placement("cluster"), "pass", "", change=placed),
    "a spread placement group": Case("capacity/mine", placement("spread"), "warn", "", change=placed),
    "extended support": Case("versions/kubernetes", kubernetes(v1_35="EXTENDED_SUPPORT"), "warn", "0.60 USD an hour"),
    "no support": Case(
        "versions/kubernetes",
        kubernetes(v1_35="UNSUPPORTED", v1_36="STANDARD_SUPPORT"),
        "fail",
        "EKS has no 1.35 in us-west-2; it has 1.36",
    ),
    "an unknown version": Case("versions/kubernetes", kubernetes(v1_34="STANDARD_SUPPORT"), "fail", "it has 1.34"),
    "no such add-on version": Case(
        "versions/vpc-cni",
        {"eks:DescribeAddonVersions": {"addons": [{"addonName": "vpc-cni", "addonVersions": VPC_CNI}]}},
        "fail",
        "EKS has no v1.23.2-eksbuild.1 for 1.35 here; its default is v1.22.0-eksbuild.1",
        "pulumi config set --path cluster.addons.vpc-cni.version v1.22.0-eksbuild.1",
    ),
    "the newest AMI": Case(AMI, published(newest="1.35.8-20260930"), "pass", "the newest"),
    "an AMI that is not published": Case(
        AMI,
        published(newest="1.35.7-20261001"),
        "fail",
        "",
        "pulumi config set --path 'nodeGroups[0].releaseVersion' 1.35.7-20261001",
    ),
    "no AMI at all": Case(AMI, published(), "fail", ""),
    "a key that an earlier stack kept": Case(
        "keys/kept", kept("Enabled"), "warn", KEPT, f"pulumi config set keptKeyArn {KEPT}"
    ),
    "the stack is there": Case("keys/kept", clusters(CLUSTER) | kept("Enabled"), "pass", ""),
    "the named key": Case("keys/kept", kept("Enabled"), "pass", "", change=with_kept),
    "the named key is being deleted": Case(
        "keys/kept", kept("PendingDeletion"), "fail", "it is PendingDeletion", "cancel-key-deletion", with_kept
    ),
    "the named key is another stack's": Case(
        "keys/kept",
        kept("Enabled") | {"resourcegroupstaggingapi:GetResources": {"ResourceTagMappingList": []}},
        "fail",
        "",
        change=with_kept,
    ),
    "another stack's repository": Case(
        REPOSITORY, repository({"Environment": "dev", "ManagedBy": "pulumi"}), "fail", ""
    ),
    "a repository that was left": Case(REPOSITORY, repository(OWN), "warn", "left of an earlier run"),
    "the stack's own repository": Case(REPOSITORY, clusters(CLUSTER) | repository(OWN), "pass", "this stack's"),
    "a cluster that was left": Case(
        "names/cluster",
        clusters(CLUSTER, "trn-prod-cluster-eks-9999999", "trn-prod-cluster-eks-extra"),
        "warn",
        "trn-prod-cluster-eks-9999999 is there",
        "pulumi stack export --stack prod",
    ),
    "a private image": Case(
        f"images/{IMAGE}", {"ecr:DescribeImages": {"imageDetails": []}}, "pass", "", change=with_image
    ),
    "no such image": Case(
        f"images/{IMAGE}",
        {"ecr:DescribeImages": AwsError("ImageNotFoundException")},
        "fail",
        "not in its registry",
        change=with_image,
    ),
    "an image that may not be looked at": Case(
        f"images/{IMAGE}", {"ecr:DescribeImages": AwsError("AccessDenied")}, "not checked", "", change=with_image
    ),
    "a good subnet": Case(f"network/{SUBNET}", subnet(), "pass", "16,000 addresses free, ", change=adopting),
    "a full subnet": Case(
        f"network/{SUBNET}", subnet(AvailableIpAddressCount=20), "fail", "20 addresses free, ", change=adopting
    ),
    "another zone": Case(
        f"network/{SUBNET}",
        subnet(AvailabilityZoneId="usw2-az2"),
        "fail",
        "its zone is usw2-az2, not usw2-az4",
        change=adopting,
    ),
    "no subnet": Case(
        f"network/{SUBNET}",
        {"ec2:DescribeSubnets": AwsError("InvalidSubnetID.NotFound")},
        "fail",
        "there is none in us-west-2",
        change=adopting,
    ),
    "too little storage of volumes": Case(
        "quotas/L-7A658B76",
        volumes(51000),
        "fail",
        "0.7 TiB needed, quota 50 TiB, others use 49.8 TiB",
        "--service-code ebs --quota-code L-7A658B76 --desired-value 53",
    ),
    "too little storage for the largest size": Case(
        "quotas/L-7A658B76", volumes(49000), "warn", "at their largest sizes the groups need 2.5 TiB"
    ),
    "too little Lustre storage": Case(
        "quotas/L-8F1B9C74", LUSTRE, "fail", "9,600 GiB needed, quota 100,800 GiB, others use 96,000 GiB"
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_a_check_makes_of_an_answer(prod: Graph, case: Case) -> None:
    told = ask_one(case.change(prod), case.id, case.answers)
    assert told.status == case.status, told
    assert case.text in told.text
    assert case.fix in told.fix
    assert bool(told.fix) == (told.status in ("fail", "warn"))


def test_denied_actions_are_named_and_counted(prod: Graph) -> None:
    def simulate(asked: Mapping[str, Any]) -> Answer:
        denied = ("iam:CreateRole", "fsx:CreateFileSystem")
        return {
            "EvaluationResults": [
                {"EvalActionName": each, "EvalDecision": "implicitDeny" if each in denied else "allowed"}
                for each in asked["ActionNames"]
            ]
        }

    told = ask_one(prod, "account/rights", {"iam:SimulatePrincipalPolicy": simulate})
    assert told.status is Status.FAIL
    assert told.text.endswith("actions are denied: fsx:CreateFileSystem, iam:CreateRole")
    assert "docs/deploy-role-*.json" in told.fix
    assert "permissionsBoundary" not in told.fix, "prod sets it"


def test_rights_are_simulated_for_the_role_with_its_resources_and_conditions(prod: Graph) -> None:
    double = AwsDouble(GOOD)
    look(prod, Account("us-west-2", double.session()), lambda: NOW)
    asked = [parameters for name, parameters in double.asked if name == "iam:SimulatePrincipalPolicy"]
    assert {each["PolicySourceArn"] for each in asked} == {f"arn:aws:iam::{ACCOUNT}:role/ci/training-deployer"}
    [create] = [each for each in asked if "iam:CreateRole" in each["ActionNames"]]
    [role] = create["ResourceArns"]
    assert re.fullmatch(rf"arn:aws:iam::{ACCOUNT}:role/trn-prod-[a-z-]+-[0-9a-f]{{7}}", role)
    keys = {each["ContextKeyName"]: each["ContextKeyValues"] for each in create["ContextEntries"]}
    assert keys["iam:PermissionsBoundary"] == [f"arn:aws:iam::{ACCOUNT}:policy/trn-boundary"]
    assert keys["aws:PrincipalAccount"] == [ACCOUNT]
    assert len(asked) < 100, "each takes IAM a second"


def test_an_administrator_needs_no_boundary(dev: Graph) -> None:
    asked = needed(dev, replace(PLACE, boundary=""))
    assert len(asked) > 150
    assert not [each for each in asked if "iam:PermissionsBoundary" in each.context or "{" in each.resource]


def test_an_ami_release_whose_parameter_is_missing_and_whose_image_is_there(prod: Graph) -> None:
    names: list[str] = []

    def images(asked: Mapping[str, Any]) -> Answer:
        names.extend(asked["Filters"][0]["Values"])
        return {"Images": [{"ImageId": "ami-1"}]}

    assert ask_one(prod, AMI, published() | {"ec2:DescribeImages": images}).status is Status.PASS
    assert "amazon-eks-node-al2023-x86_64-neuron-1.35-v20260930" in names


# Quotas --------------------------------------------------------------------------------------------------------------


def test_a_quota_that_the_account_never_changed_has_aws_default(dev: Graph) -> None:
    answers: dict[str, Answer] = {
        "service-quotas:GetServiceQuota": AwsError("NoSuchResourceException"),
        "service-quotas:GetAWSDefaultServiceQuota": {"Quota": {"Value": 5.0}},
    }
    assert ask_one(dev, "quotas/L-F678F1CE", answers).text == "1 needed, quota 5, others use 1"


def test_spot_counts_against_the_spot_quota(prod: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    spot = changed(prod, TRN_NODES, capacityType="SPOT")
    monkeypatch.setitem(__import__("good_account").QUOTAS, "L-6B0D517C", 0)
    running = [{"InstanceId": "i-1", "InstanceType": "trn1.2xlarge", "InstanceLifecycle": "spot"}]
    found = ask(spot, {"ec2:DescribeInstances": {"Reservations": [{"Instances": running}]}})
    told: Finding = of(found, "quotas/L-6B0D517C")
    assert told.status is Status.FAIL
    assert "512 vCPUs needed, quota 0, others use 8: room for 0 nodes" in told.text
    assert not [each for each in found.findings if each.id == "quotas/L-2C3B7624"]


def test_another_program_is_asked_about_what_it_has() -> None:
    provider = Resource("u", "pulumi:providers:aws", "aws", inputs={"region": "us-west-2"})
    vpc = Resource("v", "aws:ec2/vpc:Vpc", "vpc", inputs={"cidrBlock": "10.0.0.0/16"})
    found = ask(Graph("p", "s", (provider, vpc), {}))
    ids = [each.id for each in found.findings]
    assert ids == ["account/id", "account/region", "account/rights", "quotas/L-F678F1CE"]


# The way to the API -------------------------------------------------------------------------------------------------

HOST = "0123.gr7.us-west-2.eks.amazonaws.com"


def api(graph: Graph, answers: Mapping[str, Answer], why: str = "") -> Finding:
    present = AccountState(Needs(graph), Account("us-west-2", AwsDouble({**GOOD, **answers}).session()))
    [question] = reach.questions(Needs(graph), present, lambda host: why if host == HOST else "another host")
    return answered(question)


def running_cluster(stack: str) -> dict[str, Answer]:
    name, tags = f"trn-{stack}-cluster-eks-0a1b2c3", {"Environment": stack, "ManagedBy": "pulumi"}
    cluster = {"name": name, "tags": tags, "endpoint": f"https://{HOST}"}
    return {"eks:ListClusters": {"clusters": [name]}, "eks:DescribeCluster": {"cluster": cluster}}


def test_before_the_first_up_a_machine_outside_is_warned(prod: Graph, dev: Graph) -> None:
    told = api(prod, {})
    assert (told.status, "10.200.0.0/16, 10.32.0.0/16" in told.text) == (Status.WARN, True)
    assert "Production from nothing" in told.fix
    # The loopback's own range stands for the VPC that this machine is in.
    inside = changed(prod, "trn-prod-cluster-api-from-vpc", cidrIpv4="127.0.0.0/8")
    assert api(inside, {}).status is Status.PASS
    assert api(dev, {}).status is Status.PASS


@pytest.mark.parametrize(
    ("stack", "why", "outcome", "remedy"),
    [
        ("prod", "", Status.PASS, ""),
        ("prod", "timed out", Status.FAIL, "on a machine in the VPC"),
        ("dev", "timed out", Status.FAIL, "cluster.endpoint.publicAccessCidrs"),
    ],
)
def test_an_api_that_does_not_answer_from_here_is_a_failure(
    stack: str, why: str, outcome: Status, remedy: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HTTPS_PROXY", raising=False)
    monkeypatch.delenv("https_proxy", raising=False)
    told = api(request.getfixturevalue(stack), running_cluster(stack), why)
    assert told.status is outcome
    assert remedy in told.fix
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    told = api(request.getfixturevalue(stack), running_cluster(stack), why)
    assert (told.status, "a proxy" in told.text) == (Status.NOT_CHECKED, True)


# Karpenter ----------------------------------------------------------------------------------------------------------

OF_KARPENTER = {"karpenter.sh/nodepool": "inference", "kubernetes.io/cluster/trn-dev-cluster-eks-0a1b2c3": "owned"}


def node(tags: Mapping[str, str]) -> Answer:
    listed = [{"Key": key, "Value": value} for key, value in tags.items()]
    return {"Reservations": [{"Instances": [{"InstanceType": "inf2.48xlarge", "Tags": listed}]}]}


def test_karpenters_pools_count_at_their_largest_and_its_own_nodes_are_not_others() -> None:
    full = full_environments.recorded("dev")
    quota = {"service-quotas:GetServiceQuota": {"Quota": {"Value": 200.0}}, "ec2:DescribeInstances": node(OF_KARPENTER)}
    told = ask_one(full, "quotas/L-1945791B", running_cluster("dev") | quota)
    assert told.status is Status.WARN
    assert told.text.startswith("0 vCPUs needed, quota 200, others use 0; at their largest sizes the groups need 384")
    assert "inference 2 x 192" in told.text
    others = quota | {"ec2:DescribeInstances": node({"karpenter.sh/nodepool": "inference"})}
    assert "others use 192" in ask_one(full, "quotas/L-1945791B", running_cluster("dev") | others).text


def test_karpenters_types_are_looked_for_in_the_zone_of_their_pool() -> None:
    told = ask_one(full_environments.recorded("dev"), "capacity/inf2.48xlarge", offered("usw2-az1"))
    assert (told.status, told.text) == (Status.FAIL, "not offered in usw2-az4; offered in usw2-az1")
    assert "autoscaling.karpenter.acceleratorPools[0].zoneId" in told.fix


@pytest.mark.parametrize(
    ("answer", "remedy"),
    [
        ([], "set autoscaling.karpenter.acceleratorPools[0].capacityReservationIds"),
        ([{"InstanceType": "inf2.48xlarge", "AvailabilityZoneId": "usw2-az4", "TotalInstanceCount": 1}], "maxNodes"),
    ],
)
def test_a_reservation_of_a_pool_is_looked_at(answer: Any, remedy: str) -> None:
    told = ask_one(
        full_environments.recorded("prod"),
        "capacity/cr-0fedcba9876543210",
        {"ec2:DescribeCapacityReservations": {"CapacityReservations": answer}},
    )
    assert told.status is (Status.WARN if answer else Status.FAIL)
    assert remedy in told.fix
