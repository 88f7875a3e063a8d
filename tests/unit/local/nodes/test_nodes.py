"""A node group's nodes: named, labelled, tainted and equipped as EKS would have them."""

import base64
import re
from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from kubernetes_schemas import object_faults

from trainium_eks.kube.errors import ClusterError
from trainium_eks.local.nodes.node_pools import (
    NODES_A_LEAF,
    NODES_A_SPINE,
    NodePool,
    manifests,
    pool_key,
    pool_of,
    zone_name,
)
from trainium_eks.model.catalogue.instances import CATALOGUE, Taint
from trainium_eks.model.catalogue.regions import REGIONS
from trainium_eks.model.catalogue.versions import AMI_RELEASES

INPUTS: Mapping[str, Any] = {
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
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def template(boot: str = "", **inputs: Any) -> dict[str, Any]:
    return {"userData": base64.b64encode(boot.encode()).decode(), **inputs}


def pool(
    *,
    name: str = "dev-ng1-nodes-sim-0",
    region: str = "us-west-2",
    boot: Mapping[str, Any] | None = None,
    **changed: Any,
) -> NodePool:
    return pool_of(
        {**INPUTS, **changed},
        {"nodeGroupName": name},
        zones=ZONES,
        region=region,
        catalogue=CATALOGUE,
        template=boot,
    )


def sized(size: int, **changed: Any) -> list[dict[str, Any]]:
    return manifests(pool(scalingConfig={"minSize": 0, "maxSize": size, "desiredSize": size}, **changed))


def names(nodes: list[dict[str, Any]]) -> set[str]:
    return {node["metadata"]["name"] for node in nodes}


def test_names_are_the_same_each_time_and_like_ec2s() -> None:
    first, second = manifests(pool())
    assert manifests(pool()) == [first, second]
    assert re.fullmatch(r"i-sim[0-9a-f]{8}000001\.us-west-2\.compute\.internal", first["metadata"]["name"])
    assert len(first["metadata"]["name"].partition(".")[0]) == len("i-0123456789abcdef0")
    assert second["metadata"]["name"].startswith(f"{pool().stem}000002.")
    (virginia,) = sized(1, region="us-east-1")
    assert virginia["metadata"]["name"].endswith("000001.ec2.internal")


def test_a_node_has_an_address_of_its_own_outside_of_any_vpc() -> None:
    """So that pods on its network have one, too."""
    nodes = sized(400)
    found = [{each["type"]: each["address"] for each in node["status"]["addresses"]} for node in nodes]
    assert all(each["Hostname"] == each["InternalDNS"] for each in found)
    addresses = {ip_address(each["InternalIP"]) for each in found}
    assert len(addresses) > 395
    assert all(each in ip_network("100.64.0.0/10") for each in addresses)


def test_two_groups_share_no_name() -> None:
    assert not names(sized(50)) & names(sized(50, name="dev-ng2-nodes-sim-0"))


@pytest.mark.parametrize(
    "changed",
    [
        {"instanceTypes": ["trn1.2xlarge"]},
        {"releaseVersion": "1.35.7-20260901"},
        {"version": "1.36"},
        {"launchTemplate": {"id": "lt-sim-1", "version": "2"}},
        {"launchTemplate": {"id": "lt-sim-2", "version": "1"}},
        {"subnetIds": ["subnet-a"]},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_what_nodes_are_launched_from_gives_them_new_names(changed: Mapping[str, Any]) -> None:
    assert not names(manifests(pool())) & names(manifests(pool(**changed)))


@pytest.mark.parametrize(
    "changed",
    [{"labels": {"a": "b"}}, {"taints": []}, {"scalingConfig": {"minSize": 2, "maxSize": 9, "desiredSize": 2}}],
    ids=lambda changed: next(iter(changed)),
)
def test_what_eks_changes_on_running_nodes_does_not(changed: Mapping[str, Any]) -> None:
    assert names(manifests(pool())) == names(manifests(pool(**changed)))


def test_a_node_has_the_labels_of_kubernetes_eks_and_its_group() -> None:
    node = manifests(pool())[0]
    expected = {
        "kubernetes.io/hostname": node["metadata"]["name"],
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "trn1.32xlarge",
        "topology.kubernetes.io/region": "us-west-2",
        "topology.kubernetes.io/zone": "us-west-2d",
        "topology.k8s.aws/zone-id": "usw2-az4",
        "eks.amazonaws.com/nodegroup": "dev-ng1-nodes-sim-0",
        "eks.amazonaws.com/capacityType": "ON_DEMAND",
        "eks.amazonaws.com/sourceLaunchTemplateId": "lt-sim-1",
        "eks.amazonaws.com/sourceLaunchTemplateVersion": "1",
        "trainium-eks/pool": "ng1",
        "aws.amazon.com/neuron.present": "true",
        "trainium-eks/simulated": "true",
        "trainium-eks.local/pool": "dev-ng1-nodes-sim-0",
    }
    labels = node["metadata"]["labels"]
    assert {key: labels.get(key) for key in expected} == expected
    assert node["metadata"]["annotations"]["kwok.x-k8s.io/node"] == "fake"
    instance_id = node["metadata"]["name"].partition(".")[0]
    assert node["spec"]["providerID"] == f"aws:///us-west-2d/{instance_id}"


def test_taints_are_spelled_as_kubernetes_does() -> None:
    effects = ["NO_SCHEDULE", "PREFER_NO_SCHEDULE", "NO_EXECUTE"]
    made = pool(taints=[{"key": f"k{place}", "effect": effect} for place, effect in enumerate(effects)])
    assert made.taints == (
        Taint("k0", "", "NoSchedule"),
        Taint("k1", "", "PreferNoSchedule"),
        Taint("k2", "", "NoExecute"),
    )
    assert manifests(pool())[0]["spec"]["taints"] == [
        {"key": "aws.amazon.com/neuron", "value": "true", "effect": "NoSchedule"}
    ]


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_type_of_the_catalogue_makes_a_valid_node_that_gives_what_it_says(name: str) -> None:
    (node,) = sized(1, instanceTypes=[name])
    assert object_faults(node) == []
    allocatable = dict(node["status"]["allocatable"])
    assert allocatable.pop("ephemeral-storage")
    assert allocatable == CATALOGUE.allocatable(name)
    mebibytes = {
        field: int(node["status"][field]["memory"].removesuffix("Mi")) for field in ("capacity", "allocatable")
    }
    assert mebibytes["allocatable"] < mebibytes["capacity"] < CATALOGUE.find(name).memory_gib * 1024


@pytest.mark.parametrize("region", REGIONS)
def test_names_and_labels_are_valid_in_every_region(region: str) -> None:
    long = f"{'x' * 49}-nodes-sim-5cbdba0f"
    for node in sized(2, region=region, name=long, subnetIds=["subnet-of-another-stack"]):
        assert SUBDOMAIN.fullmatch(node["metadata"]["name"])
        for key, value in node["metadata"]["labels"].items():
            assert LABEL_VALUE.fullmatch(value), (key, value)


def test_hugepages_are_those_of_the_user_data() -> None:
    gpu = {"instanceTypes": ["p5.48xlarge"]}
    reserved = sized(1, boot=template("echo 'vm.nr_hugepages = 100' > /etc/x"), **gpu)[0]["status"]["allocatable"]
    none = sized(1, boot=template(), **gpu)[0]["status"]["allocatable"]
    assert reserved["hugepages-2Mi"] == "200Mi"
    assert "hugepages-2Mi" not in none
    assert int(none["memory"][:-2]) - int(reserved["memory"][:-2]) == 200


def test_the_number_of_pods_is_that_of_the_user_data() -> None:
    fewer = sized(1, boot=template("kubelet: {flags: [--max-pods=51]}"), instanceTypes=["p5.48xlarge"])
    assert fewer[0]["status"]["allocatable"]["pods"] == "51"
    assert sized(1, boot=template(), instanceTypes=["p5.48xlarge"])[0]["status"]["allocatable"]["pods"] == "100"


@pytest.mark.parametrize(
    ("boot", "gibibytes"),
    [
        (None, 20),
        (template(blockDeviceMappings=[{"deviceName": "/dev/xvda", "ebs": {"volumeSize": 100}}]), 100),
        # Four disks of 1900 GB.
        (template(RAID0, blockDeviceMappings=[{"ebs": {"volumeSize": 100}}]), 7078),
    ],
    ids=["default", "root", "raid0"],
)
def test_pods_have_the_disk_that_containers_live_on(boot: Mapping[str, Any] | None, gibibytes: int) -> None:
    (node,) = sized(1, boot=boot)
    assert node["status"]["capacity"]["ephemeral-storage"] == f"{gibibytes}Gi"
    assert node["status"]["allocatable"]["ephemeral-storage"] == f"{gibibytes * 1024 * 9 // 10 - 1024}Mi"


def test_a_capacity_blocks_type_stands_in_the_launch_template() -> None:
    made = pool(instanceTypes=None, capacityType="CAPACITY_BLOCK", boot=template(instanceType="trn2.48xlarge"))
    assert made.instance.name == "trn2.48xlarge"
    assert manifests(made)[0]["metadata"]["labels"]["eks.amazonaws.com/capacityType"] == "CAPACITY_BLOCK"


def test_several_subnets_are_filled_in_turn() -> None:
    nodes = sized(5, subnetIds=["subnet-d", "subnet-a"])
    zones = [node["metadata"]["labels"]["topology.k8s.aws/zone-id"] for node in nodes]
    assert zones == ["usw2-az4", "usw2-az1", "usw2-az4", "usw2-az1", "usw2-az4"]


def test_a_subnet_of_another_stack_is_where_the_type_is_offered() -> None:
    (zone_id,) = pool(subnetIds=["subnet-0a1b2c3d4e5f60711"]).zone_ids
    assert zone_id in CATALOGUE.offered("trn1.32xlarge", "us-west-2")


def test_zone_names_follow_the_ids_order() -> None:
    assert zone_name("us-west-2", "usw2-az1") == "us-west-2a"
    assert zone_name("us-west-2", "usw2-az4") == "us-west-2d"
    assert zone_name("us-west-2", "usw2-lax1-az1") == "us-west-2-usw2-lax1-az1"


def test_accelerator_nodes_show_their_place_in_the_network() -> None:
    nodes = sized(NODES_A_SPINE + 1)
    layers = [
        [node["metadata"]["labels"][f"topology.k8s.aws/network-node-layer-{layer}"] for node in nodes]
        for layer in (1, 2, 3)
    ]
    assert len(set(layers[0])) == 1
    assert len(set(layers[1][:NODES_A_SPINE])) == 1
    assert layers[1][NODES_A_SPINE] != layers[1][0]
    assert len(set(layers[2][:NODES_A_LEAF])) == 1
    assert layers[2][NODES_A_LEAF] != layers[2][0]
    (other,) = sized(1, name="dev-ng2-nodes-sim-0")
    labels = other["metadata"]["labels"]
    assert labels["topology.k8s.aws/network-node-layer-1"] == layers[0][0]
    assert labels["topology.k8s.aws/network-node-layer-3"] != layers[2][0]


def test_cpu_nodes_do_not() -> None:
    (node,) = sized(1, instanceTypes=["m6i.xlarge"], taints=None)
    assert not [label for label in node["metadata"]["labels"] if "network-node-layer" in label]
    assert node["spec"]["taints"] == []


def test_a_node_says_that_it_is_simulated_and_which_release_it_would_run() -> None:
    info = manifests(pool())[0]["status"]["nodeInfo"]
    assert "simulated" in info["osImage"]
    assert info["kubeletVersion"].startswith(f"v{AMI_RELEASES['1.35'].partition('-')[0]}-")
    assert manifests(pool(releaseVersion=None))[0]["status"]["nodeInfo"]["kubeletVersion"].startswith("v1.35.0-")


def test_a_name_that_eks_would_not_take_is_shortened_and_stays_unique() -> None:
    start = "x" * 60
    keys = {pool_key({"nodeGroupName": f"{start}-nodes-sim-{end}"}) for end in "ab"}
    assert len(keys) == 2
    assert {len(key) for key in keys} == {63}
    assert pool_key({"nodeGroupName": "short"}) == "short"


def test_an_unknown_type_is_refused_with_the_nearest() -> None:
    with pytest.raises(ClusterError, match=r"dev-ng1-nodes-sim-0.*did you mean trn1\.32xlarge(.|\n)*instanceTypes"):
        pool(instanceTypes=["trn1.33xlarge"])


def test_a_group_without_a_type_is_refused() -> None:
    with pytest.raises(ClusterError, match="has no instance type"):
        pool(instanceTypes=None, boot=template())
