"""Cost of a program: each priced type, types without a price, and config that changes prices."""

from dataclasses import replace

import pytest
from hand_built import Builder, changed, environment, node_group, without

from trainium_eks.model.catalogue import prices
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.model.sizing import bill
from trainium_eks.plan import cost
from trainium_eks.plan.differences.cost_difference import difference
from trainium_eks.plan.graph import Resource

TRN1 = CATALOGUE.find("trn1.32xlarge").hourly_usd or 0.0


def _item(graph, what):
    [found] = [item for item in cost.estimate(graph).lines if item.what == what]
    return found


def _group(instance_type, nodes, most, **inputs):
    build = Builder()
    for name in ("subnet", "nat", "control-plane", "node-role", "cni", "worker"):
        build.add("aws:iam/role:Role", name)
    build.component("TrainiumCluster", "eks")
    node_group(build, "g", instance_type, nodes, most, accelerated=True)
    return changed(build.graph(), "g", **inputs)


def test_total_is_the_sum_of_items_and_of_components():
    found = cost.estimate(environment())
    assert found.hourly_usd == pytest.approx(sum(item.hourly_usd or 0 for item in found.lines))
    assert found.hourly_usd == pytest.approx(sum(each.hourly_usd for each in found.by_component))
    assert found.monthly_usd == pytest.approx(found.hourly_usd * 730)
    assert found.unknown == ()
    assert found.maximum_hourly_usd == pytest.approx(sum(each.maximum_hourly_usd for each in found.by_component))
    assert found.maximum_hourly_usd - found.hourly_usd > 2 * TRN1
    components = [each.component for each in found.by_component]
    assert (components[0], set(components)) == ("eks", {"eks", "net", "fsx", ""})
    shown = found.to_json()
    assert shown["maximumHourlyUsd"] == round(found.maximum_hourly_usd, 4)
    assert shown["maximumMonthlyUsd"] == round(found.maximum_hourly_usd * 730, 4)
    assert [each["component"] for each in shown["byComponent"]] == components
    days = {CATALOGUE.price(each.what).date for each in found.lines if each.what in CATALOGUE}
    assert shown["priceDates"] == {"instances": ", ".join(sorted(days)), "other": prices.DATE}


def test_nodes_count_at_desired_size_and_at_maximum():
    graph = _group("trn1.32xlarge", 2, 4)
    nodes = _item(graph, "trn1.32xlarge")
    assert (nodes.quantity, nodes.hourly_usd) == (2, pytest.approx(2 * TRN1))
    assert nodes.maximum_hourly_usd == pytest.approx(4 * TRN1)
    volumes = 100 * prices.GP3_GIB_MONTH + (500 - 125) * prices.GP3_MIBPS_MONTH
    assert _item(graph, "100 GiB root volume").hourly_usd == pytest.approx(2 * volumes / 730)
    assert cost.estimate(_group("trn1.32xlarge", 0, 1)).lines[0].what == "trn1.32xlarge"


@pytest.mark.parametrize(
    ("what", "hourly"),
    [
        ("EKS control plane", prices.EKS_CLUSTER_HOURLY),
        ("NAT gateway", prices.NAT_GATEWAY_HOURLY),
        ("public IPv4 address", prices.PUBLIC_IPV4_HOURLY),
        ("interface endpoint", 2 * prices.INTERFACE_ENDPOINT_HOURLY),
        ("KMS key", prices.KMS_KEY_MONTH / 730),
        ("2400 GiB Lustre PERSISTENT_2 250 MB/s/TiB", 2400 * prices.FSX_LUSTRE_GIB_MONTH[250] / 730),
        ("metadata IOPS", 3000 * prices.FSX_METADATA_IOPS_MONTH / 730),  # beyond what is included
    ],
)
def test_each_priced_type_is_counted(what, hourly):
    graph = changed(environment(), "lustre", metadataConfiguration={"mode": "USER_PROVISIONED", "iops": 6000})
    assert _item(graph, what).hourly_usd == pytest.approx(hourly)


