"""What each other question makes of AWS' answers."""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import full_environments
import pytest
from aws_double import Answer, AwsDouble, AwsError
from deploy_needs import PLACE
from good_account import ACCOUNT, DEPLOYER, GOOD, NOW, ask, ask_one, changed, of
from iam_evaluation import IamRequest, allowed

from trainium_eks.aws.account import Account
from trainium_eks.operate.finding import Finding, Status
from trainium_eks.operate.preflight import reach
from trainium_eks.operate.preflight.deploy_rights import needed
from trainium_eks.operate.preflight.needs import Needs
from trainium_eks.operate.preflight.present import Present
from trainium_eks.operate.preflight.run import answered, look
from trainium_eks.plan.graph import Graph, Resource

OWN = {"Environment": "prod", "ManagedBy": "pulumi"}
CLUSTER = "trn-prod-cluster-eks-0a1b2c3"
TRN_NODES = "trn-prod-cluster-trn1-base-nodes"


def judged(graph: Graph, id_: str, **answers: Answer) -> tuple[str, str, str]:
    """Status, detail and remedy; operations are given with ``__`` for ``:`` and ``_`` for ``-``."""
    names = {key.replace("__", ":").replace("service_", "service-"): answer for key, answer in answers.items()}
    told = of(ask(graph, names), id_)
    return told.status.value, told.text, told.fix


# Account -------------------------------------------------------------------------------------------------------------


def test_another_account_than_the_config_allows(prod: Graph) -> None:
    other: dict[str, Answer] = {"sts:GetCallerIdentity": {"Account": "999999999999", "Arn": DEPLOYER}}
    told = of(ask(prod, other), "account/id")
    assert told.status is Status.FAIL
    assert told.text == f"the credentials are of 999999999999, the config allows {ACCOUNT}"


@pytest.mark.parametrize(
    ("answer", "detail"),
    [
        ({"Regions": [{"RegionName": "us-west-2", "OptInStatus": "not-opted-in"}]}, "not enabled in this account"),
        (AwsError("InvalidParameterValue"), "AWS knows no region us-west-2"),
    ],
)
def test_a_region_that_is_off_or_unknown(prod: Graph, answer: Answer, detail: str) -> None:
    outcome, told, _ = judged(prod, "account/region", ec2__DescribeRegions=answer)
    assert (outcome, detail in told) == ("fail", True)


@pytest.mark.parametrize(
    ("caller", "outcome"),
    [
        # A session does not tell its role's path.
        (f"arn:aws:sts::{ACCOUNT}:assumed-role/ml-platform-oncall/me", "fail"),
        (f"arn:aws:sts::{ACCOUNT}:assumed-role/pretraining-researchers/me", "fail"),
        (f"arn:aws:sts::{ACCOUNT}:assumed-role/ml-platform/me", "pass"),
        (f"arn:aws:iam::{ACCOUNT}:user/ml-platform-oncall", "pass"),
    ],
)
def test_the_deployer_must_not_be_given_a_second_access_entry(prod: Graph, caller: str, outcome: str) -> None:
    answer = {"Account": ACCOUNT, "Arn": caller}
    assert judged(prod, "account/deployer", sts__GetCallerIdentity=answer)[0] == outcome


def test_denied_actions_are_named_and_counted(prod: Graph) -> None:
    def simulate(asked: Mapping[str, Any]) -> Answer:
        denied = ("iam:CreateRole", "fsx:CreateFileSystem")
        return {
            "EvaluationResults": [
                {"EvalActionName": each, "EvalDecision": "implicitDeny" if each in denied else "allowed"}
                for each in asked["ActionNames"]
            ]
        }

    outcome, detail, remedy = judged(prod, "account/rights", iam__SimulatePrincipalPolicy=simulate)
    assert outcome == "fail"
    assert detail.endswith("actions are denied: fsx:CreateFileSystem, iam:CreateRole")
    assert "docs/deploy-role-*.json" in remedy
    assert "permissionsBoundary" not in remedy, "prod sets it"


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
    everything = {"Statement": {"Effect": "Allow", "Action": "*", "Resource": "*"}}
    assert [each for each in asked if not allowed(each, [everything])] == []
    assert not [each for each in asked if "iam:PermissionsBoundary" in each.context]
    assert all(isinstance(each, IamRequest) and "{" not in each.resource for each in asked)


