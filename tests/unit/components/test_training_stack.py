"""TrainingStack: what it adds to the components it composes."""

import json
from collections.abc import Callable
from typing import Any

import pulumi
import pytest

from components import ArgumentError, TrainingStack, read_config
from trainium_eks.model.config import node_groups
from trainium_eks.model.outputs import SageMakerOutput
from trainium_eks.model.validation.problems import Problem
from trainium_eks.plan.graph import Graph, Resource

Record = Callable[..., Graph]

CLAIM = "kubernetes:core/v1:PersistentVolumeClaim"
VOLUME = "kubernetes:core/v1:PersistentVolume"

CONFIG: dict[str, Any] = {
    "region": "us-west-2",
    "owner": "me",
    "allowed_account_ids": ["111122223333"],
    "cluster": {"endpoint": {"public_access_cidrs": ["203.0.113.0/24"]}},
}

CONFIG_TEXT = {
    "region": "us-west-2",
    "owner": "me",
    "allowedAccountIds": '["111122223333"]',
    "cluster": '{"endpoint": {"publicAccessCidrs": ["203.0.113.0/24"]}}',
}
"""The same, as Pulumi hands it to a program."""


@pytest.fixture(scope="module")
def blueprint(record: Record) -> Graph:
    """A stack of defaults, recorded once."""
    return record(lambda: TrainingStack("trn-dev", CONFIG))


def one(graph: Graph, type_: str) -> Resource:
    (found,) = graph.of_type(type_)
    return found


def test_defaults_are_the_blueprint(blueprint: Graph) -> None:
    graph = blueprint
    groups = {each.inputs["labels"]["trainium-eks/pool"] for each in graph.of_type("aws:eks/nodeGroup:NodeGroup")}
    assert groups == {"system", "cpu", "trn1-32xl-ng1", "trn1n-32xl-ng"}


@pytest.mark.parametrize("name", ["trn-Dev", "trn_dev", "1dev", "dev-"])
def test_a_name_that_buckets_and_kubernetes_refuse_is_refused_first(record: Record, name: str) -> None:
    with pytest.raises(ArgumentError, match="lower-case letters, digits and dashes"):
        record(lambda: TrainingStack(name, CONFIG))


def test_neither_file_system_nor_repository_when_they_are_null(record: Record) -> None:
    graph = record(lambda: TrainingStack("trn-dev", {**CONFIG, "file_system": None, "image_repository": None}))
    assert graph.of_type("aws:fsx/lustreFileSystem:LustreFileSystem", "aws:ecr/repository:Repository") == ()
    assert graph.of_type("kubernetes:core/v1:PersistentVolume", "kubernetes:core/v1:PersistentVolumeClaim") == ()


def test_one_efa_plugin_serves_trainium_and_gpu_groups(record: Record) -> None:
    groups = [
        {"name": "trn1", "instance_type": "trn1.32xlarge"},
        {"name": "p4d", "instance_type": "p4d.24xlarge", "zone_id": "usw2-az4"},
    ]
    graph = record(lambda: TrainingStack("trn-dev", {**CONFIG, "node_groups": groups, "waivers": {}}))
    releases = [each.inputs for each in graph.of_type("kubernetes:helm.sh/v3:Release")]
    [plugin] = [each for each in releases if each["chart"] == "aws-efa-k8s-device-plugin"]
    assert {"trn1.32xlarge", "p4d.24xlarge"} <= set(plugin["values"]["supportedInstanceLabels"]["values"])
    assert {"nvidia-device-plugin"} <= {each["chart"] for each in releases}
    operator = one(graph, "kubernetes:kustomize/v2:Directory")
    assert operator.inputs["directory"].endswith("/training-operator-volcano"), "PyTorchJobs are no gangs"


def test_the_tools_are_told_no_size_that_is_managed_elsewhere(record: Record) -> None:
    groups = [
        {"name": "fixed", "instance_type": "trn1.32xlarge"},
        {"name": "scaled", "instance_type": "trn1.32xlarge", "ignore_desired_size": True},
    ]

    def program() -> None:
        exports = TrainingStack("trn-dev", {**CONFIG, "node_groups": groups}).exports()
        pulumi.export("nodeGroups", exports["nodeGroups"])

    sizes = {each["name"]: each["desiredSize"] for each in record(program).outputs["nodeGroups"]}
    assert sizes["scaled"] is None
    assert sizes["fixed"] is not None


