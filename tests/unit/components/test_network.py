import ipaddress
import json
import re
from typing import Any

import pulumi
import pytest
from dry_run import planned_alike
from unit.components.parts import INGRESS, LEAST, Record, of_kind

from components.network import ExistingNetwork, Network
from trainium_eks.model.config.network import existing_problems
from trainium_eks.model.config.stack_config import load
from trainium_eks.plan.graph import Graph, Resource

REGION = {"region": "us-west-2"}
ZONES = ("usw2-az4", "usw2-az1", "usw2-az2", "usw2-az3")
EXISTING = LEAST["ExistingNetwork"]


def built(record: Record, **args: Any) -> Graph:
    return planned_alike(record, lambda: Network("net", {**REGION, **args}))


def named(graph: Graph, name: str, type_: str) -> Resource:
    (found,) = (each for each in of_kind(graph, type_) if each.name == name)
    return found


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("nat", ["single", "per-zone"])
def test_each_zone_has_both_subnets_and_a_way_out(record: Record, count: int, nat: str) -> None:
    zones = ZONES[:count]
    graph = built(record, zone_ids=zones, nat_gateways=nat)
    blocks = [ipaddress.IPv4Network(each.inputs["cidrBlock"]) for each in of_kind(graph, "Subnet")]
    assert len(blocks) == 2 * count
    assert not any(a.overlaps(b) for a in blocks for b in blocks if a is not b)
    wanted = zones if nat == "per-zone" else zones[:1]  # the accelerators' zone
    assert {each.name for each in of_kind(graph, "NatGateway")} == {f"net-nat-{zone}" for zone in wanted}
    for zone in zones:
        gateway = named(graph, f"net-nat-{zone if nat == 'per-zone' else zones[0]}", "NatGateway")
        route = named(graph, f"net-private-{zone}-internet", "Route")
        assert route.inputs["natGatewayId"] == gateway.outputs["id"]
        assert (
            named(graph, f"net-private-{zone}", "RouteTableAssociation").inputs["routeTableId"]
            == route.inputs["routeTableId"]
        )


def test_neither_the_nat_mode_nor_the_order_of_zones_makes_another_resource(record: Record) -> None:
    def urns(*kinds: str, **args: Any) -> set[str]:
        graph = built(record, **args)
        return {each.urn for each in (of_kind(graph, *kinds) if kinds else graph.resources)}

    routing = ("RouteTable", "RouteTableAssociation", "Route")
    assert urns(*routing, nat_gateways="single") == urns(*routing, nat_gateways="per-zone")
    one, other = (urns(zone_ids=zones, nat_gateways="per-zone") for zones in (ZONES[:2], ZONES[1::-1]))
    assert one == other


def test_nothing_has_a_public_address_and_the_default_group_lets_nothing_by(record: Record) -> None:
    graph = built(record)
    for subnet in of_kind(graph, "Subnet"):
        role = "kubernetes.io/role/elb" if "public" in subnet.name else "kubernetes.io/role/internal-elb"
        roles = {tag: value for tag, value in subnet.inputs["tags"].items() if tag.startswith("kubernetes.io/role/")}
        assert roles == {role: "1"}
        assert subnet.inputs["mapPublicIpOnLaunch"] is False
        assert "availabilityZone" not in subnet.inputs, "a zone's name is another zone in another account"
    (vpc,), (group,) = of_kind(graph, "Vpc"), of_kind(graph, "DefaultSecurityGroup")
    assert vpc.inputs["enableDnsSupport"] is vpc.inputs["enableDnsHostnames"] is True
    assert not {"ingress", "egress"} & group.inputs.keys()


def test_interface_endpoints_answer_the_whole_vpc_over_tls_alone(record: Record) -> None:
    graph = built(record, interface_endpoints=["ecr.api", "s3"])
    endpoints = {each.name: each for each in of_kind(graph, "VpcEndpoint")}
    assert set(endpoints) == {"net-s3", "net-endpoint-ecr-api", "net-endpoint-s3"}
    endpoint = endpoints["net-endpoint-ecr-api"]
    assert endpoint.inputs["serviceName"] == "com.amazonaws.us-west-2.ecr.api"
    assert endpoint.inputs["privateDnsEnabled"] is True
    assert len(endpoint.inputs["subnetIds"]) == 2
    (rule,) = of_kind(graph, INGRESS)
    assert (rule.inputs["ipProtocol"], rule.inputs["fromPort"], rule.inputs["toPort"]) == ("tcp", 443, 443)
    assert rule.inputs["cidrIpv4"] == "10.0.0.0/16"
    assert endpoint.inputs["securityGroupIds"] == [rule.inputs["securityGroupId"]]


