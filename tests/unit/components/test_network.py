import ipaddress
import json
import re
from collections.abc import Callable
from typing import Any

import pulumi
import pulumi_aws as aws
import pytest
from dry_run import planned_alike

from components._args import ArgumentError
from components.network import ExistingNetwork, Network
from trainium_eks.model.config.network import existing_problems
from trainium_eks.model.config.stack_config import load
from trainium_eks.plan.graph import Graph, Resource

SUBNET = "aws:ec2/subnet:Subnet"
NAT = "aws:ec2/natGateway:NatGateway"
ROUTE = "aws:ec2/route:Route"
ASSOCIATION = "aws:ec2/routeTableAssociation:RouteTableAssociation"
ENDPOINT = "aws:ec2/vpcEndpoint:VpcEndpoint"
NETWORK = "trainium-eks:index:Network"
REGION = {"region": "us-west-2"}
ZONES = ("usw2-az4", "usw2-az1", "usw2-az2", "usw2-az3")
Record = Callable[..., Graph]

EXISTING = {
    "region": "us-west-2",
    "vpc_id": "vpc-0123456789abcdef0",
    "cidr_block": "10.1.0.0/16",
    "private_subnets": [
        {"id": "subnet-0123456789abcdef0", "zone_id": "usw2-az4", "cidr_block": "10.1.0.0/18"},
        {"id": "subnet-0123456789abcdef1", "zone_id": "usw2-az1", "cidr_block": "10.1.64.0/18"},
    ],
}


def built(record: Record, **args: Any) -> Graph:
    return planned_alike(record, lambda: Network("net", {**REGION, **args}))


def named(graph: Graph, name: str, type_: str) -> Resource:
    (found,) = (each for each in graph.of_type(type_) if each.name == name)
    return found


def test_by_default_there_are_two_public_and_two_private_subnets_in_two_zones(record: Record) -> None:
    subnets = built(record).of_type(SUBNET)
    assert sorted((each.name, each.inputs["availabilityZoneId"]) for each in subnets) == [
        ("net-private-usw2-az1", "usw2-az1"),
        ("net-private-usw2-az4", "usw2-az4"),
        ("net-public-usw2-az1", "usw2-az1"),
        ("net-public-usw2-az4", "usw2-az4"),
    ]
    assert not any("availabilityZone" in each.inputs for each in subnets)


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("nat", ["single", "per-zone"])
def test_each_zone_has_both_subnets_and_a_way_out(record: Record, count: int, nat: str) -> None:
    zones = ZONES[:count]
    graph = built(record, zone_ids=zones, nat_gateways=nat)
    blocks = [ipaddress.IPv4Network(each.inputs["cidrBlock"]) for each in graph.of_type(SUBNET)]
    assert len(blocks) == 2 * count
    assert not any(a.overlaps(b) for a in blocks for b in blocks if a is not b)
    wanted = zones if nat == "per-zone" else zones[:1]
    assert {each.name for each in graph.of_type(NAT)} == {f"net-nat-{zone}" for zone in wanted}
    for zone in zones:
        gateway = named(graph, f"net-nat-{zone if nat == 'per-zone' else zones[0]}", NAT)
        route = named(graph, f"net-private-{zone}-internet", ROUTE)
        assert route.inputs["natGatewayId"] == gateway.outputs["id"]
        assert named(graph, f"net-private-{zone}", ASSOCIATION).inputs["routeTableId"] == route.inputs["routeTableId"]


def test_a_single_nat_gateway_is_in_the_accelerator_zone(record: Record) -> None:
    graph = built(record, zone_ids=ZONES[:2])
    (gateway,) = graph.of_type(NAT)
    assert gateway.inputs["subnetId"] == named(graph, "net-public-usw2-az4", SUBNET).outputs["id"]


def test_changing_the_nat_mode_replaces_no_route_table_or_association(record: Record) -> None:
    def urns(mode: str) -> set[str]:
        graph = built(record, nat_gateways=mode)
        return {each.urn for each in graph.of_type("aws:ec2/routeTable:RouteTable", ASSOCIATION, ROUTE)}

    assert urns("single") == urns("per-zone")


def test_a_nat_gateway_waits_for_its_subnets_way_out(record: Record) -> None:
    graph = built(record)
    (gateway,) = graph.of_type(NAT)
    assert named(graph, "net-public-internet", ROUTE).urn in gateway.dependencies


def test_subnets_carry_their_role_and_give_no_public_addresses(record: Record) -> None:
    for subnet in built(record).of_type(SUBNET):
        role = "kubernetes.io/role/elb" if "public" in subnet.name else "kubernetes.io/role/internal-elb"
        roles = [tag for tag in subnet.inputs["tags"] if tag.startswith("kubernetes.io/role/")]
        assert roles == [role]
        assert subnet.inputs["tags"][role] == "1"
        assert subnet.inputs["mapPublicIpOnLaunch"] is False


