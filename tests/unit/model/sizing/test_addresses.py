"""The address plan holds for any VPC, and the budget is the published one."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.model.config.addons import AddonConfig, pod_addresses
from trainium_eks.model.sizing import addresses

ZONES = ("use1-az6", "use1-az5", "use1-az4", "use1-az2", "use1-az1", "use1-az3")


@given(st.integers(16, 28), st.integers(0, 255), st.integers(1, 6))
def test_subnets_fit_the_vpc_without_overlap_or_the_range_is_refused(prefix, at, zones):
    vpc = ipaddress.IPv4Network(f"10.{at}.0.0/{prefix}")
    try:
        plan = addresses.plan(str(vpc), ZONES[:zones])
    except ValueError:
        assert prefix > (22 if zones > 3 else 24), "AWS takes no subnet below a /28"
        return
    public = [ipaddress.IPv4Network(block) for block in plan.public.values()]
    private = [ipaddress.IPv4Network(block) for block in plan.private.values()]
    assert tuple(plan.public) == tuple(plan.private) == ZONES[:zones]
    every = public + private
    assert all(subnet.subnet_of(vpc) and subnet.prefixlen <= 28 for subnet in every)
    assert not any(a.overlaps(b) for index, a in enumerate(every) for b in every[:index])
    assert min(subnet.num_addresses for subnet in private) > max(subnet.num_addresses for subnet in public)


def test_slash_16_is_divided_and_a_third_zone_moves_no_subnet():
    private = {"use1-az6": "10.0.0.0/18", "use1-az5": "10.0.64.0/18"}
    public = {"use1-az6": "10.0.192.0/20", "use1-az5": "10.0.208.0/20"}
    for zones in (2, 3):
        plan = addresses.plan("10.0.0.0/16", ZONES[:zones])
        assert (private.items() <= plan.private.items(), public.items() <= plan.public.items()) == (True, True)


@pytest.mark.parametrize(
    ("cidr_block", "zones", "reason"),
    [
        ("10.0.0.0/15", ZONES[:2], "/16 to /28"),
        ("10.0.0.0/29", ZONES[:2], "/16 to /28"),
        ("10.0.0.0/28", ZONES[:2], "too small"),
        ("10.0.0.0/25", ZONES[:2], "must be /24 or larger"),
        ("10.0.0.1/16", ZONES[:2], "host bits"),
        ("ten", ZONES[:2], "Expected 4 octets"),
        ("10.0.0.0/16", (), "distinct"),
        ("10.0.0.0/16", ("usw2-az4", "usw2-az4"), "distinct"),
    ],
)
def test_unplannable_range_is_refused_with_the_reason(cidr_block, zones, reason):
    with pytest.raises(ValueError, match=reason):
        addresses.plan(cidr_block, zones)


@pytest.mark.parametrize(
    ("name", "layout", "count"),
    [
        ("trn1.32xlarge", "efa-only", 13),
        ("trn1.32xlarge", "ena", 13),
        ("trn1.32xlarge", "efa", 20),
        ("trn2.48xlarge", "efa", 28),
        ("p5.48xlarge", "efa", 44),
        ("p6-b300.48xlarge", "catalogue", 13),
        ("m6i.xlarge", "none", 23),
    ],
)
def test_node_needs_addresses_for_its_interfaces_and_pods(name, layout, count):
    assert addresses.needed(CATALOGUE[name], 1, layout) == count


def test_free_and_reserved_addresses_are_subtracted():
    held = {0: 12, 10: 12, 11: 13, 48: 50}
    assert {pods: addresses.PODS.of(pods) for pods in held} == held
    free = {"10.0.0.0/24": 251, "10.0.0.0/28": 11, "10.0.0.0/18": 16379}
    assert {block: addresses.usable(block) for block in free} == free


@pytest.mark.parametrize(
    ("name", "layout", "pods"),
    [
        # Cards with two places (trn2, p5) lose half their addresses to an EFA interface beside the plain one.
        ("trn2.48xlarge", "catalogue", 100),
        ("trn2.48xlarge", "efa", 100),
        ("trn2.48xlarge", "ena", 51),
        ("trn1.32xlarge", "ena", 198),
        ("p6-b300.48xlarge", "catalogue", CATALOGUE["p6-b300.48xlarge"].max_pods),
        ("trn1.2xlarge", "ena", CATALOGUE["trn1.2xlarge"].max_pods),
    ],
)
def test_max_pods_follows_from_card_0(name, layout, pods):
    assert addresses.max_pods(CATALOGUE[name], layout) == pods


def test_needed_addresses_follow_the_cnis_settings():
    before = addresses.needed(CATALOGUE["trn1.32xlarge"], 2)
    env = {"WARM_IP_TARGET": "20", "MINIMUM_IP_TARGET": "many"}
    held = pod_addresses({"vpc-cni": AddonConfig(settings={"env": env})})
    assert addresses.needed(CATALOGUE["trn1.32xlarge"], 2, held=held) == before + 2 * 18
    assert held.of(0) == max(20, addresses.PODS.minimum), "what is no number is the stack's"
    with pytest.raises(ValueError, match="'efaonly'"):
        addresses.needed(CATALOGUE["trn1.32xlarge"], 1, "efaonly")
