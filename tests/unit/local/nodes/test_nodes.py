"""A node group's nodes: named, labelled, tainted and equipped as EKS would have them, and as many as asked for."""

import base64
import json
import re
from dataclasses import replace

import pytest
from kubernetes_schemas import object_faults

from trainium_eks.kube.errors import ClusterError
from trainium_eks.local.nodes.csi_nodes import volumes
from trainium_eks.local.nodes.node_pools import manifest, pool_key, pool_of, zone_name
from trainium_eks.local.nodes.resizing import with_nodes
from trainium_eks.model.catalogue.instances import CATALOGUE, Taint
from trainium_eks.model.catalogue.regions import REGIONS
from trainium_eks.model.catalogue.versions import AMI_RELEASES
from trainium_eks.model.node_labels import ULTRASERVER_LABELS
from trainium_eks.plan.recording.project import StackSettings

INPUTS = {
    "instanceTypes": ["trn1.32xlarge"],
    "amiType": "AL2023_x86_64_NEURON",
    "capacityType": "ON_DEMAND",
    "version": "1.35",
    "releaseVersion": AMI_RELEASES["1.35"],
    "launchTemplate": {"id": "lt-sim-1", "version": "1"},
    "subnetIds": ["subnet-d"],
    "labels": {"trainium-eks/pool": "ng1", "aws.amazon.com/neuron.present": "true"},
    "taints": [{"key": "aws.amazon.com/neuron", "value": "true", "effect": "NO_SCHEDULE"}],
    "scalingConfig": {"minSize": 0, "maxSize": 4, "desiredSize": 2},
}
ZONES = {"subnet-d": "usw2-az4", "subnet-a": "usw2-az1"}
RAID0 = "kind: NodeConfig\nspec:\n  instance:\n    localStorage:\n      strategy: RAID0\n"
GROUP = "dev-ng1-nodes-sim-0"


def template(boot="", **inputs):
    return {"userData": base64.b64encode(boot.encode()).decode(), **inputs}


def pool(*, name=GROUP, region="us-west-2", boot=None, **changed):
    group = {"nodeGroupName": name}
    return pool_of({**INPUTS, **changed}, group, zones=ZONES, region=region, catalogue=CATALOGUE, template=boot)


def manifests(group):
    return [manifest(group, number) for number in range(1, group.size + 1)]


def sized(size, **changed):
    return manifests(pool(scalingConfig={"minSize": 0, "maxSize": size, "desiredSize": size}, **changed))


def names(**changed):
    return {node["metadata"]["name"] for node in manifests(pool(**changed))}


def test_ultraserver_nodes_have_the_device_plugins_labels():
    start = "neuron.amazonaws.com/ultraserver-"
    nodes = sized(8, instanceTypes=["trn2u.48xlarge"])
    labels = [{key: text for key, text in each["metadata"]["labels"].items() if start in key} for each in nodes]
    assert [each[f"{start}node-id-4"] for each in labels] == [*"01230123"]
    assert [each[f"{start}node-id-2"] for each in labels] == [*"01010101"]
    for size, count in ((4, 2), (2, 4)):
        assert len({each[f"{start}server-id-{size}"] for each in labels}) == count
    assert {f"{start}server-id-{size}" for size in (2, 4)} == {*ULTRASERVER_LABELS}
    assert not any(start in key for each in sized(1) for key in each["metadata"]["labels"])


def test_node_names_are_stable_and_short_enough_for_eks():
    first, second = (node["metadata"]["name"] for node in manifests(pool()))
    assert names() == {first, second}
    assert re.fullmatch(r"i-sim[0-9a-f]{8}000001\.us-west-2\.compute\.internal", first)
    assert second.startswith(f"{pool().stem}000002.")
    assert all(name.endswith(".ec2.internal") for name in names(region="us-east-1"))
    keys = {pool_key({"nodeGroupName": f"{'x' * 60}-nodes-sim-{end}"}) for end in "ab"}
    assert [len(key) for key in keys] == [63, 63]


