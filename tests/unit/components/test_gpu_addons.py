import pulumi_kubernetes as k8s
import pytest
from unit.components.parts import LEAST, of_kind, one, recorder, releases

from components.gpu_addons import GpuAddons
from trainium_eks.model.catalogue import versions

GPU_TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
built = recorder(GpuAddons, "gpu", LEAST["GpuAddons"])


def test_by_default_plugins_exporter_and_training_operator_are_installed(record, plain):
    operator = one(plain, "Directory").inputs["directory"]
    assert operator.endswith("/training-operator")
    assert operator.startswith("<cache>/"), "a plan fetches nothing, and is the same everywhere"
    names = ("nvidia-device-plugin", "aws-efa-k8s-device-plugin", "dcgm-exporter")
    assert one(plain, "GpuAddons").outputs == {
        "release_versions": {name: versions.CHARTS[name].version for name in names},
        "exporter_namespace": "dcgm-exporter",
        "training_operator_version": "v1.9.3",
    }
    assert set(releases(plain)) == set(names)
    # The EFA plugin tolerates the taint of GPUs, unless another component installs it.
    values = releases(plain)["aws-efa-k8s-device-plugin"].inputs["values"]
    assert values["tolerations"] == [GPU_TOLERATION]
    assert values["supportedInstanceLabels"]["values"] == ["p4d.24xlarge"]
    assert "aws-efa-k8s-device-plugin" not in releases(built(record, efa_instance_types=()))
    # Every release is pinned and bounded, and stays where a node is broken.
    for name, each in releases(plain).items():
        chart = versions.CHARTS[name]
        assert (each.inputs["chart"], each.inputs["version"]) == (chart.chart, chart.version)
        assert each.inputs["repositoryOpts"] == {"repo": chart.repository}
        keys = ("atomic", "cleanupOnFail", "skipAwait", "timeout", "maxHistory")
        assert [each.inputs[key] for key in keys] == [False, False, True, 600, 5]


def test_device_plugin_values_merge_the_users_and_report_missing_drivers(record):
    """aws-do-eks#63: with MOFED on, every GPU pod gets /dev/infiniband; amazon-eks-ami#2706: devices come by mounts."""
    plugin = releases(built(record, nvidia_values={"migStrategy": "single"}))["nvidia-device-plugin"]
    values = plugin.inputs["values"]
    assert (values["mofedEnabled"], values["deviceListStrategy"]) == (False, "volume-mounts")
    assert values["failOnInitError"] is True
    assert values["migStrategy"] == "single", "a user's value is laid over the stack's"


@pytest.mark.parametrize("name", ["nvidia-device-plugin", "dcgm-exporter"])
def test_daemons_run_on_the_groups_types_and_tolerate_their_taint(record, name):
    """The plugin's own affinity waits for labels that nothing on EKS sets."""
    values = releases(built(record, instance_types=("p5.48xlarge", "p4d.24xlarge")))[name].inputs["values"]
    required = values["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    types = {"operator": "In", "values": ["p4d.24xlarge", "p5.48xlarge"]}
    expression = {"key": "node.kubernetes.io/instance-type", **types}
    assert required == {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    assert GPU_TOLERATION in values["tolerations"]
    assert set(values["resources"]) == {"requests", "limits"}


def test_exporter_has_a_privileged_namespace_and_no_prometheus_operator(record, plain):
    values = releases(plain)["dcgm-exporter"].inputs["values"]
    assert values["serviceMonitor"] == {"enabled": False}
    assert values["service"]["port"] == 9400
    assert values["service"]["annotations"]["prometheus.io/scrape"] == "true"
    home = one(plain, "Namespace").inputs["metadata"]
    assert home["name"] == "dcgm-exporter"
    assert home["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    assert home["annotations"]["trainium-eks/pod-security-reason"]
    # It can be left out, as the trainers.
    without = built(record, dcgm_exporter=False, trainers=())
    assert set(releases(without)) == {"nvidia-device-plugin", "aws-efa-k8s-device-plugin"}
    assert of_kind(without, "Namespace", "Directory") == ()
    outputs = one(without, "GpuAddons").outputs
    assert outputs["exporter_namespace"] == outputs["training_operator_version"] == ""


@pytest.mark.parametrize("trainers", [("v2",), ("v1", "v2")])
def test_trainers_come_after_volcano_and_start_gangs_with_it(record, trainers):
    """A namespace refuses pods with GPUs that go past Volcano, and the operator ends where there are no PodGroups."""

    def program():
        scheduler = k8s.core.v1.Namespace("scheduler")  # in Volcano's place
        GpuAddons("gpu", {**LEAST["GpuAddons"], "volcano": scheduler, "trainers": trainers})

    graph = record(program)
    trainer, chart = releases(graph)["kubeflow-trainer"], versions.CHARTS["kubeflow-trainer"]
    assert (trainer.inputs["chart"], trainer.inputs["version"]) == (chart.chart, "2.3.0")
    assert trainer.inputs["values"]["runtimes"]["defaultEnabled"] is True
    assert trainer.inputs["atomic"] is True
    waited = {each.name for each in of_kind(graph, "Namespace") if each.urn in trainer.dependencies}
    assert waited == {"scheduler", "gpu-trainer"}
    operators = of_kind(graph, "Directory")
    assert len(operators) == ("v1" in trainers)
    for operator in operators:
        assert operator.inputs["directory"].endswith("/training-operator-volcano")
        assert one(graph, "Namespace", "scheduler").urn in operator.dependencies
