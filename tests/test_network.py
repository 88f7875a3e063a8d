"""Network under Pulumi's mocks: an example to copy for your own stack."""

import pulumi
import pytest
from mocks import Mocks

from trainium_eks import ArgumentError, Network

ZONES = ["usw2-az4", "usw2-az1"]


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
        assert {each["availabilityZoneId"] for each in subnets.values()} == set(ZONES)

    return network.private_subnet_ids.apply(check)


def test_traffic_is_logged(mocks):
    @pulumi.runtime.test  # returns when everything is registered
    def program():
        Network("net", {"region": "us-west-2", "zone_ids": ZONES})

    program()
    [log] = mocks.of_type("aws:ec2/flowLog:FlowLog").values()
    assert (log["vpcId"], log["trafficType"]) == ("net-vpc_id", "ALL")


def test_a_zone_of_another_region_is_refused_before_anything_is_made(mocks):
    with pytest.raises(ArgumentError, match="euc1-az1"):
        Network("net", {"region": "us-west-2", "zone_ids": ["euc1-az1", "usw2-az1"]})
    assert not mocks.made
