"""Cluster Autoscaler: which groups it finds, what it is told of them, what its role may do, and its flags."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from unit.components.parts import STACK, Record, of_kind, one

from components import ClusterAutoscaler, TrainingStack
from trainium_eks.model.catalogue import versions
from trainium_eks.plan.graph import Graph, Resource

TEMPLATE = "k8s.io/cluster-autoscaler/node-template"
CPU = {"name": "cpu", "instance_type": "m6i.xlarge", "autoscaling_group": "eks-cpu-1"}
TRN1 = {"name": "trn1", "instance_type": "trn1.32xlarge", "autoscaling_group": "eks-trn1-1"}
ARGS: Mapping[str, Any] = {"region": "us-west-2", "cluster_name": "trn-1", "groups": [CPU]}


def built(record: Record, **args: Any) -> Graph:
    return record(lambda: ClusterAutoscaler("autoscaler", {**ARGS, **args}))


def values(record: Record, **args: Any) -> Mapping[str, Any]:
    found: Mapping[str, Any] = one(built(record, **args), "Release").inputs["values"]
    return found


def tags(graph: Graph, group: str) -> dict[str, str]:
    return {
        each.inputs["tag"]["key"]: each.inputs["tag"]["value"]
        for each in of_kind(graph, "Tag")
        if each.inputs["autoscalingGroupName"] == group and _is_autoscalers(each)
    }


def _is_autoscalers(tag: Resource) -> bool:
    """Return whether Cluster Autoscaler reads a tag; others have the environment's tags."""
    return "cluster-autoscaler" in tag.inputs["tag"]["key"]


def test_it_finds_groups_by_a_tag_of_its_own_with_this_clusters_name(record: Record) -> None:
    """EKS puts Cluster Autoscaler's usual tags on every group, the system nodes' and the gangs' too."""
    graph = built(record)
    discovery = one(graph, "Release").inputs["values"]["autoDiscovery"]
    assert discovery["tags"] == ["trainium-eks/cluster-autoscaler={{ .Values.autoDiscovery.clusterName }}"]
    assert discovery["clusterName"] == "trn-1"
    assert tags(graph, "eks-cpu-1")["trainium-eks/cluster-autoscaler"] == "trn-1"
    # No tag is handed to instances.
    assert {each.inputs["tag"]["propagateAtLaunch"] for each in of_kind(graph, "Tag")} == {False}


def test_an_empty_trainium_group_tells_what_pods_ask_for(record: Record) -> None:
    told = tags(built(record, groups=[TRN1]), "eks-trn1-1")
    assert told[f"{TEMPLATE}/resources/aws.amazon.com/neuron"] == "16"
    assert told[f"{TEMPLATE}/resources/aws.amazon.com/neuroncore"] == "32"
    assert told[f"{TEMPLATE}/resources/vpc.amazonaws.com/efa"] == "8"
    assert told[f"{TEMPLATE}/taint/aws.amazon.com/neuron"] == "true:NoSchedule"
    assert told[f"{TEMPLATE}/label/vpc.amazonaws.com/efa.present"] == "true"


@pytest.mark.parametrize(
    ("group", "resource", "told"),
    [
        # A trn2.48xlarge has 128 cores, of which the runtime joins two and two.
        ({"instance_type": "trn2.48xlarge"}, "aws.amazon.com/neuroncore", "64"),
        ({"instance_type": "p5.48xlarge"}, "nvidia.com/gpu", "8"),
        ({"instance_type": "p5.48xlarge", "resources": {"hugepages-2Mi": "1024Mi"}}, "hugepages-2Mi", "1024Mi"),
    ],
)
def test_a_group_tells_what_device_plugins_show_and_what_is_given_counts(
    record: Record, group: dict[str, Any], resource: str, told: str
) -> None:
    assert tags(built(record, groups=[{**TRN1, **group}]), "eks-trn1-1")[f"{TEMPLATE}/resources/{resource}"] == told