def test_the_root_user_cannot_be_simulated(prod: Graph) -> None:
    root = {"Account": ACCOUNT, "Arn": f"arn:aws:iam::{ACCOUNT}:root"}
    assert judged(prod, "account/rights", sts__GetCallerIdentity=root)[0] == "not checked"


def test_a_service_without_its_role_is_a_warning(prod: Graph) -> None:
    outcome, _, remedy = judged(prod, "account/AWSServiceRoleForAmazonFSx", iam__GetRole=AwsError("NoSuchEntity"))
    assert outcome == "warn"
    assert remedy == "aws iam create-service-linked-role --aws-service-name fsx.amazonaws.com"


# Capacity ------------------------------------------------------------------------------------------------------------


def test_a_zone_without_the_type(prod: Graph) -> None:
    def offers(asked: Mapping[str, Any]) -> Answer:
        return {"InstanceTypeOfferings": [{"Location": zone} for zone in ("usw2-az1", "usw2-az2")]}

    outcome, detail, remedy = judged(prod, "capacity/trn1.32xlarge", ec2__DescribeInstanceTypeOfferings=offers)
    assert (outcome, detail) == ("fail", "not offered in usw2-az4; offered in usw2-az1, usw2-az2")
    assert remedy == "pulumi config set --path 'nodeGroups[0].zoneId' usw2-az1"


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (AwsError("InvalidPlacementGroup.Unknown"), "fail"),
        ({"PlacementGroups": [{"GroupName": "mine", "Strategy": "spread"}]}, "warn"),
        ({"PlacementGroups": [{"GroupName": "mine", "Strategy": "cluster"}]}, "pass"),
    ],
)
def test_an_existing_placement_group(prod: Graph, answer: Answer, outcome: str) -> None:
    placed = changed(prod, "trn-prod-cluster-trn1-base-template", placement={"groupName": "mine"})
    assert judged(placed, "capacity/mine", ec2__DescribePlacementGroups=answer)[0] == outcome


# Versions ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("versions", "outcome", "part"),
    [
        ({"1.35": "STANDARD_SUPPORT"}, "pass", "standard support until 2027-03-27"),
        ({"1.35": "EXTENDED_SUPPORT"}, "warn", "0.60 USD an hour"),
        ({"1.35": "UNSUPPORTED", "1.36": "STANDARD_SUPPORT"}, "fail", "EKS has no 1.35 in us-west-2; it has 1.36"),
        ({"1.34": "STANDARD_SUPPORT"}, "fail", "it has 1.34"),
    ],
)
def test_the_kubernetes_version(prod: Graph, versions: dict[str, str], outcome: str, part: str) -> None:
    ends = datetime(2027, 3, 27, tzinfo=UTC)
    every = [
        {"clusterVersion": name, "versionStatus": status, "endOfStandardSupportDate": ends}
        for name, status in versions.items()
    ]
    told = judged(prod, "versions/kubernetes", eks__DescribeClusterVersions={"clusterVersions": every})
    assert (told[0], part in told[1]) == (outcome, True)


def test_an_addon_version_that_the_region_lacks(prod: Graph) -> None:
    versions = [
        {"addonVersion": "v1.24.0-eksbuild.1"},
        {"addonVersion": "v1.22.0-eksbuild.1", "compatibilities": [{"defaultVersion": True}]},
    ]
    answer = {"addons": [{"addonName": "vpc-cni", "addonVersions": versions}]}
    outcome, detail, remedy = judged(prod, "versions/vpc-cni", eks__DescribeAddonVersions=answer)
    assert outcome == "fail"
    assert "EKS has no v1.23.2-eksbuild.1 for 1.35 here; its default is v1.22.0-eksbuild.1" in detail
    assert remedy == "pulumi config set --path cluster.addons.vpc-cni.version v1.22.0-eksbuild.1"


