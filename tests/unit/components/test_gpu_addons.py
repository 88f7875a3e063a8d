from collections.abc import Mapping
from typing import Any

import pulumi_kubernetes as k8s
import pytest
from unit.components.parts import Record, of_kind, one, releases

from components.gpu_addons import GpuAddons
from trainium_eks.model.catalogue import versions
from trainium_eks.plan.graph import Graph, Resource

GPU_TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


def args(**more: Any) -> dict[str, Any]:
    return {"region": "us-west-2", "instance_types": ("p4d.24xlarge",), **more}


def installed(record: Record, **more: Any) -> Mapping[str, Resource]:
    return releases(record(lambda: GpuAddons("gpu", args(**more))))


def outputs(graph: Graph) -> Mapping[str, Any]:
    (component,) = of_kind(graph, "GpuAddons")
    return component.outputs


def types_wanted(affinity: Mapping[str, Any]) -> list[str]:
    (term,) = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    (expression,) = term["matchExpressions"]
    assert (expression["key"], expression["operator"]) == ("node.kubernetes.io/instance-type", "In")
    return list(expression["values"])


def test_by_default_plugins_exporter_and_training_operator_are_installed(record: Record) -> None:
    graph = record(lambda: GpuAddons("gpu", args()))
    assert set(releases(graph)) == {"nvidia-device-plugin", "aws-efa-k8s-device-plugin", "dcgm-exporter"}
    operator = one(graph, "Directory").inputs["directory"]
    assert operator.endswith("/training-operator")
    assert operator.startswith("<cache>/"), "a plan fetches nothing, and is the same everywhere"
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


def test_device_plugin_gives_what_was_asked_for_and_says_where_there_is_no_driver(record: Record) -> None:
    """aws-do-eks#63: with MOFED on, every GPU pod gets /dev/infiniband; amazon-eks-ami#2706: devices come by mounts."""
    values = installed(record, nvidia_values={"migStrategy": "single"})["nvidia-device-plugin"].inputs["values"]
    assert (values["mofedEnabled"], values["deviceListStrategy"]) == (False, "volume-mounts")
    assert values["failOnInitError"] is True
    assert values["migStrategy"] == "single", "a user's value is laid over the stack's"


@pytest.mark.parametrize("name", ["nvidia-device-plugin", "dcgm-exporter"])
def test_daemons_run_on_the_groups_types_and_tolerate_their_taint(record: Record, name: str) -> None:
    """The plugin's own affinity waits for labels that nothing on EKS sets."""
    values = installed(record, instance_types=("p5.48xlarge", "p4d.24xlarge"))[name].inputs["values"]
    assert types_wanted(values["affinity"]) == ["p4d.24xlarge", "p5.48xlarge"]
    assert GPU_TOLERATION in values["tolerations"]
    assert set(values["resources"]) == {"requests", "limits"}


def test_exporter_has_a_namespace_that_allows_privilege_and_needs_no_prometheus_operator(record: Record) -> None:
    graph = record(lambda: GpuAddons("gpu", args()))
    values = releases(graph)["dcgm-exporter"].inputs["values"]
    assert values["serviceMonitor"] == {"enabled": False}
    assert values["service"]["port"] == 9400
    assert values["service"]["annotations"]["prometheus.io/scrape"] == "true"
    home = one(graph, "Namespace").inputs["metadata"]
    assert home["name"] == "dcgm-exporter"
    assert home["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    assert home["annotations"]["trainium-eks/pod-security-reason"]


def test_exporter_and_trainers_can_be_left_out(record: Record) -> None:
    graph = record(lambda: GpuAddons("gpu", args(dcgm_exporter=False, trainers=())))
    assert set(releases(graph)) == {"nvidia-device-plugin", "aws-efa-k8s-device-plugin"}
    assert of_kind(graph, "Namespace", "Directory") == ()
    assert outputs(graph)["exporter_namespace"] == outputs(graph)["training_operator_version"] == ""


def test_training_operator_starts_gangs_with_volcano_once_it_is_there(record: Record) -> None:
    """A namespace refuses pods with GPUs that go past Volcano, and the operator ends where there are no PodGroups."""

    def program() -> None:
        scheduler = k8s.core.v1.Namespace("scheduler")
        GpuAddons("gpu", args(volcano=scheduler))

    graph = record(program)
    operator = one(graph, "Directory")
    assert operator.inputs["directory"].endswith("/training-operator-volcano")
    assert one(graph, "Namespace", "scheduler").urn in operator.dependencies


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
    waited = {each.name for each in of_kind(graph, "Namespace") if each.urn in trainer.dependencies}
    assert waited == {"scheduler", "gpu-trainer"}
    assert bool(of_kind(graph, "Directory")) is ("v1" in trainers)


def test_efa_plugin_tolerates_the_gpu_taint_unless_another_component_installs_it(record: Record) -> None:
    values = installed(record)["aws-efa-k8s-device-plugin"].inputs["values"]
    assert values["tolerations"] == [GPU_TOLERATION]
    assert values["supportedInstanceLabels"]["values"] == ["p4d.24xlarge"]
    assert "aws-efa-k8s-device-plugin" not in installed(record, efa_instance_types=())
