import json
import re

import pulumi
import pytest
from dry_run import planned_alike
from unit.components.parts import LEAST, of_kind, one

from components.network import ExistingNetwork, Network
from trainium_eks.model.config.network import existing_problems
from trainium_eks.model.config.stack_config import load

REGION = {"region": "us-west-2"}
ZONES = ("usw2-az4", "usw2-az1", "usw2-az2", "usw2-az3")
EXISTING = LEAST["ExistingNetwork"]


def built(record, **args):
    return planned_alike(record, lambda: Network("net", {**REGION, **args}))


def test_nat_mode_and_zone_order_do_not_rename_resources(record):
    def urns(*kinds, **args):
        graph = built(record, **args)
        return {each.urn for each in (of_kind(graph, *kinds) if kinds else graph.resources)}

    routing = ("RouteTable", "RouteTableAssociation", "Route")
    assert urns(*routing, nat_gateways="single") == urns(*routing, nat_gateways="per-zone")
    one, other = (urns(zone_ids=zones, nat_gateways="per-zone") for zones in (ZONES[:2], ZONES[1::-1]))
    assert one == other


def test_nodes_wait_for_endpoints_rules_and_routes(record):
    waited = []

    def program():
        network = Network("net", {**REGION, "interface_endpoints": ["ecr.api"]})
        waited.extend(each.pulumi_resource_name for each in network.egress)

    record(program)
    assert {"net-endpoints-tls", "net-endpoint-ecr-api", "net-s3", "net-public-internet"} <= set(waited)


def test_existing_network_makes_nothing_and_has_the_same_outputs(record):
    asked = []

    def program():
        network = ExistingNetwork("old", EXISTING)
        asked.append((network.zone_ids, tuple(network.egress)))
        pulumi.export("second", network.private_subnet_id("usw2-az1"))
        with pytest.raises(ValueError, match="usw2-az2"):
            network.private_subnet_id("usw2-az2")

    graph = planned_alike(record, program)
    assert asked == [(("usw2-az4", "usw2-az1"), ())] * 2
    network, new = one(graph, "ExistingNetwork"), one(built(record), "Network")
    assert not list(graph.descendants(network.urn))
    assert graph.outputs["second"] == EXISTING["private_subnets"][1]["id"]
    assert set(network.outputs) == set(new.outputs)
    with pytest.raises(ValueError, match=r"usw2-az9.*usw2-az4, usw2-az1"):
        record(lambda: Network("net", REGION).private_subnet_id("usw2-az9"))


def test_exported_network_is_a_valid_existing_network(record):
    """As `pulumi stack output existingNetwork --json` prints it."""

    def program():
        pulumi.export("existing", Network("net", {**REGION, "nat_gateways": "per-zone"}).as_existing_network())

    printed = json.dumps(record(program).outputs["existing"])
    # Recording makes up ids that no AWS has.
    printed = re.sub(r"(vpc|subnet)-sim-([0-9a-f]{8})", r"\1-\2", printed)
    config = load({"region": "us-west-2", "owner": "me", "existingNetwork": printed})
    assert existing_problems(config.existing_network, region="us-west-2") == []
    assert [each.zone_id for each in config.existing_network.private_subnets] == ["usw2-az4", "usw2-az1"]
    assert [each.cidr_block for each in config.existing_network.public_subnets] == ["10.0.192.0/20", "10.0.208.0/20"]
