"""TrainingStack: what it adds to the components it composes."""

import json
from typing import Any

import pulumi
import pytest
from unit.components.parts import IAM_ROLE, STACK, Record, of_kind, one

from components import ArgumentError, TrainingStack, read_config
from trainium_eks.model.config import node_groups
from trainium_eks.model.outputs import SageMakerOutput
from trainium_eks.model.validation.problems import Problem

CONFIG_TEXT = {
    "region": "us-west-2",
    "owner": "me",
    "allowedAccountIds": '["111122223333"]',
    "cluster": '{"endpoint": {"publicAccessCidrs": ["203.0.113.0/24"]}}',
}
"""The same, as Pulumi hands it to a program."""


@pytest.mark.parametrize("name", ["trn-Dev", "trn_dev", "1dev", "dev-"])
def test_a_name_that_buckets_and_kubernetes_refuse_is_refused_first(record: Record, name: str) -> None:
    with pytest.raises(ArgumentError, match="lower-case letters, digits and dashes"):
        record(lambda: TrainingStack(name, STACK))


def test_neither_file_system_nor_repository_when_they_are_null(record: Record) -> None:
    graph = record(lambda: TrainingStack("trn-dev", {**STACK, "file_system": None, "image_repository": None}))
    assert of_kind(graph, "LustreFileSystem", "Repository") == ()
    assert of_kind(graph, "PersistentVolume", "PersistentVolumeClaim") == ()


def test_one_efa_plugin_serves_trainium_and_gpu_groups(record: Record) -> None:
    groups = [
        {"name": "trn1", "instance_type": "trn1.32xlarge"},
        {"name": "p4d", "instance_type": "p4d.24xlarge", "zone_id": "usw2-az4"},
    ]
    graph = record(lambda: TrainingStack("trn-dev", {**STACK, "node_groups": groups, "waivers": {}}))
    releases = [each.inputs for each in of_kind(graph, "Release")]
    [plugin] = [each for each in releases if each["chart"] == "aws-efa-k8s-device-plugin"]
    assert {"trn1.32xlarge", "p4d.24xlarge"} <= set(plugin["values"]["supportedInstanceLabels"]["values"])
    assert {"nvidia-device-plugin"} <= {each["chart"] for each in releases}
    operator = one(graph, "Directory")
    assert operator.inputs["directory"].endswith("/training-operator-volcano"), "PyTorchJobs are no gangs"


def test_the_tools_are_told_no_size_that_is_managed_elsewhere(record: Record) -> None:
    groups = [
        {"name": "fixed", "instance_type": "trn1.32xlarge"},
        {"name": "scaled", "instance_type": "trn1.32xlarge", "ignore_desired_size": True},
    ]

    def program() -> None:
        exports = TrainingStack("trn-dev", {**STACK, "node_groups": groups}).exports()
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
    config = {**STACK, **sections}

    def program() -> None:
        pulumi.export("sageMaker", TrainingStack("trn-dev", config).exports()["sageMaker"])

    graph = record(program)
    found = SageMakerOutput.model_validate(graph.outputs["sageMaker"])
    [bucket] = of_kind(graph, "Bucket")
    assert (found.bucket, "sagemaker" in bucket.name) == (bucket.outputs["bucket"], makes_bucket)
    private = {each.outputs["id"] for each in of_kind(graph, "Subnet") if "private" in each.name}
    assert set(found.subnet_ids) == private
    [key] = of_kind(graph, "Key")
    assert found.kms_key_arn == key.outputs["arn"]
    model = one(graph, "Model").inputs
    assert model["primaryContainer"]["modelDataUrl"] == f"s3://{found.bucket}/a/model.tar.gz"
    assert set(model["vpcConfig"]["subnets"]) == private
    assert one(graph, "Endpoint").inputs["name"] == "trn-dev-reviews"


def test_teams_lie_in_the_directory_that_is_linked_to_s3(record: Record) -> None:
    storage = {"durability": {"type": "s3", "prefix": "runs", "file_system_path": "/linked"}}
    graph = record(lambda: TrainingStack("trn-dev", {**STACK, "file_system": storage}))
    mounts = [
        each.inputs["spec"]["csi"]["volumeAttributes"]["mountname"] for each in of_kind(graph, "PersistentVolume")
    ]
    assert sorted(mount.partition("/")[2] for mount in mounts) == ["", "linked/training"]
    policies = [str(each.inputs["policy"]) for each in of_kind(graph, "RolePolicy")]
    assert [each for each in policies if "/runs/training/*" in each]


def test_a_given_bucket_is_the_one_that_teams_may_use(record: Record) -> None:
    storage = {"durability": {"type": "s3", "bucket": "my-checkpoints", "prefix": "runs"}}
    graph = record(lambda: TrainingStack("trn-dev", {**STACK, "file_system": storage}))
    policies = [str(each.inputs["policy"]) for each in of_kind(graph, "RolePolicy")]
    assert [each for each in policies if "arn:aws:s3:::my-checkpoints/runs/training" in each]
    assert of_kind(graph, "Bucket") == ()


BOUNDARY = "arn:aws:iam::111122223333:policy/trn-boundary"


def test_every_role_of_an_environment_carries_its_boundary(record: Record) -> None:
    storage = {"durability": {"type": "s3"}}
    config = {**STACK, "file_system": storage, "permissions_boundary": BOUNDARY}
    roles = of_kind(record(lambda: TrainingStack("trn-dev", config)), IAM_ROLE)
    assert len(roles) >= 7
    assert [each.name for each in roles if each.inputs.get("permissionsBoundary") != BOUNDARY] == []


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


def test_the_idle_guard_takes_nodes_only_where_the_size_is_nobody_elses_and_paid_by_the_hour(record: Record) -> None:
    scaled = {"instance_type": "trn1.32xlarge", "ignore_desired_size": True}
    block = {"type": "capacity-block", "id": "cr-0123456789abcdef0", "zone_id": "usw2-az4"}
    groups = [
        {"name": "fixed", "instance_type": "trn1.32xlarge"},
        {**scaled, "name": "scaled", "min_size": 1, "desired_size": 1},
        {**scaled, "name": "block", "capacity": block},
    ]
    graph = record(
        lambda: TrainingStack("trn-dev", {**STACK, "node_groups": groups, "idle_guard": {}}) and None, dry_run=False
    )
    runs = one(graph, "CronJob").inputs["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    told = next(each["value"] for each in runs["initContainers"][0]["env"] if each["name"] == "SETTINGS")
    guarded = json.loads(told)["groups"]
    found = sorted((each["minimum"], each["removes"]) for each in guarded.values())
    assert found == [(0, False), (0, False), (1, True)]


def test_mails_about_spending_count_what_carries_the_environments_tag(record: Record) -> None:
    alert = {"monthly_usd": 9000, "emails": ["ops@example.com"]}
    graph = record(lambda: TrainingStack("trn-dev", {**STACK, "budget": {"alert": alert}}) and None)
    budget = one(graph, "Budget").inputs
    assert (budget["limitAmount"], budget["timeUnit"]) == ("9000.00", "MONTHLY")
    assert budget["costFilters"] == [{"name": "TagKeyValue", "values": ["user:Environment$test"]}]
    told = [(each["threshold"], each["notificationType"]) for each in budget["notifications"]]
    assert told == [(50, "ACTUAL"), (80, "ACTUAL"), (100, "ACTUAL"), (100, "FORECASTED")]
