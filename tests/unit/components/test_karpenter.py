"""Karpenter: its role, its queue, its nodes, and who else serves the same pods."""

import json
import re

import pytest
from unit.components.parts import LEAST, STACK, of_kind, one, recorder, releases, statements

from components import Karpenter, TrainingStack
from trainium_eks.model.catalogue import versions
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.plan import cost

ARGS = {**LEAST["Karpenter"], "kms_key_arn": "arn:aws:kms:us-west-2:123456789012:key/abc"}
TRN1 = {"name": "trn1", "instance_type": "trn1.32xlarge", "max_nodes": 4}
RESERVATION = "cr-0123456789abcdef0"
built = recorder(Karpenter, "karpenter", ARGS)


def specs(graph, type_):
    return {each.inputs["metadata"]["name"]: each.inputs["spec"] for each in of_kind(graph, type_)}


@pytest.fixture(scope="module")
def trainium(record):
    pool = {**TRN1, "zone_id": "usw2-az1"}
    return built(record, cpu_limit=0, accelerator_pools=[pool], accelerator_empty_minutes=25)


def test_default_pool_starts_bounded_cpu_nodes_for_staging(plain):
    spec = specs(plain, "NodePool")["karpenter"]
    template = spec["template"]
    assert spec["limits"] == {"cpu": "64"}
    assert template["metadata"]["labels"] == {"trainium-eks/pool": "cpu"}
    assert template["spec"]["expireAfter"] == "720h"
    assert spec["disruption"]["consolidationPolicy"] == "WhenEmptyOrUnderutilized"
    requirements = {each["key"]: each["values"] for each in template["spec"]["requirements"]}
    assert requirements["karpenter.sh/capacity-type"] == ["on-demand"]
    assert all(CATALOGUE.find(name).family == "cpu" for name in requirements["node.kubernetes.io/instance-type"])
    # Its nodes are as those of groups.
    spec = specs(plain, "EC2NodeClass")["karpenter"]
    # They join by a role and an entry of their own.
    assert one(plain, "AccessEntry").inputs["type"] == "EC2_LINUX"
    assert spec["instanceProfile"] == one(plain, "InstanceProfile").outputs["name"]
    assert "iam:CreateInstanceProfile" not in str(statements(plain))
    metadata, [disk] = spec["metadataOptions"], spec["blockDeviceMappings"]
    assert (metadata["httpPutResponseHopLimit"], metadata["httpTokens"]) == (1, "required")
    assert (disk["ebs"]["encrypted"], disk["ebs"]["kmsKeyID"]) == (True, ARGS["kms_key_arn"])
    places = spec["subnetSelectorTerms"], spec["securityGroupSelectorTerms"]
    assert places == ([{"id": "subnet-0000000a"}], [{"id": "sg-0000c105"}])
    assert spec["amiSelectorTerms"] == [{"alias": "al2023@v20260930"}]
    assert versions.AMI_RELEASES[versions.KUBERNETES].endswith("20260930")
    assert "networkInterfaces" not in spec
    # The EBS driver's role asks for this tag of an instance that no managed group started.
    assert spec["tags"]["ebs.csi.aws.com/cluster-name"] == "trn-1"


@pytest.mark.parametrize(("network", "parts"), [("none", ()), ("tcp", ("dnf",)), ("efa", ("dnf", "kefalnd"))])
def test_karpenter_nodes_have_the_lustre_client_and_no_huge_pages(record, network, parts):
    pools = [TRN1, {"name": "p5", "instance_type": "p5.48xlarge"}]
    graph = built(record, accelerator_pools=pools, lustre_network=network)
    found = specs(graph, "EC2NodeClass")
    assert CATALOGUE["p5.48xlarge"].hugepages_2mi
    assert "hugepages" not in found["p5"]["userData"]
    assert any("karpenter-provider-aws#3315" in each for each in graph.warnings)
    for part in ("dnf", "kefalnd"):
        assert (part in found["trn1"]["userData"]) is (part in parts)
    assert ("dnf" in found["karpenter"].get("userData", "")) is ("dnf" in parts)
    assert "kefalnd" not in found["karpenter"].get("userData", "")


def test_trainium_nodes_have_their_interfaces_disks_limits_and_taint(trainium):
    spec = specs(trainium, "EC2NodeClass")["trn1"]
    interfaces = [(e["networkCardIndex"], e["deviceIndex"], e["interfaceType"]) for e in spec["networkInterfaces"]]
    assert interfaces == [(0, 0, "interface"), (0, 1, "efa-only"), *((card, 0, "efa-only") for card in range(1, 8))]
    efa = one(trainium, "SecurityGroup").outputs["id"]
    assert spec["securityGroupSelectorTerms"] == [{"id": "sg-0000c105"}, {"id": efa}]
    assert spec["instanceStorePolicy"] == "RAID0"
    assert "LimitMEMLOCK=infinity" in spec["userData"]
    assert spec["tags"]["ebs.csi.aws.com/cluster-name"] == "trn-1"
    # It starts in its zone, and the role may use those subnets alone.
    assert spec["subnetSelectorTerms"] == [{"id": "subnet-0000000b"}]
    policy = str(statements(trainium))
    assert set(re.findall(r"subnet/([^']+)", policy)) == {"subnet-0000000a", "subnet-0000000b"}


