"""What each check makes of AWS' answers."""

import re
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import aws_commands
import pytest
from aws_double import AwsDouble, AwsError
from good_account import ACCOUNT, ADOPTED, DEPLOYER, GOOD, NOW, QUOTAS, SUPPORTED, ask, ask_one, changed, listed, of

from trainium_eks.aws.account import Account
from trainium_eks.model.finding import Status
from trainium_eks.operate.preflight import reach
from trainium_eks.operate.preflight.existing_resources import AccountState, on_demand_quota, spot_quota
from trainium_eks.operate.preflight.needs import Needs
from trainium_eks.operate.preflight.run import answered, look
from trainium_eks.plan.graph import Graph, Resource

OWN = {"Environment": "prod", "ManagedBy": "pulumi"}
CLUSTER = "trn-prod-cluster-eks-0a1b2c3"


class Case(NamedTuple):
    """A question about production, AWS' answers, and what the check makes of them."""

    id: str
    answers: dict
    status: str
    text: str = ""
    fix: str = ""
    change: Callable[[Graph], Graph] = lambda graph: graph


def caller(name, service="iam"):
    return {"sts:GetCallerIdentity": {"Account": ACCOUNT, "Arn": f"arn:aws:{service}::{ACCOUNT}:{name}"}}


def offered(*zones):
    return {"ec2:DescribeInstanceTypeOfferings": {"InstanceTypeOfferings": [{"Location": zone} for zone in zones]}}


def placed_in(answer, status):
    def placed(prod):
        return changed(prod, "trn-prod-cluster-trn1-base-template", placement={"groupName": "mine"})

    return Case("capacity/mine", {"ec2:DescribePlacementGroups": answer}, status, change=placed)


def kubernetes(versions):
    every = [{**SUPPORTED, "clusterVersion": name, "versionStatus": status} for name, status in versions.items()]
    return {"eks:DescribeClusterVersions": {"clusterVersions": every}}


def published(**values):
    """Parameters of this image, and of the newest release."""
    root = "/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/x86_64/neuron"
    image = "amazon-eks-node-al2023-x86_64-neuron-1.35-v20260930"
    names = {"image": f"{root}/{image}/image_id", "newest": f"{root}/recommended/release_version"}
    return {"ssm:GetParameters": {"Parameters": [{"Name": names[key], "Value": values[key]} for key in values]}}


VPC_CNI = [
    {"addonVersion": "v1.24.0-eksbuild.1"},
    {"addonVersion": "v1.22.0-eksbuild.1", "compatibilities": [{"defaultVersion": True}]},
]
ADDONS = {"eks:DescribeAddonVersions": {"addons": [{"addonName": "vpc-cni", "addonVersions": VPC_CNI}]}}
AMI = "versions/AL2023_x86_64_NEURON/1.35.8-20260930"
KEPT = f"arn:aws:kms:us-west-2:{ACCOUNT}:key/0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"


def kept(state, *keys):
    known = {"KeyMetadata": {"KeyId": KEPT.rpartition("/")[2], "KeyState": state}}
    tagged = {"ResourceTagMappingList": [{"ResourceARN": key} for key in keys]}
    return {"resourcegroupstaggingapi:GetResources": tagged, "kms:DescribeKey": known}


def with_kept(prod):
    return replace(prod, config={**prod.config, "keptKeyArn": KEPT})


def clusters(*names, tags=OWN, **more):
    def describe(asked):
        return {"cluster": {"name": asked["name"], "version": "1.35", "status": "ACTIVE", "tags": tags, **more}}

    return {"eks:ListClusters": {"clusters": [*names]}, "eks:DescribeCluster": describe}


def repository(tags):
    arn = f"arn:aws:ecr:us-west-2:{ACCOUNT}:repository/trainium-eks-prod/training"
    there = {"ecr:DescribeRepositories": {"repositories": [{"repositoryArn": arn}]}}
    return {**there, "ecr:ListTagsForResource": {"tags": listed(tags)}}


GROUP = "/trn/own"


def with_log_group(prod):
    made = Resource("g", "aws:cloudwatch/logGroup:LogGroup", "g", inputs={"name": GROUP})
    return replace(prod, resources=(*prod.resources, made))


