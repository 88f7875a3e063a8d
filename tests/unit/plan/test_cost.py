"""What a program costs: each priced type, what has no price, and config that changes prices."""

from dataclasses import replace
from typing import Any

import pytest
from hand_built import Builder, changed, environment, node_group

from trainium_eks.model.catalogue import prices
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.model.sizing import bill
from trainium_eks.plan import cost
from trainium_eks.plan.graph import Graph, Resource

TRN1 = CATALOGUE.find("trn1.32xlarge").hourly_usd or 0.0


def _hourly(graph: Graph, what: str) -> float | None:
    found = [item.hourly_usd for item in cost.estimate(graph).items if item.what == what]
    assert found, what
    return sum(amount or 0.0 for amount in found) if None not in found else None


def _group(instance_type: str, nodes: int, most: int, **inputs: object) -> Graph:
    build = Builder()
    for name in ("subnet", "nat", "control-plane", "node-role", "cni", "worker"):
        build.add("aws:iam/role:Role", name)
    build.component("TrainiumCluster", "eks")
    node_group(build, "g", instance_type, nodes, most, accelerated=True)
    return changed(build.graph(), "g", **inputs)


def test_the_sum_is_that_of_its_items_and_of_its_components() -> None:
    found = cost.estimate(environment())
    assert found.hourly_usd == pytest.approx(sum(item.hourly_usd or 0 for item in found.items))
    assert found.hourly_usd == pytest.approx(sum(each.hourly_usd for each in found.by_component))
    assert found.monthly_usd == pytest.approx(found.hourly_usd * 730)
    assert found.unknown == ()


def test_nodes_count_at_desired_size_and_at_maximum() -> None:
    found = cost.estimate(_group("trn1.32xlarge", 2, 4))
    [nodes] = [item for item in found.items if item.what == "trn1.32xlarge"]
    assert nodes.hourly_usd == pytest.approx(2 * TRN1)
    assert nodes.line.maximum_hourly_usd == pytest.approx(4 * TRN1)


def test_root_volumes_pay_for_size_and_throughput() -> None:
    monthly = 100 * prices.GP3_GIB_MONTH + (500 - 125) * prices.GP3_MIBPS_MONTH
    assert _hourly(_group("trn1.32xlarge", 2, 4), "100 GiB root volume") == pytest.approx(2 * monthly / 730)


@pytest.mark.parametrize(
    ("what", "hourly"),
    [
        ("EKS control plane", prices.EKS_CLUSTER_HOURLY),
        ("NAT gateway", prices.NAT_GATEWAY_HOURLY),
        ("public IPv4 address", prices.PUBLIC_IPV4_HOURLY),
        ("interface endpoint", 2 * prices.INTERFACE_ENDPOINT_HOURLY),
        ("KMS key", prices.KMS_KEY_MONTH / 730),
        ("2400 GiB Lustre PERSISTENT_2 250 MB/s/TiB", 2400 * prices.FSX_LUSTRE_GIB_MONTH[250] / 730),
    ],
)
def test_each_priced_type_is_counted(what: str, hourly: float) -> None:
    assert _hourly(environment(), what) == pytest.approx(hourly)


@pytest.mark.parametrize(("disk", "what"), [({}, "20 GiB root volume"), ({"diskSize": 50}, "50 GiB root volume")])
def test_a_group_without_a_template_has_the_volume_that_eks_gives_it(disk: dict[str, int], what: str) -> None:
    build = Builder()
    sizes = {"minSize": 1, "desiredSize": 1, "maxSize": 1}
    build.add("aws:eks/nodeGroup:NodeGroup", "g", instanceTypes=["m6i.xlarge"], scalingConfig=sizes, **disk)
    assert what in [item.what for item in cost.estimate(build.graph()).items]


@pytest.mark.parametrize(
    ("own", "template", "lines"),
    [
        ({"instanceType": "m7i.xlarge"}, {}, ["m7i.xlarge", "8 GiB root volume"]),
        (
            {"instanceType": "m7i.xlarge", "rootBlockDevice": {"volumeSize": 30}},
            {},
            ["m7i.xlarge", "30 GiB root volume"],
        ),
        (
            {},
            {"instanceType": "c7i.2xlarge", "blockDeviceMappings": [{"ebs": {"volumeSize": 50}}]},
            ["c7i.2xlarge", "50 GiB root volume"],
        ),
        ({"rootBlockDevice": {"volumeSize": 9}}, {"instanceType": "c7i.2xlarge"}, ["c7i.2xlarge", "9 GiB root volume"]),
    ],
)
def test_an_instance_is_counted_by_its_inputs_or_its_template(
    own: dict[str, Any], template: dict[str, Any], lines: list[str]
) -> None:
    build = Builder()
    build.add("aws:ec2/launchTemplate:LaunchTemplate", "t", **template)
    build.add("aws:ec2/instance:Instance", "i", uses={"launchTemplate": ("t",)}, **own)
    found = cost.estimate(build.graph())
    assert [item.what for item in found.items] == lines
    assert found.unknown == ()
    assert found.hourly_usd > CATALOGUE.find(lines[0]).hourly_usd


@pytest.mark.parametrize(
    ("tier", "hourly"), [("standard", None), ("tier-xl", 1.65), ("tier-8xl", 13.90), ("tier-99xl", "unknown")]
)
def test_a_provisioned_control_plane_is_a_line_of_its_own(tier: str, hourly: float | str | None) -> None:
    found = cost.estimate(changed(environment(), "control-plane", controlPlaneScalingConfig={"tier": tier}))
    lines = {item.what: item.hourly_usd for item in found.items if "provisioned" in item.what}
    if hourly is None:
        assert lines == {}
    elif hourly == "unknown":
        assert found.unknown == (f"provisioned control plane {tier}",)
    else:
        assert lines == {f"provisioned control plane {tier}": hourly}


