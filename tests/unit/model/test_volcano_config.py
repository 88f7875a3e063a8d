import pytest
import yaml

from trainium_eks.model import volcano_config
from trainium_eks.model.sizing.queues import QueueConfig, VolcanoConfig

NEURON = "aws.amazon.com/neuron"
PLAIN = (QueueConfig(name="test", capability={NEURON: 32}),)


def config(volcano: VolcanoConfig | None = None, queues: tuple[QueueConfig, ...] = PLAIN, rests: bool = False) -> dict:
    """What Volcano reads: the rendered text, parsed again."""
    text = volcano_config.scheduler_yaml(volcano or VolcanoConfig(), queues=queues, rests_at_zero=rests)
    return yaml.safe_load(text)


def actions(volcano: VolcanoConfig | None = None, rests: bool = False) -> list[str]:
    return config(volcano, rests=rests)["actions"].split(", ")


def plugins(volcano: VolcanoConfig | None = None, queues: tuple[QueueConfig, ...] = PLAIN, rests: bool = False) -> set:
    return {plugin["name"] for tier in config(volcano, queues, rests)["tiers"] for plugin in tier["plugins"]}


def held_for_nodes(volcano: VolcanoConfig | None = None, *, rests: bool) -> bool:
    """Return whether some plugin that may keep a job without pods looks at the nodes."""
    every = [plugin for tier in config(volcano, rests=rests)["tiers"] for plugin in tier["plugins"]]
    shares = [plugin for plugin in every if plugin["name"] in ("capacity", "proportion")]
    held = {plugin["name"] for plugin in shares if plugin.get("enableJobEnqueued", True)}
    held |= {plugin["name"] for plugin in every if plugin["name"] == "overcommit"}
    assert len(held) in (0, 2), held
    return bool(held)


def test_a_pool_that_rests_at_zero_gives_pods_to_jobs_without_a_node() -> None:
    """volcano#3910: otherwise no pod exists that could make a node come."""
    assert not held_for_nodes(rests=True)
    assert held_for_nodes(rests=False)


@pytest.mark.parametrize("rests", [True, False])
def test_scale_from_zero_decides_where_it_is_set(rests: bool) -> None:
    assert not held_for_nodes(VolcanoConfig(scale_from_zero=True), rests=rests)
    assert held_for_nodes(VolcanoConfig(scale_from_zero=False), rests=rests)


@pytest.mark.parametrize("rests", [True, False])
def test_reclaim_runs_after_allocate_and_needs_jobs_that_are_not_held_back(rests: bool) -> None:
    assert actions(VolcanoConfig(reclaim=True), rests) == ["enqueue", "allocate", "reclaim", "backfill"]
    assert not held_for_nodes(VolcanoConfig(reclaim=True), rests=rests)


@pytest.mark.parametrize("rests", [True, False])
def test_jobs_wait_without_pods_until_the_quota_has_room_for_them(rests: bool) -> None:
    assert actions(rests=rests) == ["enqueue", "allocate", "backfill"]
    # Last: what another plugin holds back must not be counted.
    assert config(rests=rests)["tiers"][-1]["plugins"][-1] == {"name": "resourcequota"}


@pytest.mark.parametrize("rests", [True, False])
@pytest.mark.parametrize("reclaim", [True, False])
def test_hard_topology_is_always_honoured(rests: bool, reclaim: bool) -> None:
    assert "network-topology-aware" in plugins(VolcanoConfig(reclaim=reclaim), rests=rests)


@pytest.mark.parametrize(
    ("queues", "expected"),
    [
        (PLAIN, "proportion"),
        ((*PLAIN, QueueConfig(name="a", deserved={NEURON: 16})), "capacity"),
        ((*PLAIN, QueueConfig(name="a", guarantee={NEURON: 16})), "capacity"),
        ((), "proportion"),
    ],
)
def test_capacity_replaces_proportion_where_a_queue_says_what_it_deserves(
    queues: tuple[QueueConfig, ...], expected: str
) -> None:
    assert plugins(queues=queues) & {"capacity", "proportion"} == {expected}


def test_gangs_are_no_victims_of_preemption() -> None:
    found = {plugin["name"]: plugin for tier in config()["tiers"] for plugin in tier["plugins"]}
    assert list(found)[:3] == ["priority", "gang", "conformance"]
    assert found["gang"]["enablePreemptable"] is False
    assert found["drf"]["enablePreemptable"] is False


def test_nothing_prefers_empty_nodes_against_binpack() -> None:
    listed = [plugin for tier in config()["tiers"] for plugin in tier["plugins"]]
    [nodeorder] = [plugin for plugin in listed if plugin["name"] == "nodeorder"]
    assert nodeorder["arguments"] == {"leastrequested.weight": 0, "balancedresource.weight": 0}
    assert "binpack" in plugins()
