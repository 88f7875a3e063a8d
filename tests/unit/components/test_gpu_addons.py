from collections.abc import Callable, Mapping
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import pytest

from components._args import ArgumentError
from components.gpu_addons import GpuAddons
from trainium_eks.model.catalogue import versions
from trainium_eks.model.validation.problems import describe
from trainium_eks.plan.graph import Graph, Resource

RELEASE = "kubernetes:helm.sh/v3:Release"
NAMESPACE = "kubernetes:core/v1:Namespace"
DIRECTORY = "kubernetes:kustomize/v2:Directory"
GPU_TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}

Record = Callable[..., Graph]


def args(**more: Any) -> dict[str, Any]:
    return {"region": "us-west-2", "instance_types": ("p4d.24xlarge",), **more}


def releases(graph: Graph) -> Mapping[str, Resource]:
    """Helm releases by their name in the cluster."""
    return {resource.inputs["name"]: resource for resource in graph.of_type(RELEASE)}


def installed(record: Record, **more: Any) -> Mapping[str, Resource]:
    return releases(record(lambda: GpuAddons("gpu", args(**more))))


def outputs(graph: Graph) -> Mapping[str, Any]:
    (component,) = graph.of_type("trainium-eks:index:GpuAddons")
    return component.outputs


def types_wanted(affinity: Mapping[str, Any]) -> list[str]:
    (term,) = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    (expression,) = term["matchExpressions"]
    assert (expression["key"], expression["operator"]) == ("node.kubernetes.io/instance-type", "In")
    return list(expression["values"])


def test_by_default_plugins_exporter_and_training_operator_are_installed(record: Record) -> None:
    graph = record(lambda: GpuAddons("gpu", args()))
    assert set(releases(graph)) == {"nvidia-device-plugin", "aws-efa-k8s-device-plugin", "dcgm-exporter"}
    assert len(graph.of_type(DIRECTORY)) == 1
    assert outputs(graph) == {
        "release_versions": {
            name: versions.CHARTS[name].version
            for name in ("nvidia-device-plugin", "aws-efa-k8s-device-plugin", "dcgm-exporter")
        },
        "exporter_namespace": "dcgm-exporter",
        "training_operator_version": "v1.9.3",
    }


def test_every_release_is_pinned_and_bounded_and_stays_where_a_node_is_broken(record: Record) -> None:
    for name, each in installed(record).items():
        chart = versions.CHARTS[name]
        assert (each.inputs["chart"], each.inputs["version"]) == (chart.chart, chart.version)
        assert each.inputs["repositoryOpts"] == {"repo": chart.repository}
        assert (each.inputs["atomic"], each.inputs["cleanupOnFail"], each.inputs["skipAwait"]) == (False, False, True)
        assert (each.inputs["timeout"], each.inputs["maxHistory"]) == (600, 5)


def test_device_plugin_leaves_infiniband_to_the_efa_plugin(record: Record) -> None:
    """aws-do-eks#63: with MOFED on, every GPU pod gets /dev/infiniband."""
    assert installed(record)["nvidia-device-plugin"].inputs["values"]["mofedEnabled"] is False


def test_devices_come_by_mounts_as_the_nodes_runtime_wants_them(record: Record) -> None:
    """amazon-eks-ami#2706: what a container's environment names is ignored, the plugin's own included."""
    assert installed(record)["nvidia-device-plugin"].inputs["values"]["deviceListStrategy"] == "volume-mounts"


def test_a_node_without_a_driver_says_so_and_does_not_offer_zero_devices(record: Record) -> None:
    assert installed(record)["nvidia-device-plugin"].inputs["values"]["failOnInitError"] is True


@pytest.mark.parametrize("name", ["nvidia-device-plugin", "dcgm-exporter"])
def test_daemons_run_on_the_groups_types_and_tolerate_their_taint(record: Record, name: str) -> None:
    """The plugin's own affinity waits for labels that nothing on EKS sets."""
    values = installed(record, instance_types=("p5.48xlarge", "p4d.24xlarge"))[name].inputs["values"]
    assert types_wanted(values["affinity"]) == ["p4d.24xlarge", "p5.48xlarge"]
    assert GPU_TOLERATION in values["tolerations"]
    assert set(values["resources"]) == {"requests", "limits"}


def test_values_of_the_user_are_laid_over_the_stacks(record: Record) -> None:
    values = installed(record, nvidia_values={"migStrategy": "single"})["nvidia-device-plugin"].inputs["values"]
    assert values["migStrategy"] == "single"
    assert values["mofedEnabled"] is False


def test_exporter_does_not_need_the_prometheus_operator(record: Record) -> None:
    values = installed(record)["dcgm-exporter"].inputs["values"]
    assert values["serviceMonitor"] == {"enabled": False}
    assert values["service"]["port"] == 9400
    assert values["service"]["annotations"]["prometheus.io/scrape"] == "true"