@pytest.mark.parametrize(("disk", "what"), [({}, "20 GiB root volume"), ({"diskSize": 50}, "50 GiB root volume")])
def test_a_group_without_a_template_has_the_volume_that_eks_gives_it(disk, what):
    build = Builder()
    sizes = {"minSize": 1, "desiredSize": 1, "maxSize": 1}
    build.add("aws:eks/nodeGroup:NodeGroup", "g", instanceTypes=["m6i.xlarge"], scalingConfig=sizes, **disk)
    assert what in [item.what for item in cost.estimate(build.graph()).lines]


@pytest.mark.parametrize(
    ("own", "template", "lines"),
    [
        ({"instanceType": "m7i.xlarge"}, {}, ["m7i.xlarge", "8 GiB root volume"]),
        (
            {},
            {"instanceType": "c7i.2xlarge", "blockDeviceMappings": [{"ebs": {"volumeSize": 50}}]},
            ["c7i.2xlarge", "50 GiB root volume"],
        ),
        ({"rootBlockDevice": {"volumeSize": 9}}, {"instanceType": "c7i.2xlarge"}, ["c7i.2xlarge", "9 GiB root volume"]),
    ],
)
def test_an_instance_is_counted_by_its_inputs_or_its_template(own, template, lines):
    build = Builder()
    build.add("aws:ec2/launchTemplate:LaunchTemplate", "t", **template)
    build.add("aws:ec2/instance:Instance", "i", uses={"launchTemplate": ("t",)}, **own)
    found = cost.estimate(build.graph())
    assert [item.what for item in found.lines] == lines
    assert found.unknown == ()
    assert found.hourly_usd > CATALOGUE.find(lines[0]).hourly_usd


@pytest.mark.parametrize(
    ("tier", "hourly"), [("standard", {}), ("tier-xl", {"tier-xl": 1.65}), ("tier-8xl", {"tier-8xl": 13.90})]
)
def test_provisioned_control_plane_is_its_own_line(tier, hourly):
    found = cost.estimate(changed(environment(), "control-plane", controlPlaneScalingConfig={"tier": tier}))
    lines = {item.what.rpartition(" ")[2]: item.hourly_usd for item in found.lines if "provisioned" in item.what}
    assert lines == hourly
    unknown = cost.estimate(changed(environment(), "control-plane", controlPlaneScalingConfig={"tier": "tier-99xl"}))
    assert unknown.unknown == ("provisioned control plane tier-99xl",)


@pytest.mark.parametrize(
    ("policy", "told"),
    [(None, True), ({}, True), ({"supportType": "EXTENDED"}, True), ({"supportType": "STANDARD"}, False)],
)
def test_extended_support_cost_is_noted(policy, told):
    graph = changed(environment(), "control-plane", upgradePolicy=policy)
    assert bool(_item(graph, "EKS control plane").note) is told


@pytest.mark.parametrize(("kind", "unknown"), [("LoadBalancer", ("load balancer",)), ("ClusterIP", ()), (None, ())])
def test_load_balancer_of_a_service_has_an_unknown_cost(kind, unknown):
    build = Builder()
    build.add("kubernetes:core/v1:Service", "s", spec={"type": kind} if kind else {})
    assert cost.estimate(build.graph()).unknown == unknown


def test_a_gateway_endpoint_is_free():
    found = cost.estimate(changed(environment(), "sts", vpcEndpointType="Gateway"))
    assert not [item for item in found.lines if "endpoint" in item.what]


def test_unknown_price_is_named_until_the_config_sets_one():
    for nodes, hourly in ((1, None), (0, 0.0)):
        graph = _group("trn9.48xlarge", nodes, 2)
        assert cost.estimate(graph).to_json()["unknown"] == ["trn9.48xlarge"]
        assert _item(graph, "trn9.48xlarge").hourly_usd == hourly
    given = {"hourlyUsd": 99.0, "priceDate": "2026-11-01", "priceRegion": "us-west-2"}
    types = {"trn9.48xlarge": {"like": "trn1.32xlarge", **given}}
    graph = replace(_group("trn9.48xlarge", 1, 1), config={"instanceTypes": types})
    assert cost.estimate(graph).unknown == ()
    assert _item(graph, "trn9.48xlarge").hourly_usd == 99.0