def test_node_names_change_only_with_group_and_launch_template():
    for changed in (
        {"name": "dev-ng2-nodes-sim-0"},
        {"instanceTypes": ["trn1.2xlarge"]},
        {"releaseVersion": "1.35.7-20260901"},
        {"version": "1.36"},
        {"launchTemplate": {"id": "lt-sim-1", "version": "2"}},
        {"launchTemplate": {"id": "lt-sim-2", "version": "1"}},
        {"subnetIds": ["subnet-a"]},
    ):
        assert not names() & names(**changed), changed
    scaling = {"minSize": 2, "maxSize": 9, "desiredSize": 2}
    assert names() == names(labels={"a": "b"}, taints=[], scalingConfig=scaling)


def test_a_node_has_the_labels_of_kubernetes_eks_and_its_group():
    node = manifests(pool())[0]
    expected = {
        "kubernetes.io/hostname": node["metadata"]["name"],
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "trn1.32xlarge",
        "topology.kubernetes.io/region": "us-west-2",
        "topology.kubernetes.io/zone": "us-west-2d",
        "topology.k8s.aws/zone-id": "usw2-az4",
        "eks.amazonaws.com/nodegroup": GROUP,
        "eks.amazonaws.com/capacityType": "ON_DEMAND",
        "eks.amazonaws.com/sourceLaunchTemplateId": "lt-sim-1",
        "eks.amazonaws.com/sourceLaunchTemplateVersion": "1",
        "trainium-eks/simulated": "true",
        "trainium-eks.local/pool": GROUP,
        **INPUTS["labels"],
    }
    assert expected.items() <= node["metadata"]["labels"].items()
    assert node["metadata"]["annotations"]["kwok.x-k8s.io/node"] == "fake"
    assert node["spec"]["providerID"] == f"aws:///us-west-2d/{node['metadata']['name'].partition('.')[0]}"


def test_taints_are_converted_to_kubernetes_spelling():
    effects = {"NO_SCHEDULE": "NoSchedule", "PREFER_NO_SCHEDULE": "PreferNoSchedule", "NO_EXECUTE": "NoExecute"}
    made = pool(taints=[{"key": "k", "effect": effect} for effect in effects])
    assert made.taints == tuple(Taint("k", "", effect) for effect in effects.values())
    taint = {"key": "aws.amazon.com/neuron", "value": "true", "effect": "NoSchedule"}
    assert manifests(pool())[0]["spec"]["taints"] == [taint]


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_instance_type_makes_a_valid_node_with_its_resources(name):
    (node,) = sized(1, instanceTypes=[name])
    assert object_faults(node) == []
    given = dict(node["status"]["allocatable"])
    assert given.pop("ephemeral-storage")
    assert given == CATALOGUE.allocatable(name)
    allocatable, all_ = (int(node["status"][key]["memory"].removesuffix("Mi")) for key in ("allocatable", "capacity"))
    assert allocatable < all_ < CATALOGUE.find(name).memory_gib * 1024


@pytest.mark.parametrize("region", REGIONS)
def test_names_and_labels_are_valid_in_every_region(region):
    word = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
    for node in sized(2, region=region, name=f"{'x' * 49}-nodes-sim-5cbdba0f", subnetIds=["subnet-of-another-stack"]):
        name, labels = node["metadata"]["name"], node["metadata"]["labels"]
        assert all(part and word.fullmatch(part) and part.islower() for part in name.split("."))
        assert {key: value for key, value in labels.items() if not word.fullmatch(value)} == {}


def test_hugepages_and_max_pods_come_from_the_user_data():
    def allocatable(boot=""):
        [node] = sized(1, boot=template(boot), instanceTypes=["p5.48xlarge"])
        return dict(node["status"]["allocatable"])

    reserved, none = allocatable("echo 'vm.nr_hugepages = 100' > /etc/x"), allocatable()
    assert reserved["hugepages-2Mi"] == "200Mi"
    assert "hugepages-2Mi" not in none
    assert int(none["memory"][:-2]) - int(reserved["memory"][:-2]) == 200
    assert (allocatable("kubelet: {flags: [--max-pods=51]}")["pods"], none["pods"]) == ("51", "100")


