from collections.abc import Mapping
from typing import Any

import pytest
from unit.components.parts import Record, of_kind, one, releases

from components.neuron_addons import NeuronAddons, NeuronAddonsArgs, validate
from trainium_eks.model.catalogue import regions, versions
from trainium_eks.model.catalogue.instance_entries import with_entries
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.plan.graph import Resource

TYPES = ("trn1n.32xlarge", "trn1.32xlarge")
NEURON_TOLERATION = {"key": "aws.amazon.com/neuron", "operator": "Exists", "effect": "NoSchedule"}


def args(**more: Any) -> dict[str, Any]:
    return {"region": "us-west-2", "instance_types": TYPES, **more}


def installed(record: Record, **more: Any) -> Mapping[str, Resource]:
    return releases(record(lambda: NeuronAddons("neuron", args(**more))))


def test_by_default_device_plugin_efa_plugin_and_monitor_are_installed(record: Record) -> None:
    graph = record(lambda: NeuronAddons("neuron", args()))
    assert set(releases(graph)) == {"neuron", "aws-efa-k8s-device-plugin", "neuron-monitor"}
    assert one(graph, "NeuronAddons").outputs == {
        "monitor_namespace": "neuron-monitor",
        "release_versions": {
            "neuron": versions.CHARTS["neuron-helm-chart"].version,
            "aws-efa-k8s-device-plugin": versions.CHARTS["aws-efa-k8s-device-plugin"].version,
            "neuron-monitor": "0.1.0",
        },
    }


def test_every_release_is_pinned_and_bounded_and_stays_where_a_node_is_broken(record: Record) -> None:
    """Rolled back at its first install, a plugin would go from the healthy nodes too."""
    for name, each in installed(record).items():
        inputs = each.inputs
        assert (inputs["atomic"], inputs["cleanupOnFail"], inputs["skipAwait"]) == (False, False, True), name
        assert (inputs["timeout"], inputs["maxHistory"]) == (600, 5), name
        assert ("version" in inputs) != inputs["chart"].startswith("."), name


def test_device_plugin_runs_on_the_groups_types_and_tolerates_their_taint(record: Record) -> None:
    plugin = installed(record)["neuron"].inputs
    assert plugin["chart"] == versions.CHARTS["neuron-helm-chart"].chart
    assert plugin["version"] == versions.CHARTS["neuron-helm-chart"].version
    assert plugin["namespace"] == "kube-system"
    assert plugin["values"]["neuronInstances"] == sorted(TYPES)
    assert NEURON_TOLERATION in plugin["values"]["devicePlugin"]["tolerations"]
    assert set(plugin["values"]["devicePlugin"]["resources"]) == {"requests", "limits"}
    # R63: two recoveries of one node fight each other.
    npd = plugin["values"]["npd"]
    assert (npd["enabled"], npd["nodeRecovery"]["enabled"]) == (False, False)


def test_scheduler_extension_warns_of_the_charts_old_scheduler_unless_its_tag_is_given(record: Record) -> None:
    for wanted in (True, False):
        values = installed(record, scheduler_extension=wanted)["neuron"].inputs["values"]
        assert values["scheduler"]["enabled"] is wanted
    tag = {"scheduler": {"customScheduler": {"image": {"tag": "v1.35.3-eks-1-35-4"}}}}
    (warning,) = validate(NeuronAddonsArgs(**args(scheduler_extension=True)))
    assert (warning.path, warning.severity.value) == ("scheduler_extension", "warn")
    assert validate(NeuronAddonsArgs(**args(scheduler_extension=True, neuron_values=tag))) == []


def test_values_of_the_user_are_laid_over_the_stacks(record: Record) -> None:
    over = {"devicePlugin": {"resources": {"limits": {"memory": "1Gi"}}}, "npd": {"enabled": True}}
    values = installed(record, neuron_values=over)["neuron"].inputs["values"]
    assert values["devicePlugin"]["resources"]["limits"] == {"cpu": "200m", "memory": "1Gi"}
    assert NEURON_TOLERATION in values["devicePlugin"]["tolerations"]
    assert values["npd"]["enabled"] is True
    assert values["npd"]["namespaceOverride"] == "kube-system", "its own namespace is nowhere made"