def test_accelerator_node_is_removed_only_when_empty(trainium):
    (spec,) = specs(trainium, "NodePool").values()  # without CPU nodes there are the pools that are named
    template, disruption = spec["template"], spec["disruption"]
    assert (disruption["consolidationPolicy"], disruption["consolidateAfter"]) == ("WhenEmpty", "25m")
    assert template["spec"]["expireAfter"] == "Never"
    taint = {"key": "aws.amazon.com/neuron", "value": "true", "effect": "NoSchedule"}
    assert template["spec"]["taints"] == [taint]
    assert spec["limits"] == {"cpu": str(4 * 128)}
    assert template["metadata"]["labels"]["vpc.amazonaws.com/efa.present"] == "true"


@pytest.mark.parametrize(
    ("pool", "groups"),
    [({}, 1), ({"capacity_reservation_ids": [RESERVATION]}, 0), ({"instance_type": "inf2.48xlarge"}, 0)],
)
def test_efa_nodes_use_a_placement_group_or_their_reservation(record, pool, groups):
    graph = built(record, accelerator_pools=[{**TRN1, **pool}])
    reserved = [{"id": each} for each in pool.get("capacity_reservation_ids", ())]
    assert specs(graph, "EC2NodeClass")["trn1"].get("capacityReservationSelectorTerms", []) == reserved
    capacity = {"key": "karpenter.sh/capacity-type", "operator": "In"}
    capacity["values"] = ["reserved" if reserved else "on-demand"]
    assert capacity in specs(graph, "NodePool")["trn1"]["template"]["spec"]["requirements"]
    assert (f"capacity-reservation/{RESERVATION}" in str(statements(graph))) is bool(reserved)
    made = of_kind(graph, "PlacementGroup")
    assert [each.inputs["strategy"] for each in made] == ["cluster"] * groups
    found = {name: spec.get("placementGroupSelector") for name, spec in specs(graph, "EC2NodeClass").items()}
    assert found == {"trn1": {"name": made[0].outputs["id"]} if made else None, "karpenter": None}


def test_interruption_queue_is_filled_only_by_its_rules(plain):
    queue = one(plain, "aws:sqs/queue:Queue")
    assert (queue.inputs["messageRetentionSeconds"], queue.inputs["sqsManagedSseEnabled"]) == (300, True)
    heard = {json.loads(each.inputs["eventPattern"])["detail-type"][0] for each in of_kind(plain, "EventRule")}
    assert heard == {
        "AWS Health Event",
        "EC2 Spot Instance Interruption Warning",
        "EC2 Instance Rebalance Recommendation",
        "EC2 Instance State-change Notification",
        "EC2 Capacity Reservation Instance Interruption Warning",
    }
    assert {each.inputs["arn"] for each in of_kind(plain, "EventTarget")} == {queue.outputs["arn"]}
    values = releases(plain)["karpenter"].inputs["values"]
    assert values["settings"]["interruptionQueue"] == queue.outputs["name"]
    # It has its region by value, and is no second repairer of nodes.
    assert values["controller"]["env"] == [{"name": "AWS_REGION", "value": "us-west-2"}]
    assert values["settings"]["featureGates"]["nodeRepair"] is False
    # Definitions come first, and pools go before the controller.
    made, node_class = releases(plain), one(plain, "EC2NodeClass")
    assert made["karpenter-crd"].urn in made["karpenter"].dependencies
    assert made["karpenter"].urn in node_class.dependencies
    assert node_class.urn in one(plain, "NodePool").dependencies


def test_plan_counts_pools_at_their_limits(record):
    graph = built(record, cpu_limit=16, instance_types=["m6i.xlarge"], accelerator_pools=[TRN1])
    lines = {each.what: (each.quantity, each.maximum) for each in cost.estimate(graph).lines}
    assert lines["m6i.xlarge"] == lines["trn1.32xlarge"] == (0, 4)


CONFIG = {
    **STACK,
    "node_groups": [],
    "queues": [{"name": "test", "capability": {"aws.amazon.com/neuron": 64}}],
    "autoscaling": {"karpenter": {"accelerator_pools": [TRN1]}},
}


def test_stack_installs_plugins_metrics_and_prices_of_its_pools(record):
    """A type that no node group has: without the plugin no pod that asks for EFA would ever start there."""
    graph = record(lambda: TrainingStack("trn-dev", {**CONFIG, "observability": {"metrics": {}}}))
    found = {name: release.inputs["values"] for name, release in releases(graph).items()}
    assert found["neuron"]["neuronInstances"] == found["efa-exporter"]["instanceTypes"] == ["trn1.32xlarge"]
    assert found["aws-efa-k8s-device-plugin"]["supportedInstanceLabels"]["values"] == ["trn1.32xlarge"]
    assert found["karpenter"]["nodeSelector"] == {"trainium-eks/pool": "system"}
    queue = one(graph, "kubernetes:scheduling.volcano.sh/v1beta1:Queue")
    assert queue.inputs["spec"]["capability"] == {"aws.amazon.com/neuron": 64}
    groups = [group for spec in specs(graph, "PrometheusRule").values() for group in spec["groups"]]
    rules = [rule for group in groups for rule in group["rules"]]
    priced = [each["labels"]["instance_type"] for each in rules if each.get("record") == "trn:instance_usd_per_hour"]
    assert "trn1.32xlarge" in priced
