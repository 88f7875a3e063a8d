import ipaddress
import json
import re

import pulumi
import pytest
from dry_run import planned_alike
from unit.components.parts import INGRESS, LEAST, of_kind, one, statements

from components.network import ExistingNetwork, Network
from trainium_eks.model.config.network import existing_problems
from trainium_eks.model.config.stack_config import load

REGION = {"region": "us-west-2"}
ZONES = ("usw2-az4", "usw2-az1", "usw2-az2", "usw2-az3")
EXISTING = LEAST["ExistingNetwork"]


def built(record, **args):
    return planned_alike(record, lambda: Network("net", {**REGION, **args}))


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("nat", ["single", "per-zone"])
def test_each_zone_has_both_subnets_and_internet_access(record, count, nat):
    zones = ZONES[:count]
    graph = built(record, zone_ids=zones, nat_gateways=nat)
    blocks = [ipaddress.IPv4Network(each.inputs["cidrBlock"]) for each in of_kind(graph, "Subnet")]
    assert len(blocks) == 2 * count
    assert not any(a.overlaps(b) for a in blocks for b in blocks if a is not b)
    wanted = zones if nat == "per-zone" else zones[:1]  # the accelerators' zone
    assert {each.name for each in of_kind(graph, "NatGateway")} == {f"net-nat-{zone}" for zone in wanted}
    for zone in zones:
        gateway = one(graph, "NatGateway", zone if nat == "per-zone" else zones[0])
        route = one(graph, "Route", f"net-private-{zone}-internet").inputs
        assert route["natGatewayId"] == gateway.outputs["id"]
        table = one(graph, "RouteTableAssociation", f"net-private-{zone}").inputs["routeTableId"]
        assert table == route["routeTableId"]


def test_nat_mode_and_zone_order_do_not_rename_resources(record):
    def urns(*kinds, **args):
        graph = built(record, **args)
        return {each.urn for each in (of_kind(graph, *kinds) if kinds else graph.resources)}

    routing = ("RouteTable", "RouteTableAssociation", "Route")
    assert urns(*routing, nat_gateways="single") == urns(*routing, nat_gateways="per-zone")
    one, other = (urns(zone_ids=zones, nat_gateways="per-zone") for zones in (ZONES[:2], ZONES[1::-1]))
    assert one == other


def test_nothing_has_a_public_address_and_the_default_group_blocks_all(record):
    graph = built(record)
    for subnet in of_kind(graph, "Subnet"):
        role = "kubernetes.io/role/elb" if "public" in subnet.name else "kubernetes.io/role/internal-elb"
        roles = {tag: value for tag, value in subnet.inputs["tags"].items() if tag.startswith("kubernetes.io/role/")}
        assert roles == {role: "1"}
        assert subnet.inputs["mapPublicIpOnLaunch"] is False
        assert "availabilityZone" not in subnet.inputs, "a zone's name is another zone in another account"
    vpc = one(graph, "Vpc").inputs
    assert vpc["enableDnsSupport"] is vpc["enableDnsHostnames"] is True
    assert not {"ingress", "egress"} & one(graph, "DefaultSecurityGroup").inputs.keys()


def test_interface_endpoints_serve_the_vpc_over_tls_before_nodes_start(record):
    waited = []

    def program():
        network = Network("net", {**REGION, "interface_endpoints": ["ecr.api", "s3"]})
        waited.extend(each.pulumi_resource_name for each in network.egress)

    graph = planned_alike(record, program)
    endpoints = {each.name: each.inputs for each in of_kind(graph, "VpcEndpoint")}
    assert set(endpoints) == {"net-s3", "net-endpoint-ecr-api", "net-endpoint-s3"}
    endpoint, rule = endpoints["net-endpoint-ecr-api"], one(graph, INGRESS).inputs
    assert endpoint["serviceName"] == "com.amazonaws.us-west-2.ecr.api"
    assert (endpoint["privateDnsEnabled"], len(endpoint["subnetIds"])) == (True, 2)
    assert (rule["ipProtocol"], rule["fromPort"], rule["toPort"]) == ("tcp", 443, 443)
    assert rule["cidrIpv4"] == "10.0.0.0/16"
    assert endpoint["securityGroupIds"] == [rule["securityGroupId"]]
    assert {"net-endpoints-tls", "net-endpoint-ecr-api", "net-s3", "net-public-internet"} <= set(waited)
    # In China they have a name of its own, and they alone.
    args = {"region": "cn-north-1", "zone_ids": ["cnn1-az1", "cnn1-az2"], "interface_endpoints": ["ecr.api"]}
    graph = record(lambda: Network("net", args))
    names = {each.name: each.inputs["serviceName"] for each in of_kind(graph, "VpcEndpoint")}
    assert names["net-endpoint-ecr-api"] == "cn.com.amazonaws.cn-north-1.ecr.api"
    assert names["net-s3"] == "com.amazonaws.cn-north-1.s3"


def test_flow_logs_are_encrypted_and_outputs_list_subnets_by_zone(record):
    key = "arn:aws:kms:us-west-2:000000000000:key/k"
    graph = built(record, kms_key_arn=key, flow_log_retention_days=30, zone_ids=ZONES[:3])
    group, log = one(graph, "LogGroup"), one(graph, "FlowLog")
    assert (group.inputs["kmsKeyId"], group.inputs["retentionInDays"]) == (key, 30)
    assert (log.inputs["trafficType"], log.inputs["logDestination"]) == ("ALL", group.outputs["arn"])
    assert one(graph, "RolePolicy").urn in log.dependencies
    assert statements(graph)[0]["Resource"] == [group.outputs["arn"], f"{group.outputs['arn']}:log-stream:*"]
    outputs = one(graph, "Network").outputs
    for kind in ("public", "private"):
        ids = [one(graph, "Subnet", f"net-{kind}-{zone}").outputs["id"] for zone in ZONES[:3]]
        assert outputs[f"{kind}_subnet_ids"] == ids
    assert outputs["accelerator_zone_id"] == "usw2-az4"
    assert outputs["accelerator_subnet_id"] == outputs["private_subnet_ids"][0]
    assert outputs["cidr_block"] == "10.0.0.0/16"
    # Without flow logs there is no role either.
    assert of_kind(built(record, flow_logs=False), "LogGroup", "FlowLog", "Role", "RolePolicy") == ()


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
    first, second = (each["id"] for each in EXISTING["private_subnets"])
    assert graph.outputs["second"] == second
    assert set(network.outputs) == set(new.outputs)
    subnets = [network.outputs[f"{kind}_subnet_ids"] for kind in ("private", "public")]
    assert subnets == [[first, second], []]
    accelerator = network.outputs["accelerator_zone_id"], network.outputs["accelerator_subnet_id"]
    assert accelerator == ("usw2-az4", first)
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