def log_group(status, text, tags=None, name=GROUP, running=()):
    groups = [{"logGroupName": name, "arn": f"arn:aws:logs:us-west-2:{ACCOUNT}:log-group:{name}:*"}]
    there = {"logs:DescribeLogGroups": {"logGroups": groups}, "logs:ListTagsForResource": {"tags": tags or {}}}
    fix = f"aws logs delete-log-group --log-group-name {GROUP}, once" if status == "fail" else ""
    return Case(f"names/{GROUP}", clusters(*running) | there, status, text, fix, with_log_group)


REPOSITORY = "names/trainium-eks-prod/training"
IMAGE = f"{ACCOUNT}.dkr.ecr.us-west-2.amazonaws.com/mirror/volcano:v1"
SUBNET, NO_SUBNET = next(iter(ADOPTED)), AwsError("InvalidSubnetID.NotFound")
SERVICE_ROLE = "aws iam create-service-linked-role --aws-service-name fsx.amazonaws.com"


def image(answer, status, text=""):
    def with_image(prod):
        job = next(each for each in prod.resources if each.type == "kubernetes:batch/v1:Job")
        return changed(prod, job.name, spec={"template": {"spec": {"containers": [{"image": IMAGE}]}}})

    return Case(f"images/{IMAGE}", {"ecr:DescribeImages": answer}, status, text, change=with_image)


DOCKER = f"arn:aws:secretsmanager:us-west-2:{ACCOUNT}:secret:ecr-pullthroughcache/docker-AbCdEf"


def with_cache(prod):
    rule = {"ecrRepositoryPrefix": "mirror", "credentialArn": DOCKER}
    made = Resource("u", "aws:ecr/pullThroughCacheRule:PullThroughCacheRule", "docker", inputs=rule)
    job = next(each for each in prod.resources if each.type == "kubernetes:batch/v1:Job")
    pods = {"template": {"spec": {"containers": [{"image": IMAGE}, {"image": "nvcr.io/nvidia/a:1"}]}}}
    prod = changed(prod, job.name, spec=pods)
    return replace(prod, resources=(*prod.resources, made))


def credentials(answer, status, text):
    return Case(f"images/{DOCKER}", {"secretsmanager:DescribeSecret": answer}, status, text, change=with_cache)


def subnet(status, text, fix="", there=(), **other):
    answers = clusters(*there) | {"ec2:DescribeSubnets": {"Subnets": [{**ADOPTED[SUBNET], **other}]}}
    return Case(f"network/{SUBNET}", answers, status, text, fix)


def interfaces(count):
    """Of this many interfaces the stack's own are three."""
    own = {"TagSet": listed(OWN)}
    return {"ec2:DescribeNetworkInterfaces": {"NetworkInterfaces": [{}] * (count - 3) + [own] * 3}}


def lustre(capacity, count=1):
    """File systems of others with this capacity in all, and one of the stack's."""
    first = {"StorageCapacity": capacity, "LustreConfiguration": {"DeploymentType": "PERSISTENT_2"}}
    others = [first, *([{**first, "StorageCapacity": 0}] * (count - 1))]
    return {"fsx:DescribeFileSystems": {"FileSystems": [*others, {**first, "Tags": listed(OWN)}]}}


def volumes(gibibytes):
    own = {"Size": 9999, "Tags": listed(OWN)}
    return {"ec2:DescribeVolumes": {"Volumes": [{"Size": gibibytes}, own]}}


NO_GROUPS = {"eks:ListNodegroups": {"nodegroups": []}}
NO_REGION = {"ec2:DescribeRegions": AwsError("InvalidParameterValue")}
NO_KEY = {"kms:DescribeKey": AwsError("NotFoundException")}
ELSEWHERE = f"arn:aws:sts::{'9' * 12}:assumed-role/ml-platform-oncall/me"
GOOD_CALLER = GOOD["sts:GetCallerIdentity"]
OTHERS = {"sts:GetCallerIdentity": {"Account": "999999999999", "Arn": DEPLOYER}}
OFF = {"Regions": [{"RegionName": "us-west-2", "OptInStatus": "not-opted-in"}]}
SCRATCH = {"StorageCapacity": 1200, "LustreConfiguration": {"DeploymentType": "SCRATCH_2"}}