def test_the_vpc_has_names_and_its_default_group_lets_nothing_by(record: Record) -> None:
    graph = built(record)
    (vpc,) = graph.of_type("aws:ec2/vpc:Vpc")
    assert vpc.inputs["enableDnsSupport"] is True
    assert vpc.inputs["enableDnsHostnames"] is True
    (group,) = graph.of_type("aws:ec2/defaultSecurityGroup:DefaultSecurityGroup")
    assert "ingress" not in group.inputs
    assert "egress" not in group.inputs
    assert group.inputs["vpcId"] == vpc.outputs["id"]


def test_s3_is_reached_by_a_gateway_from_every_private_subnet(record: Record) -> None:
    graph = built(record)
    (endpoint,) = graph.of_type(ENDPOINT)
    assert endpoint.inputs["vpcEndpointType"] == "Gateway"
    assert endpoint.inputs["serviceName"] == "com.amazonaws.us-west-2.s3"
    private = {named(graph, f"net-private-{zone}", ASSOCIATION).inputs["routeTableId"] for zone in ZONES[:2]}
    assert set(endpoint.inputs["routeTableIds"]) == private


def test_interface_endpoints_answer_the_whole_vpc_over_tls_alone(record: Record) -> None:
    graph = built(record, interface_endpoints=["ecr.api", "s3"])
    endpoints = {each.name: each for each in graph.of_type(ENDPOINT)}
    assert set(endpoints) == {"net-s3", "net-endpoint-ecr-api", "net-endpoint-s3"}
    endpoint = endpoints["net-endpoint-ecr-api"]
    assert endpoint.inputs["serviceName"] == "com.amazonaws.us-west-2.ecr.api"
    assert endpoint.inputs["privateDnsEnabled"] is True
    assert len(endpoint.inputs["subnetIds"]) == 2
    (rule,) = graph.of_type("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule")
    assert (rule.inputs["ipProtocol"], rule.inputs["fromPort"], rule.inputs["toPort"]) == ("tcp", 443, 443)
    assert rule.inputs["cidrIpv4"] == "10.0.0.0/16"
    assert endpoint.inputs["securityGroupIds"] == [rule.inputs["securityGroupId"]]


def test_flow_logs_are_kept_encrypted_and_written_by_a_role_for_them_alone(record: Record) -> None:
    graph = built(record, kms_key_arn="arn:aws:kms:us-west-2:000000000000:key/k", flow_log_retention_days=30)
    (group,) = graph.of_type("aws:cloudwatch/logGroup:LogGroup")
    assert group.inputs["kmsKeyId"].endswith("key/k")
    assert group.inputs["retentionInDays"] == 30
    (log,) = graph.of_type("aws:ec2/flowLog:FlowLog")
    assert log.inputs["trafficType"] == "ALL"
    assert log.inputs["logDestination"] == group.outputs["arn"]
    (permission,) = graph.of_type("aws:iam/rolePolicy:RolePolicy")
    assert permission.urn in log.dependencies
    written = json.loads(permission.inputs["policy"])["Statement"][0]
    assert written["Resource"] == [group.outputs["arn"], f"{group.outputs['arn']}:log-stream:*"]
    (role,) = graph.of_type("aws:iam/role:Role")
    assert json.loads(role.inputs["assumeRolePolicy"])["Statement"][0]["Principal"] == {
        "Service": "vpc-flow-logs.amazonaws.com"
    }


def test_outputs_name_the_subnets_in_the_order_of_the_zones(record: Record) -> None:
    graph = built(record, zone_ids=ZONES[:3])
    (network,) = graph.of_type(NETWORK)
    for kind in ("public", "private"):
        ids = [named(graph, f"net-{kind}-{zone}", SUBNET).outputs["id"] for zone in ZONES[:3]]
        assert network.outputs[f"{kind}_subnet_ids"] == ids
    assert network.outputs["accelerator_zone_id"] == "usw2-az4"
    assert network.outputs["accelerator_subnet_id"] == network.outputs["private_subnet_ids"][0]
    assert network.outputs["cidr_block"] == "10.0.0.0/16"


def test_egress_is_all_that_a_node_needs_to_reach_the_outside(record: Record) -> None:
    def program() -> None:
        network = Network("net", {**REGION, "interface_endpoints": ["sts"]})
        aws.ec2.PlacementGroup("after", strategy="cluster", opts=pulumi.ResourceOptions(depends_on=network.egress))

    graph = planned_alike(record, program)
    waited = set(graph.of_type("aws:ec2/placementGroup:PlacementGroup")[0].dependencies)
    assert {each.urn for each in graph.of_type(ROUTE, ASSOCIATION, ENDPOINT)} <= waited