@pytest.mark.parametrize(
    ("published", "outcome"),
    [
        ({"v20260930/image_id": "ami-1", "release_version": "1.35.7-20261001"}, "pass"),
        ({"release_version": "1.35.8-20260930"}, "pass"),
        ({"release_version": "1.35.7-20261001"}, "fail"),
        ({}, "fail"),
    ],
)
def test_the_ami_release(prod: Graph, published: dict[str, str], outcome: str) -> None:
    asked_for: list[str] = []

    def parameters(asked: Mapping[str, Any]) -> Answer:
        asked_for.extend(asked["Names"])
        return {
            "Parameters": [
                {"Name": name, "Value": value}
                for name in asked["Names"]
                for end, value in published.items()
                if name.endswith(end)
            ]
        }

    id_ = "versions/AL2023_x86_64_NEURON/1.35.8-20260930"
    told = judged(prod, id_, ssm__GetParameters=parameters)
    assert told[0] == outcome
    root = "/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/x86_64/neuron"
    assert f"{root}/amazon-eks-node-al2023-x86_64-neuron-1.35-v20260930/image_id" in asked_for
    assert f"{root}/recommended/release_version" in asked_for
    if published and outcome == "fail":
        assert told[2] == "pulumi config set --path 'nodeGroups[0].releaseVersion' 1.35.7-20261001"


def test_an_ami_release_whose_parameter_is_missing_and_whose_image_is_there(prod: Graph) -> None:
    names: list[str] = []

    def images(asked: Mapping[str, Any]) -> Answer:
        names.extend(asked["Filters"][0]["Values"])
        return {"Images": [{"ImageId": "ami-1"}]}

    id_ = "versions/AL2023_x86_64_NEURON/1.35.8-20260930"
    told = judged(prod, id_, ssm__GetParameters={"Parameters": []}, ec2__DescribeImages=images)
    assert told[0] == "pass"
    assert "amazon-eks-node-al2023-x86_64-neuron-1.35-v20260930" in names


# The kept key --------------------------------------------------------------------------------------------------------


KEPT = f"arn:aws:kms:us-west-2:{ACCOUNT}:key/0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"


def kept(state: str) -> dict[str, Answer]:
    known = {"KeyMetadata": {"KeyId": KEPT.rpartition("/")[2], "KeyState": state}}
    keys = {"ResourceTagMappingList": [{"ResourceARN": KEPT}]}
    return {"resourcegroupstaggingapi__GetResources": keys, "kms__DescribeKey": known}


def test_a_key_that_an_earlier_stack_kept_is_proposed_before_the_first_up(prod: Graph) -> None:
    assert judged(prod, "keys/kept")[:2] == ("pass", "none is kept")
    assert judged(prod, "keys/kept", **kept("PendingDeletion"))[:2] == ("pass", "none is kept")
    outcome, detail, remedy = judged(prod, "keys/kept", **kept("Enabled"))
    assert (outcome, KEPT in detail) == ("warn", True)
    assert f"pulumi config set keptKeyArn {KEPT}" in remedy
    described = {"cluster": {"name": CLUSTER, "status": "ACTIVE", "tags": OWN}}
    clusters = {"eks__ListClusters": {"clusters": [CLUSTER]}, "eks__DescribeCluster": described}
    assert judged(prod, "keys/kept", **clusters, **kept("Enabled"))[0] == "pass"


