"""TrainingStack: what it adds to the components it composes."""

import json

import pulumi
import pytest
from unit.components.parts import IAM_ROLE, STACK, of_kind, one, recorder, releases

from components import ArgumentError, TrainingStack, read_config
from trainium_eks.model.config import node_groups
from trainium_eks.model.outputs import NodeGroupOutput, SageMakerOutput

ZONE, BOUNDARY = "usw2-az4", "arn:aws:iam::111122223333:policy/trn-boundary"
built = recorder(TrainingStack, "trn-dev", STACK)


def policies(graph):
    return [str(each.inputs["policy"]) for each in of_kind(graph, "RolePolicy")]


def test_invalid_name_is_refused_first_and_null_sections_make_nothing(record):
    for name in ("trn-Dev", "trn_dev", "1dev", "dev-"):
        with pytest.raises(ArgumentError, match="lower-case letters, digits and dashes"):
            record(lambda: TrainingStack(name, STACK))  # noqa: B023
    graph = built(record, file_system=None, image_repository=None)
    assert of_kind(graph, "LustreFileSystem", "Repository", "PersistentVolume", "PersistentVolumeClaim") == ()


def test_one_efa_plugin_serves_trainium_and_gpu_groups(record):
    types = {"trn1.32xlarge", "p4d.24xlarge"}
    graph = built(record, node_groups=[{"name": each[:3], "instance_type": each, "zone_id": ZONE} for each in types])
    found = releases(graph)
    plugins = [each for each in found.values() if each.inputs["chart"] == "aws-efa-k8s-device-plugin"]
    assert [set(each.inputs["values"]["supportedInstanceLabels"]["values"]) for each in plugins] == [types]
    assert "nvidia-device-plugin" in found
    operator = one(graph, "Directory")
    assert operator.inputs["directory"].endswith("/training-operator-volcano"), "PyTorchJobs are no gangs"


@pytest.mark.parametrize(("durability", "makes_bucket"), [("backup", True), ("s3", False)])
def test_sagemaker_uses_the_stacks_network_key_and_bucket(record, durability, makes_bucket):
    image = "111122223333.dkr.ecr.us-west-2.amazonaws.com/t:1"
    entry = {"name": "reviews", "model": "a/model.tar.gz", "image": image, "instance_type": "ml.inf2.xlarge"}
    sections = {"file_system": {"durability": {"type": durability}}, "sage_maker": {}, "sage_maker_endpoints": [entry]}

    def program():
        pulumi.export("sageMaker", TrainingStack("trn-dev", {**STACK, **sections}).exports()["sageMaker"])

    graph = record(program)
    found = SageMakerOutput.model_validate(graph.outputs["sageMaker"])
    bucket, model = one(graph, "Bucket"), one(graph, "Model").inputs
    assert (found.bucket, "sagemaker" in bucket.name) == (bucket.outputs["bucket"], makes_bucket)
    private = {each.outputs["id"] for each in of_kind(graph, "Subnet") if "private" in each.name}
    assert set(found.subnet_ids) == set(model["vpcConfig"]["subnets"]) == private
    assert found.kms_key_arn == one(graph, "Key").outputs["arn"]
    assert model["primaryContainer"]["modelDataUrl"] == f"s3://{found.bucket}/a/model.tar.gz"
    assert one(graph, "Endpoint").inputs["name"] == "trn-dev-reviews"


def test_team_directories_are_linked_to_s3_and_every_role_has_the_boundary(record):
    storage = {"durability": {"type": "s3", "prefix": "runs", "file_system_path": "/linked"}}
    graph = built(record, file_system=storage, permissions_boundary=BOUNDARY)
    specs = [each.inputs["spec"]["csi"]["volumeAttributes"] for each in of_kind(graph, "PersistentVolume")]
    assert sorted(each["mountname"].partition("/")[2] for each in specs) == ["", "linked/training"]
    assert [each for each in policies(graph) if "/runs/training/*" in each]
    roles = of_kind(graph, IAM_ROLE)
    assert len(roles) >= 7
    assert [each.name for each in roles if each.inputs.get("permissionsBoundary") != BOUNDARY] == []
    # A given bucket is the one that teams may use.
    durability = {"type": "s3", "bucket": "my-checkpoints", "prefix": "runs"}
    graph = built(record, file_system={"durability": durability})
    assert [each for each in policies(graph) if "arn:aws:s3:::my-checkpoints/runs/training" in each]
    assert of_kind(graph, "Bucket") == ()


ALL, NO_CHOICE = "must take all devices of its node, 16 aws.amazon.com/neuron of trn1.32xlarge", "must not choose which"


@pytest.mark.parametrize(
    ("parts", "said", "levels"),
    [([None], "", 0), ([False], ALL, 1), ([None, None], ALL, 2), ([True, None], NO_CHOICE, 2)],
)
def test_teams_sharing_nodes_use_whole_ones_and_are_rate_limited(record, parts, said, levels):
    teams = [
        {"name": f"team{user}", "queues": [f"q{user}"], "training_user_id": user, "partial_nodes": part}
        for user, part in enumerate(parts, 1)
    ]
    sections = {"queues": [{"name": each["queues"][0]} for each in teams], "namespaces": teams}

    def program():
        pulumi.export("namespaces", TrainingStack("trn-dev", {**STACK, **sections}).exports()["namespaces"])

    graph = record(program)
    pods = one(graph, "ValidatingAdmissionPolicy", "team1-admission-pods").inputs
    messages = " ".join(each["message"] for each in pods["spec"]["validations"])
    assert [each for each in (ALL, NO_CHOICE) if each in messages] == [each for each in (said,) if each]
    assert graph.outputs["namespaces"][0]["wholeNodes"] is (said is ALL)
    assert len(of_kind(graph, "PriorityLevelConfiguration")) == levels
    for number, schema in enumerate(of_kind(graph, "FlowSchema"), 1):
        spec, [rules] = schema.inputs["spec"], schema.inputs["spec"]["rules"]
        group, accounts = rules["subjects"]
        assert group["group"]["name"] == f"trainium-eks:team{number}:researchers"
        assert accounts["serviceAccount"] == {"namespace": f"team{number}", "name": "*"}
        assert spec["priorityLevelConfiguration"]["name"] == f"trainium-eks-team{number}"


