"""VolcanoStack under Pulumi's mocks: an example to copy for your own stack."""

import pulumi
import pulumi_kubernetes as k8s
import pytest
from mocks import Mocks

from trainium_eks import VolcanoStack

NEURON = "aws.amazon.com/neuron"


@pytest.fixture
def mocks():
    with Mocks.set() as mocks:
        yield mocks


@pulumi.runtime.test
def test_a_queue_is_capped_by_the_pool(mocks):
    provider = k8s.Provider("cluster", kubeconfig="{}")
    volcano = VolcanoStack(
        "volcano",
        {
            "queues": [{"name": "research", "capability": {NEURON: 32}}, {"name": "production"}],
            "pool": {NEURON: 64},
        },
        pulumi.ResourceOptions(providers=[provider]),
    )

    def check(names):
        assert names == ["research", "production"]
        queues = {
            each["metadata"]["name"]: each["spec"]
            for each in mocks.of_type("kubernetes:scheduling.volcano.sh/v1beta1:Queue").values()
        }
        assert queues["research"]["capability"][NEURON] == 32
        assert queues["production"]["capability"][NEURON] == 64

    return volcano.queue_names.apply(check)