@pytest.mark.parametrize(("durability", "makes_bucket"), [({"type": "backup"}, True), ({"type": "s3"}, False)])
def test_sagemaker_has_the_stack_s_network_key_and_bucket_and_the_tools_read_it(
    record: Record, durability: dict[str, str], makes_bucket: bool
) -> None:
    image = "111122223333.dkr.ecr.us-west-2.amazonaws.com/t:1"
    entry = {"name": "reviews", "model": "a/model.tar.gz", "image": image, "instance_type": "ml.inf2.xlarge"}
    sections = {"file_system": {"durability": durability}, "sage_maker": {}, "sage_maker_endpoints": [entry]}
    config = {**CONFIG, **sections}

    def program() -> None:
        pulumi.export("sageMaker", TrainingStack("trn-dev", config).exports()["sageMaker"])

    graph = record(program)
    found = SageMakerOutput.model_validate(graph.outputs["sageMaker"])
    [bucket] = graph.of_type("aws:s3/bucket:Bucket")
    assert (found.bucket, "sagemaker" in bucket.name) == (bucket.outputs["bucket"], makes_bucket)
    private = {each.outputs["id"] for each in graph.of_type("aws:ec2/subnet:Subnet") if "private" in each.name}
    assert set(found.subnet_ids) == private
    [key] = graph.of_type("aws:kms/key:Key")
    assert found.kms_key_arn == key.outputs["arn"]
    model = one(graph, "aws:sagemaker/model:Model").inputs
    assert model["primaryContainer"]["modelDataUrl"] == f"s3://{found.bucket}/a/model.tar.gz"
    assert set(model["vpcConfig"]["subnets"]) == private
    assert one(graph, "aws:sagemaker/endpoint:Endpoint").inputs["name"] == "trn-dev-reviews"


def test_a_first_mount_waits_for_the_rules_that_let_the_nodes_in_and_claims_for_the_directories(record: Record) -> None:
    graph = record(lambda: TrainingStack("trn-dev", CONFIG))
    rules = {
        each.urn
        for each in graph.of_type(
            "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
            "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule",
        )
        if each.name.startswith(("trn-dev-fsx-from-cluster", "trn-dev-fsx-on-cluster"))
    }
    assert len(rules) == 8
    (job,) = graph.of_type("kubernetes:batch/v1:Job")
    assert rules <= upstream(graph, job)
    claims = {each.inputs["metadata"]["namespace"]: each for each in graph.of_type(CLAIM)}
    assert job.urn in upstream(graph, claims["training"])
    assert claims["training"].inputs["spec"]["storageClassName"] == "fsx-shared"


def test_teams_lie_in_the_directory_that_is_linked_to_s3(record: Record) -> None:
    storage = {"durability": {"type": "s3", "prefix": "runs", "file_system_path": "/linked"}}
    graph = record(lambda: TrainingStack("trn-dev", {**CONFIG, "file_system": storage}))
    mounts = [each.inputs["spec"]["csi"]["volumeAttributes"]["mountname"] for each in graph.of_type(VOLUME)]
    assert sorted(mount.partition("/")[2] for mount in mounts) == ["", "linked/training"]
    policies = [str(each.inputs["policy"]) for each in graph.of_type("aws:iam/rolePolicy:RolePolicy")]
    assert [each for each in policies if "/runs/training/*" in each]


def upstream(graph: Graph, resource: Resource) -> set[str]:
    """URNs of all that a resource waits for; it is registered only after the component that it is in."""
    found: set[str] = set()
    left = [resource.urn]
    while left:
        here = graph.by_urn[left.pop()]
        for urn in (*here.dependencies, here.parent):
            if urn and urn not in found:
                found.add(urn)
                left.append(urn)
    return found


def test_a_given_bucket_is_the_one_that_teams_may_use(record: Record) -> None:
    storage = {"durability": {"type": "s3", "bucket": "my-checkpoints", "prefix": "runs"}}
    graph = record(lambda: TrainingStack("trn-dev", {**CONFIG, "file_system": storage}))
    policies = [str(each.inputs["policy"]) for each in graph.of_type("aws:iam/rolePolicy:RolePolicy")]
    assert [each for each in policies if "arn:aws:s3:::my-checkpoints/runs/training" in each]
    assert graph.of_type("aws:s3/bucket:Bucket") == ()


