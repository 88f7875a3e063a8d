import pytest
from unit.components.parts import LEAST, of_kind, one, recorder, releases

from components.neuron_addons import NeuronAddons, NeuronAddonsArgs, validate
from trainium_eks.model.catalogue import regions, versions
from trainium_eks.model.catalogue.instance_entries import with_entries
from trainium_eks.model.catalogue.instances import CATALOGUE

NEURON_TOLERATION = {"key": "aws.amazon.com/neuron", "operator": "Exists", "effect": "NoSchedule"}
ARGS = LEAST["NeuronAddons"]
built = recorder(NeuronAddons, "neuron", ARGS)


def installed(record, **more):
    return releases(built(record, **more))


def test_device_plugin_runs_on_the_groups_types_and_tolerates_their_taint(plain):
    plugin, chart = releases(plain)["neuron"].inputs, versions.CHARTS["neuron-helm-chart"]
    assert (plugin["chart"], plugin["version"]) == (chart.chart, chart.version)
    assert plugin["namespace"] == "kube-system"
    assert plugin["values"]["neuronInstances"] == sorted(ARGS["instance_types"])
    assert NEURON_TOLERATION in plugin["values"]["devicePlugin"]["tolerations"]
    assert set(plugin["values"]["devicePlugin"]["resources"]) == {"requests", "limits"}
    # R63: two recoveries of one node fight each other.
    npd = plugin["values"]["npd"]
    assert (npd["enabled"], npd["nodeRecovery"]["enabled"]) == (False, False)
    # Releases are bounded. Rolled back at its first install, a plugin would go from the healthy nodes, too.
    keys = ("atomic", "cleanupOnFail", "skipAwait", "timeout", "maxHistory")
    for name, each in releases(plain).items():
        inputs = each.inputs
        assert [inputs[key] for key in keys] == [False, False, True, 600, 5], name
        assert ("version" in inputs) != inputs["chart"].startswith("."), name
    installed = {
        "neuron": versions.CHARTS["neuron-helm-chart"].version,
        "aws-efa-k8s-device-plugin": versions.CHARTS["aws-efa-k8s-device-plugin"].version,
        "neuron-monitor": "0.1.0",
    }
    told = {"monitor_namespace": "neuron-monitor", "release_versions": installed}
    assert (one(plain, "NeuronAddons").outputs, releases(plain).keys()) == (told, installed.keys())


def test_scheduler_extension_warns_of_an_old_scheduler_without_a_tag(record):
    for wanted in (True, False):
        values = installed(record, scheduler_extension=wanted)["neuron"].inputs["values"]
        assert values["scheduler"]["enabled"] is wanted
    tag = {"scheduler": {"customScheduler": {"image": {"tag": "v1.35.3-eks-1-35-4"}}}}
    (warning,) = validate(NeuronAddonsArgs(**ARGS, scheduler_extension=True))
    assert (warning.path, warning.severity.value) == ("scheduler_extension", "warn")
    assert validate(NeuronAddonsArgs(**ARGS, scheduler_extension=True, neuron_values=tag)) == []
    # Values of the user are laid over the stack's.
    over = {"devicePlugin": {"resources": {"limits": {"memory": "1Gi"}}}, "npd": {"enabled": True}}
    values = installed(record, neuron_values=over)["neuron"].inputs["values"]
    assert values["devicePlugin"]["resources"]["limits"] == {"cpu": "200m", "memory": "1Gi"}
    assert NEURON_TOLERATION in values["devicePlugin"]["tolerations"]
    assert values["npd"]["enabled"] is True
    assert values["npd"]["namespaceOverride"] == "kube-system", "its own namespace is nowhere made"


@pytest.mark.parametrize("region", ["us-west-2", "af-south-1", "cn-north-1", "us-gov-west-1"])
def test_efa_plugins_image_comes_from_the_regions_own_registry(record, region):
    plugin = installed(record, region=region)["aws-efa-k8s-device-plugin"].inputs
    expected = f"{regions.eks_image_registry(region)}/eks/aws-efa-k8s-device-plugin"
    assert plugin["values"]["image"] == {"repository": expected}


def test_efa_plugin_runs_on_efa_types_including_gpus(record):
    for none in ({"instance_types": ("trn1.2xlarge",)}, {"efa_instance_types": ()}):
        assert "aws-efa-k8s-device-plugin" not in installed(record, **none)
    mixed = ("trn1.32xlarge", "p4d.24xlarge")
    for more, types, taints in (
        ({"instance_types": ("trn1.2xlarge", "trn1.32xlarge")}, ["trn1.32xlarge"], {"aws.amazon.com/neuron"}),
        ({"efa_instance_types": mixed}, sorted(mixed), {"aws.amazon.com/neuron", "nvidia.com/gpu"}),
    ):
        plugin = installed(record, **more)["aws-efa-k8s-device-plugin"].inputs
        values = plugin["values"]
        assert values["supportedInstanceLabels"] == {"keys": ["node.kubernetes.io/instance-type"], "values": types}
        assert {each["key"] for each in values["tolerations"]} == taints
        assert set(values["resources"]) == {"requests", "limits"}
        assert plugin["repositoryOpts"] == {"repo": versions.CHARTS["aws-efa-k8s-device-plugin"].repository}


def test_monitor_knows_every_neuron_type_of_catalogue_and_config(record):
    """R62: upstream's own manifest leaves trn2 out without a word."""
    catalogue = with_entries(CATALOGUE, {"trn3.48xlarge": {"like": "trn2.48xlarge"}})
    neuron = {name for name, kind in CATALOGUE.items() if kind.family == "neuron"}
    for more, types in (({}, neuron), ({"catalogue": catalogue}, {*neuron, "trn3.48xlarge"})):
        values = installed(record, **more)["neuron-monitor"].inputs["values"]
        assert set(values["instanceTypes"]) == types
        assert values["tolerations"] == [NEURON_TOLERATION]
        assert values["image"] == versions.IMAGES["neuron-monitor"]


def test_monitor_has_a_local_chart_a_privileged_namespace_and_is_optional(record, plain):
    home = one(plain, "Namespace").inputs["metadata"]
    assert home["name"] == "neuron-monitor"
    assert home["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    assert home["annotations"]["trainium-eks/pod-security-reason"]
    monitor = releases(plain)["neuron-monitor"].inputs
    assert monitor["chart"].endswith("charts/neuron-monitor")
    assert not monitor["chart"].startswith("/"), "absolute paths differ between machines"
    assert len(monitor["values"]["chartDigest"]) == 64, "an edit of the chart is seen"
    without = built(record, monitor=False)
    assert "neuron-monitor" not in releases(without)
    assert of_kind(without, "Namespace") == ()
    assert one(without, "NeuronAddons").outputs["monitor_namespace"] == ""