def test_each_group_is_judged_once(record, monkeypatch):
    judged = []
    judge = node_groups.validate
    monkeypatch.setattr(node_groups, "validate", lambda each, **rest: judged.append(each.name) or judge(each, **rest))

    def program():
        TrainingStack("trn-dev", read_config())

    text = {"region": "us-west-2", "owner": "me", "allowedAccountIds": '["111122223333"]'}
    text["cluster"] = '{"endpoint": {"publicAccessCidrs": ["203.0.113.0/24"]}}'
    values = {f"trainium-eks:{key}": value for key, value in text.items()}
    record(program, project="trainium-eks", config=values)
    assert judged == ["trn1-32xl-ng1", "trn1n-32xl-ng"]


def test_idle_guard_removes_only_hourly_nodes_of_unmanaged_size(record):
    fixed = {"name": "fixed", "instance_type": "trn1.32xlarge", "desired_size": 1}
    scaled = {**fixed, "name": "scaled", "ignore_desired_size": True}
    block = {"type": "capacity-block", "id": "cr-0123456789abcdef0", "zone_id": ZONE}
    groups = [fixed, {**scaled, "min_size": 1, "desired_size": 1}, {**scaled, "name": "block", "capacity": block}]

    def program():
        exports = TrainingStack("trn-dev", {**STACK, "node_groups": groups, "idle_guard": {}}).exports()
        pulumi.export("nodeGroups", exports["nodeGroups"])

    graph = record(program, dry_run=False)
    # The tools get no size that is managed elsewhere.
    sizes = {each["name"]: each["desiredSize"] for each in graph.outputs["nodeGroups"]}
    assert sizes == {"fixed": 1, "scaled": None, "block": None}
    placed = {each["name"]: bool(each["placementGroup"]) for each in graph.outputs["nodeGroups"]}
    assert placed == {"fixed": True, "scaled": True, "block": False}
    runs = one(graph, "CronJob").inputs["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    told = next(each["value"] for each in runs["initContainers"][0]["env"] if each["name"] == "SETTINGS")
    guarded = json.loads(told)["groups"].values()
    assert sorted((each["minimum"], each["removes"]) for each in guarded) == [(0, False), (0, False), (1, True)]


def test_end_of_a_block_reaches_each_namespace_and_the_outputs(record):
    block = {"type": "capacity-block", "id": "cr-0123456789abcdef0", "zone_id": ZONE}
    times = {"starts": "2027-01-11T11:30:00Z", "ends": "2027-01-14T11:30:00Z", "nodes": 1}
    one_of = {"instance_type": "trn1.32xlarge", "ignore_desired_size": True}
    groups = [
        {**one_of, "name": "dated", "capacity": {**block, **times}},
        {**one_of, "name": "other", "capacity": block},
    ]
    users = {"training": 1001, "research": 1002}
    teams = [{"name": name, "queues": ["test"], "training_user_id": user} for name, user in users.items()]

    def program():
        stack = TrainingStack("trn-dev", {**STACK, "node_groups": groups, "namespaces": teams})
        pulumi.export("nodeGroups", stack.exports()["nodeGroups"])

    graph = record(program)
    kept = [each.inputs for each in of_kind(graph, "ConfigMap") if each.name.endswith("capacity-blocks")]
    assert {each["metadata"]["namespace"] for each in kept} == {"training", "research"}
    assert [each["data"] for each in kept] == [{"dated": times["ends"]}] * 2
    assert [NodeGroupOutput.model_validate(each).ends for each in graph.outputs["nodeGroups"]] == [times["ends"], ""]


def test_hypernode_controller_knows_ultraservers_of_its_groups(record):
    group = {"name": "us", "instance_type": "trn2u.48xlarge", "max_size": 4}
    for groups, label in (([], "network-node-layer-3"), ([group], "ultraserver-server-id-2")):
        graph = built(record, node_groups=[*STACK.get("node_groups", ()), *groups])
        [found] = [each for each in of_kind(graph, "Deployment") if each.name.endswith("hypernodes")]
        assert found.inputs["spec"]["template"]["spec"]["containers"][0]["command"][-1].endswith(label)


def test_budget_mail_counts_resources_with_the_environments_tag(record):
    graph = built(record, budget={"alert": {"monthly_usd": 9000, "emails": ["ops@example.com"]}})
    budget = one(graph, "Budget").inputs
    assert (budget["limitAmount"], budget["timeUnit"]) == ("9000.00", "MONTHLY")
    assert budget["costFilters"] == [{"name": "TagKeyValue", "values": ["user:Environment$test"]}]
    told = [(each["threshold"], each["notificationType"]) for each in budget["notifications"]]
    assert told == [(50, "ACTUAL"), (80, "ACTUAL"), (100, "ACTUAL"), (100, "FORECASTED")]
