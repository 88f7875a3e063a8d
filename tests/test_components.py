"""Components under Pulumi's mocks: examples to copy for your own stack."""

import json

import pulumi
import pulumi_kubernetes as k8s
import pytest
from mocks import Mocks

from trainium_eks import ArgumentError, FsxLustre, Network, NeuronAddons, TrainiumCluster, VolcanoStack

ZONES = ["usw2-az4", "usw2-az1"]
SUBNETS = {"usw2-az4": "subnet-0123456789abcdef0", "usw2-az1": "subnet-0123456789abcdef1"}


@pytest.fixture
def mocks():
    with Mocks.set() as mocks:
        yield mocks


@pulumi.runtime.test
def test_nodes_get_no_public_address(mocks):
    network = Network("net", {"region": "us-west-2", "zone_ids": ZONES})

    def check(private):
        assert private == ["net-private-usw2-az4_id", "net-private-usw2-az1_id"]
        subnets = mocks.of_type("aws:ec2/subnet:Subnet")
        assert not any(subnets[name.removesuffix("_id")].get("mapPublicIpOnLaunch") for name in private)

    return network.private_subnet_ids.apply(check)


def test_a_zone_of_another_region_is_refused_before_anything_is_made(mocks):
    with pytest.raises(ArgumentError, match="euc1-az1"):
        Network("net", {"region": "us-west-2", "zone_ids": ["euc1-az1", "usw2-az1"]})
    assert not mocks.made


@pulumi.runtime.test
def test_the_kubeconfig_holds_no_credential(mocks):
    """pulumi_eks builds the control plane in a separate process, which mocks do not reach: it has placeholders here."""
    cluster = TrainiumCluster(
        "ml",
        {
            "region": "us-west-2",
            "vpc_id": "vpc-0123456789abcdef0",
            "subnet_ids_by_zone": SUBNETS,
            "endpoint": {"public_access_cidrs": ["203.0.113.0/24"]},
        },
    )

    def check(kubeconfig):
        [user] = json.loads(kubeconfig)["users"]
        assert list(user["user"]) == ["exec"]

    return cluster.kubeconfig.apply(check)


def test_nodes_reach_only_the_lustre_ports(mocks):
    @pulumi.runtime.test  # returns when everything is registered
    def program():
        FsxLustre(
            "data",
            {
                "region": "us-west-2",
                "vpc_id": "vpc-0123456789abcdef0",
                "subnet_id": SUBNETS["usw2-az4"],
                "storage_capacity_gib": 1200,
                "client_security_group_ids": {"nodes": "sg-0123456789abcdef0"},
                "durability": {"type": "backup"},
            },
        )

    program()
    rules = mocks.of_type("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule").values()
    of_nodes = [each for each in rules if each["referencedSecurityGroupId"] == "sg-0123456789abcdef0"]
    assert {(each["fromPort"], each["toPort"]) for each in of_nodes} == {(988, 988), (1018, 1023)}


@pulumi.runtime.test
def test_add_ons_and_queues_are_made_in_one_cluster(mocks):
    inside = pulumi.ResourceOptions(providers=[k8s.Provider("cluster", kubeconfig="{}")])
    neuron = NeuronAddons("neuron", {"region": "us-west-2", "instance_types": ["trn1.32xlarge"]}, inside)
    pool = {"aws.amazon.com/neuron": 64}
    volcano = VolcanoStack("volcano", {"queues": [{"name": "research"}], "pool": pool}, inside)

    def check(found):
        assert found == ["neuron-monitor", ["research"]]
        [queue] = mocks.of_type("kubernetes:scheduling.volcano.sh/v1beta1:Queue").values()
        assert queue["spec"]["capability"] == pool

    return pulumi.Output.all(neuron.monitor_namespace, volcano.queue_names).apply(check)