def test_everything_is_a_child_with_a_provider_that_the_caller_gave(record: Record) -> None:
    def program() -> None:
        main = aws.Provider("main", region="us-west-2")
        Network("net", REGION, pulumi.ResourceOptions(providers=[main]))

    graph = planned_alike(record, program)
    (network,) = graph.of_type(NETWORK)
    (provider,) = graph.of_type("pulumi:providers:aws")
    children = list(graph.descendants(network.urn))
    assert len(children) > 20
    assert {each.provider for each in children} == {provider.urn}


def test_logical_names_hold_zones_and_no_position(record: Record) -> None:
    one = {each.urn for each in built(record, zone_ids=["usw2-az4", "usw2-az1"], nat_gateways="per-zone").resources}
    other = {each.urn for each in built(record, zone_ids=["usw2-az1", "usw2-az4"], nat_gateways="per-zone").resources}
    assert one == other


@pytest.mark.parametrize(
    ("args", "path"),
    [
        ({"zone_ids": ["usw2-az4"]}, "zone_ids"),
        ({"zone_ids": ["us-west-2a", "us-west-2b"]}, "zone_ids"),
        ({"zone_ids": ["use1-az4", "use1-az5"]}, "zone_ids"),
        ({"cidr_block": "10.0.0.0/8"}, "cidr_block"),
        ({"cidr_block": "10.0.0.1/16"}, "cidr_block"),
        ({"cidr_block": "10.0.0.0/28"}, "cidr_block"),
        ({"nat_gateways": "two"}, "nat_gateways"),
        ({"flow_log_retention_days": 31}, "flow_log_retention_days"),
        ({"peer_cidr_blocks": ["10.0.128.0/20"]}, "10.0.128.0/20"),
        ({"zones": ["usw2-az4"]}, "zones"),
    ],
)
def test_a_bad_network_is_refused_before_anything_is_made(record: Record, args: dict[str, Any], path: str) -> None:
    with pytest.raises(ArgumentError, match=path):
        record(lambda: Network("net", {**REGION, **args}))


def test_a_zone_without_a_subnet_is_named_with_those_that_have_one(record: Record) -> None:
    with pytest.raises(ValueError, match=r"usw2-az9.*usw2-az4, usw2-az1"):
        record(lambda: Network("net", REGION).private_subnet_id("usw2-az9"))


def test_an_existing_network_makes_nothing_and_offers_the_same_outputs(record: Record) -> None:
    graph = planned_alike(record, lambda: ExistingNetwork("old", EXISTING))
    (network,) = graph.of_type("trainium-eks:index:ExistingNetwork")
    assert not list(graph.descendants(network.urn))
    (new,) = built(record).of_type(NETWORK)
    assert set(network.outputs) == set(new.outputs)
    assert network.outputs["private_subnet_ids"] == ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"]
    assert network.outputs["public_subnet_ids"] == []
    assert network.outputs["accelerator_zone_id"] == "usw2-az4"
    assert network.outputs["accelerator_subnet_id"] == "subnet-0123456789abcdef0"


def test_an_existing_network_is_asked_by_zone_and_waits_for_nothing(record: Record) -> None:
    asked: list[Any] = []

    def program() -> None:
        network = ExistingNetwork("old", EXISTING)
        asked.extend([network.zone_ids, tuple(network.egress)])
        pulumi.export("second", network.private_subnet_id("usw2-az1"))

    graph = record(program)
    assert asked == [("usw2-az4", "usw2-az1"), ()]
    assert graph.outputs["second"] == "subnet-0123456789abcdef1"
    with pytest.raises(ValueError, match="usw2-az2"):
        record(lambda: ExistingNetwork("old", EXISTING).private_subnet_id("usw2-az2"))


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
    assert named(graph, "net-endpoint-ecr-api", ENDPOINT).inputs["serviceName"] == "cn.com.amazonaws.cn-north-1.ecr.api"
    assert named(graph, "net-s3", ENDPOINT).inputs["serviceName"] == "com.amazonaws.cn-north-1.s3"


@pytest.mark.parametrize(
    "change",
    [{"vpc_id": "vpc-1"}, {"private_subnets": EXISTING["private_subnets"][:1]}, {"cidr_block": "10.1.0.0"}],
)
def test_a_bad_existing_network_is_refused(record: Record, change: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=next(iter(change))):
        record(lambda: ExistingNetwork("old", {**EXISTING, **change}))


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