def test_only_empty_accelerator_nodes_go_and_later_than_cpu_nodes(record: Record) -> None:
    graph = built(record, groups=[CPU, TRN1], accelerator_scale_down_minutes=25)
    options = f"{TEMPLATE}/autoscaling-options"
    told = {key.removeprefix(f"{options}/"): value for key, value in tags(graph, "eks-trn1-1").items()}
    assert told["scaledownutilizationthreshold"] == told["scaledowngpuutilizationthreshold"] == "0"
    assert told["ignoredaemonsetsutilization"] == "true"
    assert told["scaledownunneededtime"] == "25m0s"
    assert not [key for key in tags(graph, "eks-cpu-1") if key.startswith(options)]


def test_the_role_changes_this_clusters_groups_alone(record: Record) -> None:
    graph = built(record)
    [*_, scaling] = json.loads(str(one(graph, "RolePolicy").inputs["policy"]))["Statement"]
    assert scaling["Condition"] == {"StringEquals": {"aws:ResourceTag/trainium-eks/cluster-autoscaler": "trn-1"}}
    association = one(graph, "PodIdentityAssociation").inputs
    assert (association["namespace"], association["serviceAccount"]) == ("cluster-autoscaler", "cluster-autoscaler")


def test_it_runs_restricted_where_no_node_is_removed_and_knows_its_region(record: Record) -> None:
    found = values(record, node_selector={"trainium-eks/pool": "system"})
    assert found["awsRegion"] == "us-west-2", "a pod does not reach the instance metadata"
    assert found["nodeSelector"] == {"trainium-eks/pool": "system"}
    assert found["securityContext"]["runAsNonRoot"] is True
    assert found["containerSecurityContext"]["capabilities"] == {"drop": ["ALL"]}
    for kubernetes in versions.CLUSTER_AUTOSCALER:
        assert values(record, kubernetes_version=kubernetes)["image"]["tag"].startswith(f"v{kubernetes}.")


# --- in a stack -------------------------------------------------------------------------------------------------------

CONFIG: Mapping[str, Any] = {
    **STACK,
    "cluster": {**STACK["cluster"], "cpu_nodes": {"ignore_desired_size": True}},
    "node_groups": [
        {"name": "fixed", "instance_type": "trn1.32xlarge"},
        {"name": "scaled", "instance_type": "trn1.32xlarge", "max_size": 4, "ignore_desired_size": True},
    ],
    "autoscaling": {"cluster_autoscaler": {"accelerator_groups": ["scaled"]}},
}


@pytest.fixture(scope="module")
def stack(record: Record) -> Graph:
    return record(lambda: TrainingStack("trn-dev", CONFIG))


def _of_group(graph: Graph, pool: str) -> tuple[Resource, dict[str, str]]:
    (group,) = [each for each in of_kind(graph, "NodeGroup") if each.inputs["labels"]["trainium-eks/pool"] == pool]
    return group, tags(graph, group.outputs["resources"][0]["autoscalingGroups"][0]["name"])


def test_a_stack_hands_over_the_cpu_pool_and_the_groups_that_are_named(stack: Graph) -> None:
    served = {pool for pool in ("system", "cpu", "fixed", "scaled") if _of_group(stack, pool)[1]}
    assert served == {"cpu", "scaled"}
    disk = _of_group(stack, "cpu")[1][f"{TEMPLATE}/resources/ephemeral-storage"]
    assert disk == "85Gi", "image builds find disk on a CPU node that is not there yet"
    for pool in served:
        assert _of_group(stack, pool)[0].options.ignore_changes == ("scalingConfig.desiredSize",)


def test_node_group_and_auto_scaling_group_say_the_same(stack: Graph) -> None:
    """Cluster Autoscaler reads both, and what the node group says counts."""
    group, told = _of_group(stack, "scaled")
    resources = {key: value for key, value in told.items() if "/resources/" in key}
    assert {key: group.inputs["tags"].get(key) for key in resources} == resources
    assert resources[f"{TEMPLATE}/resources/ephemeral-storage"] == "6016Gi", "85 % of four disks of 1900 GB"
    assert told[f"{TEMPLATE}/label/trainium-eks/pool"] == "scaled"
    assert not [key for key in _of_group(stack, "fixed")[0].inputs["tags"] if key.startswith("LaunchTemplate")]