def test_efa_plugin_runs_on_types_with_efa_only(record: Record) -> None:
    plugin = installed(record, instance_types=("trn1.2xlarge", "trn1.32xlarge"))["aws-efa-k8s-device-plugin"].inputs
    labels = plugin["values"]["supportedInstanceLabels"]
    assert labels == {"keys": ["node.kubernetes.io/instance-type"], "values": ["trn1.32xlarge"]}
    assert plugin["values"]["tolerations"] == [NEURON_TOLERATION]
    assert plugin["repositoryOpts"] == {"repo": versions.CHARTS["aws-efa-k8s-device-plugin"].repository}
    assert set(plugin["values"]["resources"]) == {"requests", "limits"}


@pytest.mark.parametrize("region", ["us-west-2", "af-south-1", "cn-north-1", "us-gov-west-1"])
def test_efa_plugins_image_comes_from_the_regions_own_registry(record: Record, region: str) -> None:
    plugin = installed(record, region=region)["aws-efa-k8s-device-plugin"].inputs
    expected = f"{regions.eks_image_registry(region)}/eks/aws-efa-k8s-device-plugin"
    assert plugin["values"]["image"] == {"repository": expected}
    assert f".{region}." in expected


def test_efa_plugin_serves_gpu_groups_of_the_same_cluster_and_is_not_there_for_none(record: Record) -> None:
    for none in ({"instance_types": ("trn1.2xlarge",)}, {"efa_instance_types": ()}):
        assert "aws-efa-k8s-device-plugin" not in installed(record, **none)
    mixed = ("trn1.32xlarge", "p4d.24xlarge")
    values = installed(record, efa_instance_types=mixed)["aws-efa-k8s-device-plugin"].inputs["values"]
    assert values["supportedInstanceLabels"]["values"] == sorted(mixed)
    assert {each["key"] for each in values["tolerations"]} == {"aws.amazon.com/neuron", "nvidia.com/gpu"}


def test_monitor_knows_every_neuron_type_of_the_catalogue_and_of_the_config(record: Record) -> None:
    """R62: upstream's own manifest leaves trn2 out, and nothing says so."""
    catalogue = with_entries(CATALOGUE, {"trn3.48xlarge": {"like": "trn2.48xlarge"}})
    neuron = {name for name, kind in CATALOGUE.items() if kind.family == "neuron"}
    for more, types in (({}, neuron), ({"catalogue": catalogue}, {*neuron, "trn3.48xlarge"})):
        values = installed(record, **more)["neuron-monitor"].inputs["values"]
        assert set(values["instanceTypes"]) == types
        assert values["tolerations"] == [NEURON_TOLERATION]
        assert values["image"] == versions.IMAGES["neuron-monitor"]


def test_monitor_has_a_local_chart_and_a_namespace_that_allows_privilege_and_can_be_left_out(record: Record) -> None:
    graph = record(lambda: NeuronAddons("neuron", args()))
    home = one(graph, "Namespace").inputs["metadata"]
    assert home["name"] == "neuron-monitor"
    assert home["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    assert home["annotations"]["trainium-eks/pod-security-reason"]
    monitor = releases(graph)["neuron-monitor"].inputs
    assert monitor["chart"].endswith("charts/neuron-monitor")
    assert not monitor["chart"].startswith("/"), "absolute paths differ between machines"
    assert len(monitor["values"]["chartDigest"]) == 64, "an edit of the chart is seen"
    graph = record(lambda: NeuronAddons("neuron", args(monitor=False)))
    assert "neuron-monitor" not in releases(graph)
    assert of_kind(graph, "Namespace") == ()
    assert one(graph, "NeuronAddons").outputs["monitor_namespace"] == ""