def test_a_kept_key_is_enabled_and_this_stacks(prod: Graph) -> None:
    named = replace(prod, config={**prod.config, "keptKeyArn": KEPT})
    assert judged(named, "keys/kept", **kept("Enabled"))[0] == "pass"
    outcome, detail, remedy = judged(named, "keys/kept", **kept("PendingDeletion"))
    assert (outcome, detail) == ("fail", "it is PendingDeletion")
    assert "cancel-key-deletion" in remedy
    gone = {**kept("Enabled"), "kms__DescribeKey": AwsError("NotFoundException")}
    assert judged(named, "keys/kept", **gone)[0] == "fail"
    others = {**kept("Enabled"), "resourcegroupstaggingapi__GetResources": {"ResourceTagMappingList": []}}
    assert judged(named, "keys/kept", **others)[0] == "fail"


# Names, images, subnets ----------------------------------------------------------------------------------------------


def repository(tags: dict[str, str]) -> dict[str, Answer]:
    arn = f"arn:aws:ecr:us-west-2:{ACCOUNT}:repository/trainium-eks-prod/training"
    return {
        "ecr__DescribeRepositories": {"repositories": [{"repositoryArn": arn}]},
        "ecr__ListTagsForResource": {"tags": [{"Key": key, "Value": value} for key, value in tags.items()]},
    }


def test_the_name_of_an_image_repository(prod: Graph) -> None:
    id_ = "names/trainium-eks-prod/training"
    assert judged(prod, id_, **repository({"Environment": "dev", "ManagedBy": "pulumi"}))[0] == "fail"
    left = judged(prod, id_, **repository(OWN))
    assert (left[0], "left of an earlier run" in left[1]) == ("warn", True)
    cluster = {"cluster": {"name": CLUSTER, "version": "1.35", "tags": OWN}}
    clusters = {"eks__ListClusters": {"clusters": [CLUSTER]}, "eks__DescribeCluster": cluster}
    assert judged(prod, id_, **clusters, **repository(OWN))[:2] == ("pass", "this stack's")


def test_a_cluster_that_an_interrupted_run_left(prod: Graph) -> None:
    names = {"clusters": [CLUSTER, "trn-prod-cluster-eks-9999999", "trn-prod-cluster-eks-extra"]}

    def describe(asked: Mapping[str, Any]) -> Answer:
        return {"cluster": {"name": asked["name"], "version": "1.35", "tags": OWN}}

    outcome, detail, remedy = judged(prod, "names/cluster", eks__ListClusters=names, eks__DescribeCluster=describe)
    assert outcome == "warn"
    assert detail.startswith("trn-prod-cluster-eks-9999999 is there")
    assert "pulumi stack export --stack prod" in remedy


IMAGE = f"{ACCOUNT}.dkr.ecr.us-west-2.amazonaws.com/mirror/volcano:v1"


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ({"imageDetails": []}, "pass"),
        (AwsError("ImageNotFoundException"), "fail"),
        (AwsError("AccessDenied"), "not checked"),
    ],
)
def test_a_private_image_that_the_program_names(prod: Graph, answer: Answer, outcome: str) -> None:
    job = next(each for each in prod.resources if each.type == "kubernetes:batch/v1:Job")
    named = changed(prod, job.name, spec={"template": {"spec": {"containers": [{"image": IMAGE}]}}})
    assert judged(named, f"images/{IMAGE}", ecr__DescribeImages=answer)[0] == outcome


SUBNET = "subnet-0a1b2c3d4e5f60711"
ADOPTED = {
    "vpcId": "vpc-0a1b2c3d4e5f60718",
    "cidrBlock": "10.64.0.0/16",
    "privateSubnets": [
        {"id": SUBNET, "zoneId": "usw2-az4", "cidrBlock": "10.64.0.0/18"},
        {"id": "subnet-0a1b2c3d4e5f60712", "zoneId": "usw2-az1", "cidrBlock": "10.64.64.0/18"},
    ],
}