def test_ephemeral_storage_is_the_containers_disk():
    root = {"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": 100}}]}
    # The last has four disks of 1900 GB.
    for boot, gibibytes in ((None, 20), (template(**root), 100), (template(RAID0, **root), 7078)):
        (node,) = sized(1, boot=boot)
        assert node["status"]["capacity"]["ephemeral-storage"] == f"{gibibytes}Gi"
        assert node["status"]["allocatable"]["ephemeral-storage"] == f"{gibibytes * 1024 * 9 // 10 - 1024}Mi"


def test_capacity_block_type_comes_from_the_launch_template():
    made = pool(instanceTypes=None, capacityType="CAPACITY_BLOCK", boot=template(instanceType="trn2.48xlarge"))
    assert made.instance.name == "trn2.48xlarge"
    assert manifests(made)[0]["metadata"]["labels"]["eks.amazonaws.com/capacityType"] == "CAPACITY_BLOCK"
    with pytest.raises(ClusterError, match=r"dev-ng1-nodes-sim-0.*did you mean trn1\.32xlarge(.|\n)*instanceTypes"):
        pool(instanceTypes=["trn1.33xlarge"])
    with pytest.raises(ClusterError, match="has no instance type"):
        pool(instanceTypes=None, boot=template())


def test_subnets_are_filled_in_turn_and_foreign_ones_by_offered_zone():
    nodes = sized(5, subnetIds=["subnet-d", "subnet-a"])
    zones = [node["metadata"]["labels"]["topology.k8s.aws/zone-id"] for node in nodes]
    assert zones == ["usw2-az4", "usw2-az1", "usw2-az4", "usw2-az1", "usw2-az4"]
    (zone_id,) = pool(subnetIds=["subnet-0a1b2c3d4e5f60711"]).zone_ids
    assert zone_id in CATALOGUE.offered("trn1.32xlarge", "us-west-2")
    assert zone_name("us-west-2", "usw2-az1") == "us-west-2a"
    assert zone_name("us-west-2", "usw2-lax1-az1") == "us-west-2-usw2-lax1-az1"


def test_node_has_its_types_volume_limit():
    for instance_type, disks, expected in (
        ("m6i.xlarge", 0, 26),  # one interface and the root volume
        ("m6i.xlarge", 2, 24),  # each local disk takes a place
        ("trn1.32xlarge", 4, 15),  # eight interfaces, four disks
        ("p5.48xlarge", 8, 1),  # more than all places are taken
    ):
        assert volumes(replace(CATALOGUE.find(instance_type), local_disks=disks)) == expected


GROUPS = [
    {"name": "train", "instanceType": "trn1.32xlarge", "minSize": 2, "maxSize": 4, "desiredSize": 2},
    {"name": "other", "instanceType": "trn1n.32xlarge", "maxSize": 2},
]


def scaled(nodes, groups=GROUPS):
    adjusted = with_nodes(nodes, "p")(StackSettings("dev", {"p:nodeGroups": json.dumps(groups), "p:region": "r"}))
    assert adjusted.config["p:region"] == "r"
    return json.loads(adjusted.config["p:nodeGroups"])


def test_nodes_option_scales_the_first_group_within_eks_limits():
    for nodes, expected in (
        (0, [(0, 4, 0)]),
        (1, [(1, 4, 1)]),
        (3, [(2, 4, 3)]),
        (450, [(2, 450, 450)]),
        # More than EKS allows in a group is spread over groups of the same kind.
        (1000, [(2, 450, 450), (2, 450, 450), (2, 100, 100)]),
    ):
        *train, other = scaled(nodes)
        assert [(each["minSize"], each["maxSize"], each["desiredSize"]) for each in train] == expected
        assert [each["name"] for each in train] == ["train", "train-2", "train-3"][: len(train)]
        assert {each["instanceType"] for each in train} == {"trn1.32xlarge"}
        assert other == GROUPS[1]
    [first] = scaled(0, [{"name": "a", "instanceType": "trn1.32xlarge"}])
    assert first["maxSize"] == 1, "EKS takes no other"
    with pytest.raises(ClusterError, match=r"Pulumi\.dev\.yaml has none"):
        scaled(3, [])