CASES = [
    Case("account/id", OTHERS, "fail", f"the credentials are of 999999999999, the config allows {ACCOUNT}"),
    Case("account/region", NO_REGION, "fail", "AWS knows no region us-west-2"),
    Case("account/region", {"ec2:DescribeRegions": OFF}, "fail", "not enabled in this account"),
    # A session does not tell its role's path. EKS refuses a second access entry.
    Case("account/deployer", caller("assumed-role/ml-platform-oncall/me", service="sts"), "fail"),
    Case("account/deployer", caller("user/ml-platform-oncall"), "pass"),
    Case("account/deployer", {"sts:GetCallerIdentity": {"Account": "9" * 12, "Arn": ELSEWHERE}}, "pass"),
    Case("account/rights", caller("root"), "not checked"),
    Case("account/AWSServiceRoleForAmazonFSx", {"iam:GetRole": AwsError("NoSuchEntity")}, "warn", fix=SERVICE_ROLE),
    Case("capacity/trn1.32xlarge", offered("usw2-az1", "usw2-az2"), "fail",
         "not offered in usw2-az4; offered in usw2-az1, usw2-az2",
         "pulumi config set --path 'nodeGroups[0].zoneId' usw2-az1"),
    Case("capacity/trn1.32xlarge", offered(), "fail", "usw2-az4, nor anywhere in us-west-2", "take another region"),
    placed_in(AwsError("InvalidPlacementGroup.Unknown"), "fail"),
    placed_in({"PlacementGroups": [{"Strategy": "cluster"}]}, "pass"),
    placed_in({"PlacementGroups": [{"Strategy": "spread"}]}, "warn"),
    Case("versions/kubernetes", kubernetes({"1.35": "EXTENDED_SUPPORT"}), "warn", "0.60 USD an hour"),
    Case(
        "versions/kubernetes",
        kubernetes({"1.35": "UNSUPPORTED", "1.36": "STANDARD_SUPPORT", "1.99": "STANDARD_SUPPORT"}),
        "fail",
        "EKS has no 1.35 in us-west-2; it has 1.36, 1.99",
        "1.36",  # not the newest: a plan refuses what this release has no pins for
    ),
    Case("versions/kubernetes", kubernetes({}), "fail", "it has none", "another region"),
    Case("versions/upgrade", clusters(CLUSTER, status="UPDATING") | NO_GROUPS, "warn", f"{CLUSTER} is UPDATING",
         "wait"),
    Case("versions/upgrade", clusters(CLUSTER) | NO_GROUPS, "pass", "runs 1.35"),
    Case("versions/kubernetes", kubernetes({"1.34": "STANDARD_SUPPORT"}), "fail", "it has 1.34"),
    Case("versions/vpc-cni", {"eks:DescribeAddonVersions": {"addons": []}}, "fail", "no vpc-cni for 1.35", "remove it"),
    Case("versions/vpc-cni", ADDONS, "fail",
         "EKS has no v1.23.2-eksbuild.1 for 1.35 here; its default is v1.22.0-eksbuild.1",
         "pulumi config set --path cluster.addons.vpc-cni.version v1.22.0-eksbuild.1"),
    Case(AMI, published(newest="1.35.8-20260930"), "pass", "the newest"),
    Case(AMI, published(newest="1.35.7-20261001"), "fail",
         fix="pulumi config set --path 'nodeGroups[0].releaseVersion' 1.35.7-20261001"),
    Case(AMI, published(), "fail"),
    Case("keys/kept", kept("Enabled", KEPT), "warn", "(1 USD a month)", f"pulumi config set keptKeyArn {KEPT}"),
    Case("keys/kept", kept("Enabled", f"{KEPT}0", KEPT), "warn", "(2 USD a month)", f"{KEPT}0;"),
    Case("keys/kept", kept("Disabled", KEPT), "pass", "none is kept"),
    Case("keys/kept", NO_KEY, "fail", "there is none in us-west-2", "config rm keptKeyArn", with_kept),
    Case("keys/kept", kept("Disabled", KEPT), "fail", "it is Disabled", f"enable-key --key-id {KEPT}", with_kept),
    Case("keys/kept", clusters(CLUSTER) | kept("Enabled", KEPT), "pass"),
    Case("keys/kept", kept("Enabled", KEPT), "pass", change=with_kept),
    Case("keys/kept", kept("PendingDeletion", KEPT), "fail", "it is PendingDeletion", "cancel-key-deletion", with_kept),
    Case("keys/kept", kept("Enabled"), "fail", change=with_kept),
    Case(REPOSITORY, repository({**OWN, "Environment": "dev"}), "fail"),
    log_group("pass", "free", name=f"{GROUP}-2"),
    log_group("fail", "taken by something that is not this stack's", {"ManagedBy": "pulumi"}),
    log_group("warn", "left of an earlier run", OWN),
    log_group("pass", "this stack's", OWN, running=[CLUSTER]),
    Case("names/cluster", clusters(CLUSTER, "trn-prod-cluster-eks-9999999", "trn-prod-cluster-eks-extra"), "warn",
         "trn-prod-cluster-eks-9999999 is there", "pulumi stack export --stack prod"),
    image({"imageDetails": []}, "pass"),
    image(AwsError("ImageNotFoundException"), "fail", "not in its registry"),
    image(AwsError("AccessDenied"), "not checked"),
    credentials({"ARN": DOCKER}, "pass", "there"),
    credentials(AwsError("ResourceNotFoundException"), "fail", "there is no such secret"),
    Case("images/cache", {}, "warn", "nvcr.io/nvidia/a, ", "Docker Hub and GitHub; ECR caches no nvcr.io", with_cache),
    subnet("pass", "16,000 addresses free, "),
    subnet("pass", "394 addresses free, 394 needed", AvailableIpAddressCount=394),
    subnet("fail", "393 addresses free, 394 needed: ", AvailableIpAddressCount=393),
    subnet("pass", "16 addresses free", there=[CLUSTER], AvailableIpAddressCount=16),
    subnet("warn", "15 addresses free", "free some", there=[CLUSTER], AvailableIpAddressCount=15),
    subnet("fail", f"its VPC is vpc-9, not {ADOPTED[SUBNET]['VpcId']}", VpcId="vpc-9"),
    subnet("fail", "its range is 10.9.0.0/16, not ", CidrBlock="10.9.0.0/16"),
    subnet("fail", f"its zone is usw2-az2, not {ADOPTED[SUBNET]['AvailabilityZoneId']}", AvailabilityZoneId="usw2-az2"),
    Case(f"network/{SUBNET}", {"ec2:DescribeSubnets": NO_SUBNET}, "fail", "there is none in us-west-2"),
    Case("quotas/L-7A658B76", volumes(51000), "fail", "0.7 TiB needed, quota 50 TiB, others use 49.8 TiB",
         "--service-code ebs --quota-code L-7A658B76 --desired-value 53"),
    Case("quotas/L-7A658B76", volumes(49000), "warn", "at their largest sizes the groups need 2.5 TiB"),
    Case("quotas/L-7A658B76", volumes(50 * 1024 - 2600), "pass"),
    Case("quotas/L-8F1B9C74", lustre(91200), "pass", "others use 91,200 GiB"),
    Case("quotas/L-8F1B9C74", lustre(91201), "fail", "9,600 GiB needed, quota 100,800 GiB", "--desired-value 100801"),
    Case("quotas/L-8F1B9C74", {"fsx:DescribeFileSystems": {"FileSystems": [SCRATCH]}}, "pass", "others use 0 GiB"),
    Case("quotas/L-FD6F2F22", lustre(0, 99), "pass", "others use 99"),
    Case("quotas/L-FD6F2F22", lustre(0, 100), "fail", "1 needed, quota 100"),
    Case("quotas/L-DF5E4CA3", interfaces(5000 - 138 + 3), "pass", "35 needed"),
    Case("quotas/L-DF5E4CA3", interfaces(5000 - 138 + 4), "warn", "the groups need 138", "vpc --quota-code L-DF5E4CA3"),
    Case("quotas/L-DF5E4CA3", interfaces(5000 - 35 + 4), "fail", "others use 4,966"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.id} {case.status} {case.text}")
def test_check_judges_awss_answer(prod, case):
    told = ask_one(case.change(prod), case.id, case.answers)
    assert told.status == case.status, told
    assert case.text in told.text
    assert case.fix in told.fix
    assert not aws_commands.fault_of(told.fix), told.fix
    assert bool(told.fix) == (told.status in ("fail", "warn"))


def test_refused_question_neither_passes_nor_fails(prod):
    """All questions but the caller's are refused: for a right first, then with an error of another kind."""
    graph, answers = with_log_group(with_kept(with_cache(prod))), {"sts:GetCallerIdentity": GOOD_CALLER}
    answered_here = {"account/id", "account/deployer", "images/cache"}
    for _ in range(2):
        double = AwsDouble(answers)
        found = look(graph, Account("us-west-2", double.session()), lambda: NOW)
        assert {each.id for each in found.findings if each.status is not Status.NOT_CHECKED} == answered_here
        answers = dict.fromkeys((name for name, _ in double.asked), AwsError("Unforeseen")) | answers


@pytest.mark.parametrize(
    ("instance_type", "on_demand", "spot"),
    [
        ("trn1.32xlarge", "L-2C3B7624", "L-6B0D517C"),
        ("trn9.xlarge", "L-2C3B7624", ""),
        ("p4d.96xlarge", "L-417A185B", "L-7212CCBC"),
        ("r7i.large", "L-1216C47A", "L-34B43A08"),
        *((name, "", "") for name in ("g5.xlarge", "mac2.metal", "hpc7a.96xlarge", "u-6tb1.metal", "x2idn.metal", "")),
    ],
)
def test_types_outside_the_catalogue_share_the_quota_of_their_family(instance_type, on_demand, spot):
    assert (on_demand_quota(instance_type), spot_quota(instance_type)) == (on_demand, spot)


def test_cached_image_need_not_exist_yet(prod):
    assert IMAGE not in Needs(with_cache(prod)).images
    assert "mirror" not in " ".join(Needs(with_cache(prod)).uncached)


def test_rights_are_simulated_for_the_role_and_denied_actions_are_named(prod):
    def simulate(asked):
        denied = ("iam:CreateRole", "fsx:CreateFileSystem")
        decided = {each: "implicitDeny" if each in denied else "allowed" for each in asked["ActionNames"]}
        return {"EvaluationResults": [{"EvalActionName": each, "EvalDecision": decided[each]} for each in decided]}

    told = ask_one(prod, "account/rights", {"iam:SimulatePrincipalPolicy": simulate})
    assert told.status is Status.FAIL
    assert re.fullmatch(r"2 of \d+ actions are denied: fsx:CreateFileSystem, iam:CreateRole", told.text)
    assert "aws cloudformation deploy --stack-name training-bootstrap --template-file " in told.fix
    assert "permissionsBoundary" not in told.fix, "prod sets it"
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


def test_ami_release_passes_by_its_image_when_its_parameter_is_missing(prod):
    names = []

    def images(asked):
        names.extend(asked["Filters"][0]["Values"])
        return {"Images": [{"ImageId": "ami-1"}]}

    assert ask_one(prod, AMI, published() | {"ec2:DescribeImages": images}).status is Status.PASS
    assert "amazon-eks-node-al2023-x86_64-neuron-1.35-v20260930" in names


def test_spot_counts_against_its_quota_and_an_unchanged_one_is_the_default(prod, dev, monkeypatch):
    answers = {
        "service-quotas:GetServiceQuota": AwsError("NoSuchResourceException"),
        "service-quotas:GetAWSDefaultServiceQuota": {"Quota": {"Value": 5.0}},
    }
    assert ask_one(dev, "quotas/L-F678F1CE", answers).text == "1 needed, quota 5, others use 1"
    spot = changed(prod, "trn-prod-cluster-trn1-base-nodes", capacityType="SPOT")
    monkeypatch.setitem(QUOTAS, "L-6B0D517C", 0)
    running = [{"InstanceId": "i-1", "InstanceType": "trn1.2xlarge", "InstanceLifecycle": "spot"}]
    found = ask(spot, {"ec2:DescribeInstances": {"Reservations": [{"Instances": running}]}})
    told = of(found, "quotas/L-6B0D517C")
    assert told.status is Status.FAIL
    assert "512 vCPUs needed, quota 0, others use 8: room for 0 nodes" in told.text
    assert not [each for each in found.findings if each.id == "quotas/L-2C3B7624"]


def test_foreign_program_is_checked_for_its_own_resources():
    provider = Resource("u", "pulumi:providers:aws", "aws", inputs={"region": "us-west-2"})
    vpc = Resource("v", "aws:ec2/vpc:Vpc", "vpc", inputs={"cidrBlock": "10.0.0.0/16"})
    found = ask(Graph("p", "s", (provider, vpc), {}))
    ids = [each.id for each in found.findings]
    assert ids == ["account/id", "account/region", "account/rights", "quotas/L-F678F1CE"]


HOST = "0123.gr7.us-west-2.eks.amazonaws.com"


def api(graph, answers, why=""):
    present = AccountState(Needs(graph), Account("us-west-2", AwsDouble({**GOOD, **answers}).session()))
    [question] = reach.questions(present, lambda host: why if host == HOST else "another host")
    return answered(question)


def test_host_is_reached_or_its_error_is_reported(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(reach, "HTTPS", server.getsockname()[1])
        assert reach._connect("127.0.0.1") == ""
    assert "refused" in reach._connect("127.0.0.1")


def test_machine_outside_the_allowed_ranges_is_warned_before_up(prod, dev):
    told = api(prod, {})
    assert (told.status, "10.200.0.0/16, 10.32.0.0/16" in told.text) == (Status.WARN, True)
    assert "Production from nothing" in told.fix
    # The loopback's range represents the VPC that this machine is in.
    inside = changed(prod, "trn-prod-cluster-api-from-vpc", cidrIpv4="127.0.0.0/8")
    assert api(inside, {}).status is Status.PASS
    assert api(dev, {}).status is Status.PASS


def test_unreachable_api_is_a_failure(prod, dev, monkeypatch):
    def judge_api(graph, why):
        name, tags = f"trn-{graph.stack}-cluster-eks-0a1b2c3", {**OWN, "Environment": graph.stack}
        return api(graph, clusters(name, tags=tags, endpoint=f"https://{HOST}"), why)

    for variable in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.delenv(variable, raising=False)
    assert judge_api(prod, "").status is Status.PASS
    for graph, remedy in ((prod, "on a machine in the VPC"), (dev, "cluster.endpoint.publicAccessCidrs")):
        assert judge_api(graph, "timed out").status is Status.FAIL
        assert remedy in judge_api(graph, "timed out").fix
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    for why in ("", "timed out"):
        assert (judge_api(prod, why).status, "a proxy" in judge_api(prod, why).text) == (Status.NOT_CHECKED, True)


def pooled(prod, *reservations):
    """Production with a pool of at most two inf2.48xlarge in the zone of its node groups."""
    own = next(each for each in ADOPTED.values() if each["AvailabilityZoneId"] == "usw2-az4")
    terms = {"subnetSelectorTerms": [{"id": own["SubnetId"]}]}
    terms["capacityReservationSelectorTerms"] = [{"id": each} for each in reservations]
    only = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["inf2.48xlarge"]}
    template = {"spec": {"requirements": [only], "nodeClassRef": {"name": "inference"}}}
    specs = {
        "karpenter.k8s.aws/v1:EC2NodeClass": terms,
        "karpenter.sh/v1:NodePool": {"template": template, "limits": {"cpu": 384}},
    }
    made = (
        Resource(kind, f"kubernetes:{kind}", kind, inputs={"metadata": {"name": "inference"}, "spec": spec})
        for kind, spec in specs.items()
    )
    config = {**prod.config, "autoscaling": {"karpenter": {"acceleratorPools": [{"name": "inference"}]}}}
    return replace(prod, resources=(*prod.resources, *made), config=config)


def test_karpenter_pools_count_at_their_maximum_without_their_own_nodes(prod):
    def judge_quota(**tags):
        node = {"InstanceType": "inf2.48xlarge", "Tags": listed({"karpenter.sh/nodepool": "inference", **tags})}
        quota = {"service-quotas:GetServiceQuota": {"Quota": {"Value": 200.0}}}
        running = {"ec2:DescribeInstances": {"Reservations": [{"Instances": [node]}]}}
        return ask_one(pooled(prod), "quotas/L-1945791B", clusters(CLUSTER) | quota | running)

    own = judge_quota(**{f"kubernetes.io/cluster/{CLUSTER}": "owned"})
    assert own.status is Status.WARN
    assert own.text.startswith("0 vCPUs needed, quota 200, others use 0; at their largest sizes the groups need 384")
    assert "inference 2 x 192" in own.text
    assert "others use 192" in judge_quota().text


def test_pools_type_is_checked_in_its_zone_with_its_reservation(prod):
    told = ask_one(pooled(prod), "capacity/inf2.48xlarge", offered("usw2-az1"))
    assert (told.status, told.text) == (Status.FAIL, "not offered in usw2-az4; offered in usw2-az1")
    assert "autoscaling.karpenter.acceleratorPools[0].zoneId" in told.fix
    one = {
        "InstanceType": "inf2.48xlarge",
        "AvailabilityZoneId": "usw2-az4",
        "TotalInstanceCount": 1,
        "State": "active",
    }
    unset = "set autoscaling.karpenter.acceleratorPools[0].capacityReservationIds"
    for reservations, status, remedy in (([], Status.FAIL, unset), ([one], Status.WARN, "maxNodes")):
        answer = {"ec2:DescribeCapacityReservations": {"CapacityReservations": reservations}}
        told = ask_one(pooled(prod, "cr-0fedcba9876543210"), "capacity/cr-0fedcba9876543210", answer)
        assert told.status is status
        assert remedy in told.fix