@pytest.mark.parametrize(
    ("policy", "told"),
    [(None, True), ({}, True), ({"supportType": "EXTENDED"}, True), ({"supportType": "STANDARD"}, False)],
)
def test_a_cluster_is_told_what_extended_support_will_cost(policy: dict[str, str] | None, told: bool) -> None:
    graph = changed(environment(), "control-plane", upgradePolicy=policy)
    [item] = [item for item in cost.estimate(graph).items if item.what == "EKS control plane"]
    assert bool(item.note) is told


@pytest.mark.parametrize(("kind", "unknown"), [("LoadBalancer", ("load balancer",)), ("ClusterIP", ()), (None, ())])
def test_a_services_load_balancer_costs_nobody_knows_how_much(kind: str | None, unknown: tuple[str, ...]) -> None:
    build = Builder()
    build.add("kubernetes:core/v1:Service", "s", spec={"type": kind} if kind else {})
    assert cost.estimate(build.graph()).unknown == unknown


def test_the_most_it_can_cost_is_that_of_the_largest_sizes() -> None:
    found = cost.estimate(environment())
    assert found.maximum_hourly_usd == pytest.approx(sum(each.maximum_hourly_usd for each in found.by_component))
    assert found.maximum_hourly_usd - found.hourly_usd > 2 * TRN1
    resting = cost.estimate(_group("trn1.32xlarge", 0, 1))
    assert [item.what for item in resting.items][:1] == ["trn1.32xlarge"]


def test_a_gateway_endpoint_is_free() -> None:
    graph = changed(environment(), "sts", vpcEndpointType="Gateway")
    assert not [item for item in cost.estimate(graph).items if "endpoint" in item.what]


def test_an_unknown_price_is_named_and_not_counted_as_nothing() -> None:
    found = cost.estimate(_group("trn9.48xlarge", 1, 1))
    assert found.unknown == ("trn9.48xlarge",)
    [item] = [item for item in found.items if item.what == "trn9.48xlarge"]
    assert item.hourly_usd is None
    assert found.to_json()["unknown"] == ["trn9.48xlarge"]


def test_an_unknown_type_that_starts_at_none_is_named_for_its_maximum() -> None:
    found = cost.estimate(_group("trn9.48xlarge", 0, 2))
    assert found.unknown == ("trn9.48xlarge",)
    [item] = [item for item in found.items if item.what == "trn9.48xlarge"]
    assert item.hourly_usd == 0.0


def test_the_config_can_bring_a_price() -> None:
    graph = _group("trn9.48xlarge", 1, 1)
    entries = {
        "trn9.48xlarge": {
            "like": "trn1.32xlarge",
            "hourlyUsd": 99.0,
            "priceDate": "2026-11-01",
            "priceRegion": "us-west-2",
        }
    }
    found = cost.estimate(replace(graph, config={"instanceTypes": entries}))
    assert found.unknown == ()
    [item] = [item for item in found.items if item.what == "trn9.48xlarge"]
    assert item.hourly_usd == 99.0


@pytest.mark.parametrize(("kind", "word"), [("SPOT", "Spot"), ("CAPACITY_BLOCK", "paid in advance")])
def test_a_way_of_buying_is_explained(kind: str, word: str) -> None:
    notes = [item.note for item in cost.estimate(_group("trn1.32xlarge", 1, 1, capacityType=kind)).items]
    assert any(word in note for note in notes)


def test_provisioned_metadata_beyond_what_is_included_is_counted() -> None:
    graph = changed(environment(), "lustre", metadataConfiguration={"mode": "USER_PROVISIONED", "iops": 6000})
    assert _hourly(graph, "metadata IOPS") == pytest.approx(3000 * prices.FSX_METADATA_IOPS_MONTH / 730)


def test_extended_support_costs_six_times_once_standard_support_is_over() -> None:
    assert bill.control_plane("1.30", "EXTENDED").unit_hourly_usd in (0.10, 0.60)
    over = {
        version
        for version, support in bill.versions.KUBERNETES_STANDARD_SUPPORT.items()
        if support.standard_end < "2026-11-21"  # the day that conftest sets
    }
    for version in bill.versions.KUBERNETES_STANDARD_SUPPORT:
        line = bill.control_plane(version, "EXTENDED")
        assert line.unit_hourly_usd == (0.60 if version in over else 0.10)
        assert line.note


def test_costs_belong_to_this_librarys_components() -> None:
    by_name = {each.component: each for each in cost.estimate(environment()).by_component}
    assert set(by_name) == {"eks", "net", "fsx", ""}
    assert next(iter(by_name)) == "eks"


def test_what_is_in_pulumi_eks_own_component_belongs_to_the_cluster() -> None:
    graph = environment()
    inner = Resource("urn:pulumi:dev::p::eks:index:Cluster::inner", "eks:index:Cluster", "inner", custom=False)
    [parent] = [each.parent for each in graph.resources if each.name == "control-plane"]
    moved = tuple(replace(each, parent=inner.urn) if each.name == "control-plane" else each for each in graph.resources)
    graph = replace(graph, resources=(*moved, replace(inner, parent=parent)))
    [item] = [item for item in cost.estimate(graph).items if item.what == "EKS control plane"]
    assert item.component == "eks"