def test_flow_logs_are_kept_encrypted_and_written_by_a_role_for_them_alone(record: Record) -> None:
    graph = built(record, kms_key_arn="arn:aws:kms:us-west-2:000000000000:key/k", flow_log_retention_days=30)
    (group,) = of_kind(graph, "LogGroup")
    assert group.inputs["kmsKeyId"].endswith("key/k")
    assert group.inputs["retentionInDays"] == 30
    (log,) = of_kind(graph, "FlowLog")
    assert log.inputs["trafficType"] == "ALL"
    assert log.inputs["logDestination"] == group.outputs["arn"]
    (permission,) = of_kind(graph, "RolePolicy")
    assert permission.urn in log.dependencies
    written = json.loads(permission.inputs["policy"])["Statement"][0]
    assert written["Resource"] == [group.outputs["arn"], f"{group.outputs['arn']}:log-stream:*"]


def test_outputs_name_the_subnets_in_the_order_of_the_zones(record: Record) -> None:
    graph = built(record, zone_ids=ZONES[:3])
    (network,) = of_kind(graph, "Network")
    for kind in ("public", "private"):
        ids = [named(graph, f"net-{kind}-{zone}", "Subnet").outputs["id"] for zone in ZONES[:3]]
        assert network.outputs[f"{kind}_subnet_ids"] == ids
    assert network.outputs["accelerator_zone_id"] == "usw2-az4"
    assert network.outputs["accelerator_subnet_id"] == network.outputs["private_subnet_ids"][0]
    assert network.outputs["cidr_block"] == "10.0.0.0/16"


def test_a_zone_without_a_subnet_is_named_with_those_that_have_one(record: Record) -> None:
    with pytest.raises(ValueError, match=r"usw2-az9.*usw2-az4, usw2-az1"):
        record(lambda: Network("net", REGION).private_subnet_id("usw2-az9"))


def test_an_existing_network_makes_nothing_and_offers_the_same_outputs(record: Record) -> None:
    asked: list[Any] = []

    def program() -> None:
        network = ExistingNetwork("old", EXISTING)
        asked.append((network.zone_ids, tuple(network.egress)))
        pulumi.export("second", network.private_subnet_id("usw2-az1"))
        with pytest.raises(ValueError, match="usw2-az2"):
            network.private_subnet_id("usw2-az2")

    graph = planned_alike(record, program)
    assert asked == [(("usw2-az4", "usw2-az1"), ())] * 2
    assert graph.outputs["second"] == "subnet-0123456789abcdef1"
    (network,) = of_kind(graph, "ExistingNetwork")
    assert not list(graph.descendants(network.urn))
    (new,) = of_kind(built(record), "Network")
    assert set(network.outputs) == set(new.outputs)
    assert network.outputs["private_subnet_ids"] == ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"]
    assert network.outputs["public_subnet_ids"] == []
    assert network.outputs["accelerator_zone_id"] == "usw2-az4"
    assert network.outputs["accelerator_subnet_id"] == "subnet-0123456789abcdef0"


def test_nodes_wait_for_endpoints_and_for_what_lets_them_in(record: Record) -> None:
    names: list[str] = []

    def program() -> None:
        network = Network("net", {**REGION, "interface_endpoints": ["ecr.api"]})
        names.extend(each.pulumi_resource_name for each in network.egress)

    record(program)
    assert {"net-endpoints-tls", "net-endpoint-ecr-api", "net-s3", "net-public-internet"} <= set(names)


def test_only_interface_endpoints_have_a_name_of_chinas_own(record: Record) -> None:
    args = {"region": "cn-north-1", "zone_ids": ["cnn1-az1", "cnn1-az2"], "interface_endpoints": ["ecr.api"]}
    graph = record(lambda: Network("net", args))
    assert (
        named(graph, "net-endpoint-ecr-api", "VpcEndpoint").inputs["serviceName"]
        == "cn.com.amazonaws.cn-north-1.ecr.api"
    )
    assert named(graph, "net-s3", "VpcEndpoint").inputs["serviceName"] == "com.amazonaws.cn-north-1.s3"


def test_another_stack_adopts_a_network_by_what_it_exports(record: Record) -> None:
    """As `pulumi stack output existingNetwork --json` prints it."""

    def program() -> None:
        pulumi.export("existing", Network("net", {**REGION, "nat_gateways": "per-zone"}).as_existing_network())

    printed = json.dumps(record(program).outputs["existing"])
    # Recording makes up ids that no AWS has.
    printed = re.sub(r"(vpc|subnet)-sim-([0-9a-f]{8})", r"\1-\2", printed)
    config = load({"region": "us-west-2", "owner": "me", "existingNetwork": printed})
    assert config.existing_network is not None
    assert existing_problems(config.existing_network, region="us-west-2") == []
    assert [each.zone_id for each in config.existing_network.private_subnets] == ["usw2-az4", "usw2-az1"]
    assert [each.cidr_block for each in config.existing_network.public_subnets] == ["10.0.192.0/20", "10.0.208.0/20"]