def subnet(**other: Any) -> Answer:
    described = {
        "SubnetId": SUBNET,
        "VpcId": ADOPTED["vpcId"],
        "AvailabilityZoneId": "usw2-az4",
        "CidrBlock": "10.64.0.0/18",
        "AvailableIpAddressCount": 16000,
        **other,
    }
    return {"Subnets": [described]}


@pytest.mark.parametrize(
    ("answer", "outcome", "part"),
    [
        (subnet(), "pass", "16,000 addresses free, "),
        (subnet(AvailableIpAddressCount=20), "fail", "20 addresses free, "),
        (subnet(VpcId="vpc-9"), "fail", "its VPC is vpc-9"),
        (subnet(AvailabilityZoneId="usw2-az2"), "fail", "its zone is usw2-az2, not usw2-az4"),
        (subnet(CidrBlock="10.64.0.0/20"), "fail", "its range is 10.64.0.0/20"),
        (AwsError("InvalidSubnetID.NotFound"), "fail", "there is none in us-west-2"),
    ],
)
def test_an_adopted_subnet(prod: Graph, answer: Answer, outcome: str, part: str) -> None:
    adopting = replace(prod, config={**prod.config, "existingNetwork": ADOPTED})
    told = judged(adopting, f"network/{SUBNET}", ec2__DescribeSubnets=answer)
    assert (told[0], part in told[1]) == (outcome, True), told


# Quotas --------------------------------------------------------------------------------------------------------------


def test_a_quota_that_the_account_never_changed_has_aws_default(dev: Graph) -> None:
    answers: dict[str, Answer] = {
        "service_quotas__GetServiceQuota": AwsError("NoSuchResourceException"),
        "service_quotas__GetAWSDefaultServiceQuota": {"Quota": {"Value": 5.0}},
    }
    assert judged(dev, "quotas/L-F678F1CE", **answers)[1] == "1 needed, quota 5, others use 1"


def test_storage_of_volumes_and_file_systems(prod: Graph) -> None:
    own = {"Size": 9999, "Tags": [{"Key": key, "Value": value} for key, value in OWN.items()]}
    volumes = {"Volumes": [{"Size": 51000}, own]}
    outcome, detail, remedy = judged(prod, "quotas/L-7A658B76", ec2__DescribeVolumes=volumes)
    assert (outcome, detail) == ("fail", "0.7 TiB needed, quota 50 TiB, others use 49.8 TiB")
    assert "--service-code ebs --quota-code L-7A658B76 --desired-value 53" in remedy
    volumes = {"Volumes": [{"Size": 49000}, own]}
    outcome, detail, _ = judged(prod, "quotas/L-7A658B76", ec2__DescribeVolumes=volumes)
    assert (outcome, "at their largest sizes the groups need 2.5 TiB" in detail) == ("warn", True)
    lustre = {"StorageCapacity": 96000, "LustreConfiguration": {"DeploymentType": "PERSISTENT_2"}}
    scratch = {"StorageCapacity": 96000, "LustreConfiguration": {"DeploymentType": "SCRATCH_2"}}
    answer = {"FileSystems": [lustre, scratch]}
    outcome, detail, _ = judged(prod, "quotas/L-8F1B9C74", fsx__DescribeFileSystems=answer)
    assert (outcome, detail) == ("fail", "9,600 GiB needed, quota 100,800 GiB, others use 96,000 GiB")
    outcome, detail, _ = judged(prod, "quotas/L-FD6F2F22", fsx__DescribeFileSystems=answer)
    assert (outcome, detail) == ("pass", "1 needed, quota 100, others use 1")


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
    present = Present(Needs(graph), Account("us-west-2", AwsDouble({**GOOD, **answers}).session()))
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
    nowhere = {"ec2:DescribeInstanceTypeOfferings": {"InstanceTypeOfferings": [{"Location": "usw2-az1"}]}}
    told = ask_one(full_environments.recorded("dev"), "capacity/inf2.48xlarge", nowhere)
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
