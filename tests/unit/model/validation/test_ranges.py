"""IPv4 ranges on both sides of each reserved block and of the limit, and that judge and rule go by the same numbers."""

import ipaddress
from typing import Any

import pytest
from hand_built import Builder
from unit.model.config.test_bad_inputs import SOUND, judged
from unit.model.config.test_config import VARIANTS

from trainium_eks.model.config import cluster, network
from trainium_eks.model.config.cluster import ClusterConfig
from trainium_eks.model.config.network import ExistingNetworkConfig, NetworkConfig
from trainium_eks.model.validation import ranges
from trainium_eks.model.validation.config_model import read
from trainium_eks.model.validation.problems import Problem, Severity, refused
from trainium_eks.plan.rules import judge

RESERVED = ["0.0.0.0/16", "127.0.0.0/16", "169.254.0.0/16", "224.0.0.0/16", "239.255.0.0/16", "240.0.0.0/16"]
BESIDE = ["1.0.0.0/16", "126.255.0.0/16", "128.0.0.0/16", "169.253.0.0/16", "169.255.0.0/16", "223.255.0.0/16"]
EIGHTS = ["203.0.0.0/9", "203.128.0.0/9"]


def new_network(**data: Any) -> list[Problem]:
    return network.validate(read(NetworkConfig, data), region="us-west-2")


def endpoint(*texts: str, production: bool = False) -> list[Problem]:
    config = read(ClusterConfig, {"endpoint": {"public_access_cidrs": texts}})
    return cluster.validate(config, production=production)


@pytest.mark.parametrize("block", [*RESERVED, "255.255.0.0/16"])
def test_no_vpc_and_no_peer_has_a_reserved_range(block: str) -> None:
    assert [each.path for each in new_network(cidr_block=block)] == ["cidr_block"]
    (told,) = new_network(peer_cidr_blocks=[block])
    assert (told.path, told.severity) == ("peer_cidr_blocks[0]", Severity.REFUSE)


@pytest.mark.parametrize("block", [*BESIDE, "100.64.0.0/16", "100.127.0.0/16"])
def test_the_ranges_beside_the_reserved_ones_are_taken(block: str) -> None:
    assert new_network(cidr_block=block, peer_cidr_blocks=["10.9.0.0/16"]) == []
    assert new_network(peer_cidr_blocks=[block]) == []


def test_a_peer_that_holds_a_reserved_range_is_none() -> None:
    assert [each.path for each in new_network(peer_cidr_blocks=["126.0.0.0/7"])] == ["peer_cidr_blocks[0]"]


@pytest.mark.parametrize("block", [*RESERVED, "100.64.0.0/10", "100.127.255.255/32", "10.0.0.0/8", "192.168.1.0/24"])
def test_what_never_comes_from_the_internet_does_not_reach_the_public_endpoint(block: str) -> None:
    (told,) = endpoint(block)
    assert (told.path, told.severity) == ("endpoint.public_access_cidrs[0]", Severity.REFUSE)


@pytest.mark.parametrize("block", ["100.63.255.255/32", "100.128.0.0/32", "11.0.0.0/24", "172.32.0.0/24", *BESIDE])
def test_public_ranges_reach_the_public_endpoint(block: str) -> None:
    assert endpoint(block) == []


@pytest.mark.parametrize("block", ["2001:db8::/32", "::/0", "2001:db8::1/128"])
def test_an_ipv4_cluster_has_no_ipv6_range(block: str) -> None:
    (told,) = endpoint(block)
    assert "not an IPv4 range" in told.reason
    assert told.severity is Severity.REFUSE
    assert any("not an IPv4 range" in each.reason for each in new_network(cidr_block=block))
    assert any("not an IPv4 range" in each.reason for each in new_network(peer_cidr_blocks=[block]))


def failing(*texts: str) -> set[str]:
    """Return the rules that fail for a cluster whose endpoint is open to these ranges."""
    builder = Builder()
    access = {"endpointPrivateAccess": True, "endpointPublicAccess": True, "publicAccessCidrs": list(texts)}
    builder.add("aws:eks/cluster:Cluster", "cluster", vpcConfig=access)
    return {result.id for result in judge(builder.graph({"production": True})) if result.status == "fail"}


@pytest.mark.parametrize(
    ("texts", "wide"),
    [
        (["203.0.0.0/8"], False),
        (EIGHTS, False),
        ([*EIGHTS, "203.7.0.0/16"], False),  # counted once
        ([*EIGHTS, "202.0.0.1/32"], True),
        (["12.0.0.0/7"], True),
        (["1.0.0.0/8", "64.0.0.0/3", "128.0.0.0/2", "16.0.0.0/4"], True),  # seven sixteenths of the internet
        (["0.0.0.0/1", "128.0.0.0/1"], True),
    ],
)
def test_judge_and_rule_call_the_same_ranges_too_wide(texts: list[str], wide: bool) -> None:
    assert ({each.rule for each in endpoint(*texts)} == {"R02"}) == wide
    assert ({each.rule for each in endpoint(*texts, production=True)} >= {"R02", "R03"}) == wide
    assert failing(*texts) & {"R02", "R03"} == ({"R02", "R03"} if wide else set())


def test_every_address_is_a_place_of_its_own_and_can_be_waived() -> None:
    found = endpoint("0.0.0.0/0")
    assert [(each.path, each.rule) for each in found] == [("endpoint.public_access_cidrs[0]", "R02")]
    assert refused(found, {"R02": "a demonstration"}) == ()


def adopted(second: str, **section: Any) -> dict[str, Any]:
    """A network whose second private subnet lies in a further range of the VPC."""
    existing = VARIANTS[("existingNetwork",)]
    private = [existing["privateSubnets"][0], {**existing["privateSubnets"][1], "cidrBlock": second}]
    return {**existing, "privateSubnets": private, **section}


def existing(second: str, peers: list[str]) -> list[Problem]:
    config = read(ExistingNetworkConfig, adopted(second, peerCidrBlocks=peers))
    return [each for each in network.existing_problems(config, region="us-west-2") if each.severity is Severity.REFUSE]


def test_a_further_range_of_an_adopted_vpc_overlaps_no_peer() -> None:
    (told,) = existing("100.64.0.0/17", ["100.64.64.0/18"])
    assert "overlaps the peer's range" in told.reason
    assert told.path == "private_subnets[1].cidr_block"
    assert existing("100.64.0.0/17", ["100.64.128.0/18"]) == []
    assert [each.path for each in existing("169.254.0.0/17", [])] == ["private_subnets[1].cidr_block"]


def test_a_further_range_of_an_adopted_vpc_overlaps_no_service() -> None:
    def told(second: str) -> list[str]:
        return [each.path for each in refused(judged({**SOUND, "existingNetwork": adopted(second)}), {})]

    assert told("172.20.128.0/17") == ["cluster.service_cidr_block"]
    assert told("172.21.0.0/17") == []


def test_each_address_is_counted_once() -> None:
    assert ranges.public_addresses(["198.51.100.0/24", "198.51.100.7/32", "nonsense", "::/0"]) == 256


def test_reserved_ranges_are_those_of_pythons_own_registry() -> None:
    def special(address: ipaddress.IPv4Address) -> bool:
        return address.is_private or address.is_multicast or address.is_reserved

    for each in (*ranges.PRIVATE, *ranges.UNUSABLE):
        assert special(each[0])
        assert special(each[-1])
    assert not ranges.SHARED[0].is_global
    assert not ranges.SHARED[-1].is_global