BOUNDARY = "arn:aws:iam::111122223333:policy/trn-boundary"


def test_every_role_of_an_environment_carries_its_boundary(record: Record) -> None:
    storage = {"durability": {"type": "s3"}}
    config = {**CONFIG, "file_system": storage, "permissions_boundary": BOUNDARY}
    roles = record(lambda: TrainingStack("trn-dev", config)).of_type("aws:iam/role:Role")
    assert len(roles) >= 7
    assert [each.name for each in roles if each.inputs.get("permissionsBoundary") != BOUNDARY] == []


def test_two_environments_side_by_side_share_nothing(record: Record) -> None:
    def program() -> None:
        TrainingStack("trn-one", CONFIG)
        TrainingStack("trn-two", CONFIG)

    graph = record(program)
    for first in (each for each in graph.resources if "trn-one" in each.urn):
        assert not [urn for urn in first.dependencies if "trn-two" in urn]


def test_each_group_is_judged_once(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[str] = []
    judge = node_groups.validate

    def counted(group: node_groups.NodeGroupConfig, **rest: Any) -> list[Problem]:
        judged.append(group.name)
        return judge(group, **rest)

    monkeypatch.setattr(node_groups, "validate", counted)

    def program() -> None:
        config = read_config()
        TrainingStack("trn-dev", config)

    values = {f"trainium-eks:{key}": text for key, text in CONFIG_TEXT.items()}
    record(program, project="trainium-eks", config=values)
    assert judged == ["trn1-32xl-ng1", "trn1n-32xl-ng"]


def test_all_that_lives_in_kubernetes_goes_by_the_clusters_own_provider(blueprint: Graph) -> None:
    (provider,) = (each for each in blueprint.of_type("pulumi:providers:kubernetes") if "kubernetes" in each.name)
    inside = [each for each in blueprint.resources if each.type.startswith("kubernetes:")]
    assert len(inside) > 20
    assert [each.name for each in inside if each.provider != provider.urn] == []


def test_charts_and_queues_wait_for_system_nodes_and_names(blueprint: Graph) -> None:
    (nodes,) = (each for each in blueprint.of_type("aws:eks/nodeGroup:NodeGroup") if "system" in each.name)
    (names,) = (each for each in blueprint.of_type("aws:eks/addon:Addon") if each.inputs["addonName"] == "coredns")
    releases = blueprint.of_type("kubernetes:helm.sh/v3:Release")
    assert releases
    for release in releases:
        assert {nodes.urn, names.urn} <= upstream(blueprint, release), release.name


def test_nodes_wait_for_the_ways_out(blueprint: Graph) -> None:
    ways = {each.urn for each in blueprint.of_type("aws:ec2/route:Route", "aws:ec2/vpcEndpoint:VpcEndpoint")}
    for group in blueprint.of_type("aws:eks/nodeGroup:NodeGroup"):
        assert ways <= upstream(blueprint, group), group.name


def test_the_first_mount_waits_for_the_file_system_to_let_the_nodes_in(blueprint: Graph) -> None:
    rules = {
        each.urn
        for each in blueprint.of_type(
            "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
            "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule",
        )
        if "cluster-in" in each.name or "cluster-out" in each.name
    }
    # Two ranges of ports, both ways, on both sides.
    assert len(rules) == 8
    assert rules <= upstream(blueprint, one(blueprint, "kubernetes:batch/v1:Job"))


def test_an_environment_has_one_key(blueprint: Graph) -> None:
    key = one(blueprint, "aws:kms/key:Key").outputs["arn"]
    repository = one(blueprint, "aws:ecr/repository:Repository")
    assert repository.inputs["encryptionConfigurations"] == [{"encryptionType": "KMS", "kmsKey": key}]
    assert one(blueprint, "aws:fsx/lustreFileSystem:LustreFileSystem").inputs["kmsKeyId"] == key


def test_what_node_groups_launch_has_the_environments_tags(blueprint: Graph) -> None:
    for template in blueprint.of_type("aws:ec2/launchTemplate:LaunchTemplate"):
        for launched in template.inputs["tagSpecifications"]:
            assert launched["tags"].get("Owner", launched["tags"].get("owner")) == "me", template.name


def test_teams_have_a_claim_of_the_shared_file_system(blueprint: Graph) -> None:
    claims = blueprint.of_type("kubernetes:core/v1:PersistentVolumeClaim")
    assert {"training"} <= {each.inputs["metadata"]["namespace"] for each in claims}


def test_directories_of_teams_lie_in_what_is_linked_to_s3(record: Record) -> None:
    storage = {"durability": {"type": "s3", "file_system_path": "/linked"}}
    graph = record(lambda: TrainingStack("trn-dev", {**CONFIG, "file_system": storage}))
    (volume,) = (
        each
        for each in graph.of_type("kubernetes:core/v1:PersistentVolume")
        if each.inputs["spec"]["claimRef"]["namespace"] == "training"
    )
    assert volume.inputs["spec"]["csi"]["volumeAttributes"]["mountname"].endswith("/linked/training")


def test_what_holds_data_is_protected_in_production_and_so_is_the_control_plane(record: Record) -> None:
    production = {"production": True, "network": {"nat_gateways": "per-zone"}}
    graph = record(lambda: TrainingStack("trn-prod", {**CONFIG, **production}))
    for type_ in ("aws:fsx/lustreFileSystem:LustreFileSystem", "aws:eks/cluster:Cluster"):
        assert one(graph, type_).options.protect, type_


def test_a_private_api_is_reached_from_the_vpc(record: Record) -> None:
    """In a VPC of its own only after the first `up`, which a waiver says."""
    waived = {"R91": {"reason": "the runner i-0123 is in the VPC", "expires": "2027-10-31"}}
    private = {"cluster": {"endpoint": {"private_access_via": "vpc"}}, "waivers": waived}
    graph = record(lambda: TrainingStack("trn-dev", {**CONFIG, **private}))
    rules = graph.of_type("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule")
    (rule,) = (each for each in rules if each.name.endswith("-api-from-vpc"))
    assert rule.inputs["cidrIpv4"] == one(graph, "aws:ec2/vpc:Vpc").inputs["cidrBlock"]


def test_a_rendezvous_by_etcd_is_open_to_the_teams(record: Record) -> None:
    graph = record(lambda: TrainingStack("trn-dev", {**CONFIG, "volcano": {"rendezvous": "etcd"}}))
    policies = graph.of_type("kubernetes:networking.k8s.io/v1:NetworkPolicy")
    inside = [each.inputs["metadata"] for each in policies]
    assert ("training", "rendezvous") in {(each["namespace"], each["name"]) for each in inside}


def test_the_idle_guard_takes_nodes_only_where_the_size_is_nobody_elses_and_paid_by_the_hour(record: Record) -> None:
    block = {"type": "capacity-block", "id": "cr-0123456789abcdef0", "zone_id": "usw2-az4"}
    groups = [
        {"name": "fixed", "instance_type": "trn1.32xlarge"},
        {
            "name": "scaled",
            "instance_type": "trn1.32xlarge",
            "ignore_desired_size": True,
            "min_size": 1,
            "desired_size": 1,
        },
        {"name": "block", "instance_type": "trn1.32xlarge", "ignore_desired_size": True, "capacity": block},
    ]
    graph = record(
        lambda: TrainingStack("trn-dev", {**CONFIG, "node_groups": groups, "idle_guard": {}}) and None, dry_run=False
    )
    runs = one(graph, "kubernetes:batch/v1:CronJob").inputs["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    told = next(each["value"] for each in runs["initContainers"][0]["env"] if each["name"] == "SETTINGS")
    guarded = json.loads(told)["groups"]
    assert sorted((each["minimum"], each["removes"]) for each in guarded.values()) == [
        (0, False),
        (0, False),
        (1, True),
    ]


def test_mails_about_spending_count_what_carries_the_environments_tag(record: Record) -> None:
    alert = {"monthly_usd": 9000, "emails": ["ops@example.com"]}
    graph = record(lambda: TrainingStack("trn-dev", {**CONFIG, "budget": {"alert": alert}}) and None)
    budget = one(graph, "aws:budgets/budget:Budget").inputs
    assert (budget["limitAmount"], budget["timeUnit"]) == ("9000.00", "MONTHLY")
    assert budget["costFilters"] == [{"name": "TagKeyValue", "values": ["user:Environment$test"]}]
    told = [(each["threshold"], each["notificationType"]) for each in budget["notifications"]]
    assert told == [(50, "ACTUAL"), (80, "ACTUAL"), (100, "ACTUAL"), (100, "FORECASTED")]
