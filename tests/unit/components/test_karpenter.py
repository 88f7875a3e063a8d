"""Karpenter: its role, its queue, its nodes, and who else serves the same pods."""

from unit.components.parts import LEAST, STACK, of_kind, one, recorder, releases

from components import Karpenter, TrainingStack
from trainium_eks.plan import cost

ARGS = {**LEAST["Karpenter"], "kms_key_arn": "arn:aws:kms:us-west-2:123456789012:key/abc"}
TRN1 = {"name": "trn1", "instance_type": "trn1.32xlarge", "max_nodes": 4}
built = recorder(Karpenter, "karpenter", ARGS)


def specs(graph, type_):
    return {each.inputs["metadata"]["name"]: each.inputs["spec"] for each in of_kind(graph, type_)}


def test_plan_counts_pools_at_their_limits(record):
    graph = built(record, cpu_limit=16, instance_types=["m6i.xlarge"], accelerator_pools=[TRN1])
    lines = {each.what: (each.quantity, each.line.maximum) for each in cost.estimate(graph).items}
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
