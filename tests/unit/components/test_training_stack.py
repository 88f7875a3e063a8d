"""TrainingStack: what it adds to the components it composes."""

from collections.abc import Callable
from typing import Any

import pytest

from components import ArgumentError, TrainingStack, read_config
from trainium_eks.graph.graph import Graph, Resource
from trainium_eks.model import node_groups
from trainium_eks.model.problems import Problem

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


def test_defaults_are_the_blueprint(record: Record) -> None:
    graph = record(lambda: TrainingStack("trn-dev", CONFIG))
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
    judge = node_groups.problems

    def counted(group: node_groups.NodeGroupConfig, **rest: Any) -> list[Problem]:
        judged.append(group.name)
        return judge(group, **rest)

    monkeypatch.setattr(node_groups, "problems", counted)

    def program() -> None:
        config = read_config()
        TrainingStack("trn-dev", config)

    values = {f"trainium-eks:{key}": text for key, text in CONFIG_TEXT.items()}
    record(program, project="trainium-eks", config=values)
    assert judged == ["trn1-32xl-ng1", "trn1n-32xl-ng"]