def test_exporter_has_a_namespace_of_its_own_that_allows_privilege_and_says_why(record: Record) -> None:
    graph = record(lambda: GpuAddons("gpu", args()))
    (home,) = graph.of_type(NAMESPACE)
    assert home.inputs["metadata"]["name"] == "dcgm-exporter"
    assert home.inputs["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    assert home.inputs["metadata"]["annotations"]["trainium-eks/pod-security-reason"]
    assert home.urn in releases(graph)["dcgm-exporter"].dependencies


def test_exporter_can_be_left_out(record: Record) -> None:
    graph = record(lambda: GpuAddons("gpu", args(dcgm_exporter=False)))
    assert "dcgm-exporter" not in releases(graph)
    assert graph.of_type(NAMESPACE) == ()
    assert outputs(graph)["exporter_namespace"] == ""


def test_training_operator_comes_from_our_own_pinned_kustomization(record: Record) -> None:
    (operator,) = record(lambda: GpuAddons("gpu", args())).of_type(DIRECTORY)
    assert operator.inputs["directory"].endswith("/training-operator")
    assert operator.inputs["directory"].startswith("<cache>/"), "a plan fetches nothing, and is the same everywhere"


def test_training_operator_starts_gangs_with_volcano_once_it_is_there(record: Record) -> None:
    """A namespace refuses pods with GPUs that go past Volcano, and the operator ends where there are no PodGroups."""

    def program() -> None:
        scheduler = k8s.core.v1.Namespace("scheduler")
        GpuAddons("gpu", args(volcano=scheduler))

    graph = record(program)
    (operator,) = graph.of_type(DIRECTORY)
    (scheduler,) = (each for each in graph.of_type(NAMESPACE) if each.name == "scheduler")
    assert operator.inputs["directory"].endswith("/training-operator-volcano")
    assert scheduler.urn in operator.dependencies


def test_no_trainer_is_installed_where_none_is_named(record: Record) -> None:
    graph = record(lambda: GpuAddons("gpu", args(trainers=())))
    assert graph.of_type(DIRECTORY) == ()
    assert "kubeflow-trainer" not in releases(graph)
    assert outputs(graph)["training_operator_version"] == ""


@pytest.mark.parametrize("trainers", [("v2",), ("v1", "v2")])
def test_trainer_v2_comes_by_its_chart_with_its_runtimes_after_volcano(
    record: Record, trainers: tuple[str, ...]
) -> None:
    def program() -> None:
        scheduler = k8s.core.v1.Namespace("scheduler")
        GpuAddons("gpu", args(volcano=scheduler, trainers=trainers))

    graph = record(program)
    trainer = releases(graph)["kubeflow-trainer"]
    chart = versions.CHARTS["kubeflow-trainer"]
    assert (trainer.inputs["chart"], trainer.inputs["version"]) == (chart.chart, "2.3.0")
    assert trainer.inputs["values"]["runtimes"]["defaultEnabled"] is True
    assert trainer.inputs["atomic"] is True
    waited = {each.name for each in graph.of_type(NAMESPACE) if each.urn in trainer.dependencies}
    assert waited == {"scheduler", "gpu-trainer"}
    assert bool(graph.of_type(DIRECTORY)) is ("v1" in trainers)


def test_no_efa_plugin_where_another_component_installs_it(record: Record) -> None:
    assert "aws-efa-k8s-device-plugin" not in installed(record, efa_instance_types=())


def test_efa_plugin_tolerates_the_gpu_taint(record: Record) -> None:
    values = installed(record)["aws-efa-k8s-device-plugin"].inputs["values"]
    assert values["tolerations"] == [GPU_TOLERATION]
    assert values["supportedInstanceLabels"]["values"] == ["p4d.24xlarge"]


def test_a_preview_registers_the_same_with_the_same_values(record: Record) -> None:
    up, preview = (record(lambda: GpuAddons("gpu", args()), dry_run=dry_run) for dry_run in (False, True))
    assert [resource.urn for resource in up.resources] == [resource.urn for resource in preview.resources]
    assert {name: each.inputs for name, each in releases(up).items()} == {
        name: each.inputs for name, each in releases(preview).items()
    }


def test_children_belong_to_the_component(record: Record) -> None:
    graph = record(lambda: GpuAddons("gpu", args()))
    (component,) = graph.of_type("trainium-eks:index:GpuAddons")
    assert {each.parent for each in graph.of_type(RELEASE, NAMESPACE, DIRECTORY)} == {component.urn}


@pytest.mark.parametrize(
    ("more", "path", "says"),
    [
        ({"instance_types": ()}, "instance_types", "empty"),
        ({"instance_types": ("p4d.24xlrge",)}, "instance_types[0]", "p4d.24xlarge"),
        ({"instance_types": ("trn1.32xlarge",)}, "instance_types[0]", "no nvidia devices"),
        ({"efa_instance_types": ("inf2.xlarge",)}, "efa_instance_types[0]", "no EFA"),
        ({"nvidia_values": {"mofedEnabled": True}}, "nvidia_values.mofedEnabled", "/dev/infiniband"),
        ({"nvidia_values": {"a": pulumi.Output.from_input("x")}}, "nvidia_values.a", "plain data"),
    ],
)
def test_bad_input_is_refused_before_anything_is_built(more: dict[str, Any], path: str, says: str) -> None:
    with pytest.raises(ArgumentError) as refused:
        GpuAddons("gpu", args(**more))
    (problem,) = refused.value.problems
    assert problem.path.startswith(path)
    assert says in describe([problem])
