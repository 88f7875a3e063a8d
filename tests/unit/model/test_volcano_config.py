import pytest
import yaml

from trainium_eks.model import volcano_config
from trainium_eks.model.sizing.queues import QueueConfig, VolcanoConfig

NEURON = "aws.amazon.com/neuron"
PLAIN = (QueueConfig(name="test", capability={NEURON: 32}),)
RESTS_OR_NOT = pytest.mark.parametrize("rests", [True, False])


def config(rests=False, queues=PLAIN, **volcano):
    """What Volcano reads: the rendered text, parsed again."""
    text = volcano_config.scheduler_yaml(VolcanoConfig(**volcano), queues=queues, rests_at_zero=rests)
    return yaml.safe_load(text)


def plugins(*arguments, **volcano):
    tiers = config(*arguments, **volcano)["tiers"]
    return {plugin["name"]: plugin for tier in tiers for plugin in tier["plugins"]}


def held_for_nodes(rests, **volcano):
    """Return whether some plugin that may keep a job without pods looks at the nodes."""
    found = plugins(rests, **volcano)
    shares = found.keys() & {"capacity", "proportion"}
    held = {name for name in shares if found[name].get("enableJobEnqueued", True)} | (found.keys() & {"overcommit"})
    assert len(held) in (0, 2), held
    return bool(held)


@RESTS_OR_NOT
def test_scale_from_zero_pool_enqueues_jobs_unless_configured(rests):
    """volcano#3910: otherwise no pod exists that could make a node come."""
    assert held_for_nodes(rests) is not rests
    assert not held_for_nodes(rests, scale_from_zero=True)
    assert held_for_nodes(rests, scale_from_zero=False)


@RESTS_OR_NOT
def test_reclaim_runs_after_allocate(rests):
    assert config(rests, reclaim=True)["actions"] == "enqueue, allocate, reclaim, backfill"
    assert not held_for_nodes(rests, reclaim=True)
    assert config(rests)["actions"] == "enqueue, allocate, backfill"
    # Last: what another plugin holds back must not be counted. Jobs wait without pods until the quota has room.
    assert config(rests)["tiers"][-1]["plugins"][-1] == {"name": "resourcequota"}
    for reclaim in (True, False):
        assert "network-topology-aware" in plugins(rests, reclaim=reclaim), "hard topology is always honoured"


@pytest.mark.parametrize(
    ("queues", "expected"),
    [
        (PLAIN, "proportion"),
        ((*PLAIN, QueueConfig(name="a", deserved={NEURON: 16})), "capacity"),
        ((*PLAIN, QueueConfig(name="a", guarantee={NEURON: 16})), "capacity"),
        ((), "proportion"),
    ],
)
def test_capacity_plugin_is_used_when_a_queue_has_deserved_and_gangs_stay(queues, expected):
    found = plugins(queues=queues)
    assert found.keys() & {"capacity", "proportion"} == {expected}
    assert list(found)[:3] == ["priority", "gang", "conformance"]
    assert found["gang"]["enablePreemptable"] is found["drf"]["enablePreemptable"] is False
    assert found["nodeorder"]["arguments"] == {"leastrequested.weight": 0, "balancedresource.weight": 0}
    assert "binpack" in found
