"""Cluster Autoscaler: which groups it finds, the tags it reads from them, what its role may do, and its flags."""

from unit.components.parts import STACK, of_kind

from components import TrainingStack

TEMPLATE = "k8s.io/cluster-autoscaler/node-template"


def tags(graph, group):
    """Return the tags of a group that Cluster Autoscaler reads; others have the environment's tags."""
    found = [each.inputs for each in of_kind(graph, "Tag") if each.inputs["autoscalingGroupName"] == group]
    return {each["tag"]["key"]: each["tag"]["value"] for each in found if "cluster-autoscaler" in each["tag"]["key"]}


CONFIG = {
    **STACK,
    "cluster": {**STACK["cluster"], "cpu_nodes": {"ignore_desired_size": True}},
    "node_groups": [
        {"name": "fixed", "instance_type": "trn1.32xlarge"},
        {"name": "scaled", "instance_type": "trn1.32xlarge", "max_size": 4, "ignore_desired_size": True},
    ],
    "autoscaling": {"cluster_autoscaler": {"accelerator_groups": ["scaled"]}},
}


def _of_group(graph, pool):
    (group,) = [each for each in of_kind(graph, "NodeGroup") if each.inputs["labels"]["trainium-eks/pool"] == pool]
    return group, tags(graph, group.outputs["resources"][0]["autoscalingGroups"][0]["name"])


def test_stack_passes_the_cpu_pool_and_the_named_groups(record):
    stack = record(lambda: TrainingStack("trn-dev", CONFIG))
    found = {pool: _of_group(stack, pool) for pool in ("system", "cpu", "fixed", "scaled")}
    assert {pool for pool, (_, told) in found.items() if told} == {"cpu", "scaled"}
    disk = found["cpu"][1][f"{TEMPLATE}/resources/ephemeral-storage"]
    assert disk == "85Gi", "image builds find disk on a CPU node that is not there yet"
    for pool in ("cpu", "scaled"):
        assert found[pool][0].options.ignore_changes == ("scalingConfig.desiredSize",)
    # Cluster Autoscaler reads node group and Auto Scaling group, and what the node group says counts.
    group, told = found["scaled"]
    resources = {key: value for key, value in told.items() if "/resources/" in key}
    assert {key: group.inputs["tags"].get(key) for key in resources} == resources
    assert resources[f"{TEMPLATE}/resources/ephemeral-storage"] == "6016Gi", "85 % of four disks of 1900 GB"
    assert told[f"{TEMPLATE}/label/trainium-eks/pool"] == "scaled"
    assert not [key for key in found["fixed"][0].inputs["tags"] if key.startswith("LaunchTemplate")]
