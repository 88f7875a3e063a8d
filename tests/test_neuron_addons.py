"""NeuronAddons under Pulumi's mocks: an example to copy for your own stack."""

import pulumi
import pulumi_kubernetes as k8s
import pytest
from mocks import Mocks

from trainium_eks import NeuronAddons


@pytest.fixture
def mocks():
    with Mocks.set() as mocks:
        yield mocks


def neuron_addons():
    provider = k8s.Provider("cluster", kubeconfig="{}")
    args = {"region": "us-west-2", "instance_types": ["trn1.32xlarge"]}
    return NeuronAddons("neuron", args, pulumi.ResourceOptions(providers=[provider]))  # type: ignore[arg-type]


def test_eks_node_repair_is_the_only_repair_controller(mocks):
    pulumi.runtime.test(neuron_addons)()  # returns when everything is registered
    plugin = mocks.of_type("kubernetes:helm.sh/v3:Release")["neuron-device-plugin"]
    assert plugin["values"]["npd"]["enabled"] is False
    assert plugin["namespace"] == "kube-system"


@pulumi.runtime.test
def test_monitor_namespace_is_an_output(mocks):
    def check(namespace):
        assert namespace == "neuron-monitor"

    return neuron_addons().monitor_namespace.apply(check)