@pytest.mark.parametrize(("kind", "word"), [("SPOT", "Spot"), ("CAPACITY_BLOCK", "paid in advance")])
def test_capacity_type_is_explained(kind, word):
    notes = [item.note for item in cost.estimate(_group("trn1.32xlarge", 1, 1, capacityType=kind)).lines]
    assert any(word in note for note in notes)
    assert not any("public price of Capacity Blocks" in note for note in notes), "no price of trn1's blocks is known"
    [bought, _] = bill.node_group("p5en.48xlarge", 1, 1, 100, capacity="capacity-block")
    assert (bought.unit_hourly_usd, bought.note.partition(" (")[0]) == (41.61, "public price of Capacity Blocks")


def test_extended_support_costs_six_times_as_much():
    for version, support in bill.versions.KUBERNETES_STANDARD_SUPPORT.items():
        line = bill.control_plane(version, "EXTENDED")
        over = support.standard_end < "2026-11-21"  # the day that conftest sets
        assert line.unit_hourly_usd == (0.60 if over else 0.10)
        assert line.note


def test_resources_inside_pulumi_eks_are_billed_to_the_cluster():
    graph = environment()
    [made] = [each for each in graph.resources if each.name == "control-plane"]
    urn = "urn:pulumi:dev::p::eks:index:Cluster::inner"
    inner = Resource(urn, "eks:index:Cluster", "inner", custom=False, parent=made.parent)
    others = (each for each in graph.resources if each is not made)
    graph = replace(graph, resources=(*others, replace(made, parent=urn), inner))
    assert _item(graph, "EKS control plane").component == "eks"


def _sizes(desired, most):
    return {"minSize": 0, "desiredSize": desired, "maxSize": most}


def _type(graph, name):
    return changed(graph, "trn1-template", instanceType=name)


def _between(before, after):
    return difference(cost.estimate(before), cost.estimate(after))


def test_change_of_one_node_and_of_a_resting_group_is_priced():
    assert not _between(environment(), environment())
    found = _between(environment(), changed(environment(), "trn1", scalingConfig=_sizes(3, 4)))
    [step] = found.steps
    assert found.hourly_usd == step.hourly_usd == pytest.approx(21.50 + 0.03, abs=0.05)
    assert found.maximum_hourly_usd == 0
    assert "3 × trn1.32xlarge (up to 4)" in step.what
    assert "instead of 2 ×" in step.what
    [gone] = _between(environment(), without(environment(), "nat")).steps
    assert gone.what == "no more 1 × NAT gateway"
    after = changed(changed(environment(), "system", scalingConfig=_sizes(9, 9)), "trn1", scalingConfig=_sizes(3, 4))
    assert _between(environment(), after).steps[0].urn == step.urn
    rested = changed(environment(), "trn1", scalingConfig=_sizes(0, 4))
    found = _between(rested, _type(rested, "trn2.48xlarge"))
    assert found.hourly_usd == 0
    assert found.maximum_hourly_usd is None


def test_unpriced_type_is_neither_a_saving_nor_a_known_rise():
    unpriced = _type(environment(), "trn2.48xlarge")
    for found in (_between(environment(), unpriced), _between(unpriced, environment())):
        assert (found.hourly_usd, found.maximum_hourly_usd, found.at_least_hourly_usd) == (None, None, None)
        assert found.unknown == ("trn2.48xlarge",)
    more = changed(changed(unpriced, "system", scalingConfig=_sizes(3, 3)), "trn1", scalingConfig=_sizes(2, 4))
    assert _between(unpriced, more).hourly_usd is not None, "what does not change is not in the difference"
    rested = changed(unpriced, "trn1", scalingConfig=_sizes(0, 4))
    assert _between(rested, more).hourly_usd is None
    databases = [Resource("urn::db", "aws:rds/instance:Instance", "db", inputs={"size": size}) for size in (1, 2)]
    before, after = (replace(environment(), resources=(each,)) for each in databases)
    assert (_between(before, after).hourly_usd, _between(after, after).hourly_usd) == (None, 0)
    more = changed(environment(), "trn1", scalingConfig=_sizes(3, 4))
    found = _between(environment(), replace(more, resources=(*more.resources, *after.resources)))
    assert (found.hourly_usd, found.steps[0].urn) == (None, "urn::db")
    assert found.at_least_hourly_usd == pytest.approx(21.50 + 0.03, abs=0.05)
