"""What an upgrade does, on a small environment built by hand."""

import pytest
from hand_built import changed, environment

from trainium_eks.operate.upgrade.steps import DRAIN_SECONDS, UpgradeStep, disturbance, steps, total_seconds
from trainium_eks.plan.differences import diff
from trainium_eks.plan.graph import Graph
from trainium_eks.plan.resource_types.rows import eks


def upgraded(before: Graph) -> Graph:
    after = changed(before, "control-plane", version="1.36")
    after = changed(after, "cni", addonVersion="v1.23.0")
    for group in ("trn1", "system"):
        after = changed(after, group, version="1.36")
    return after


def found(before: Graph, after: Graph) -> dict[str, UpgradeStep]:
    return {each.change.resource.name: each for each in steps(before, after, diff.compare(before, after))}


def sized(nodes: int, **update: int) -> Graph:
    sizes = {"minSize": 0, "desiredSize": nodes, "maxSize": 8}
    return changed(environment(), "trn1", scalingConfig=sizes, updateConfig=update or None)


def test_control_plane_then_add_ons_then_nodes() -> None:
    by_name = found(environment(), upgraded(environment()))
    assert [step.phase for step in by_name.values()] == ["control plane", "add-on", "node group", "node group"]
    plane, cni, group = by_name["control-plane"], by_name["cni"], by_name["trn1"]
    assert plane.start == 0
    assert cni.start == plane.seconds
    assert group.start == cni.start + cni.seconds


@pytest.mark.parametrize(
    ("nodes", "update", "batches"),
    [
        (2, {}, 2),
        (5, {"maxUnavailable": 2}, 3),
        (8, {"maxUnavailablePercentage": 50}, 2),
        (1, {"maxUnavailablePercentage": 50}, 1),
    ],
)
def test_nodes_go_in_turns(nodes: int, update: dict[str, int], batches: int) -> None:
    before = sized(nodes, **update)
    step = found(before, changed(before, "trn1", version="1.36"))["trn1"]
    assert (step.nodes, step.batches) == (nodes, batches)
    assert step.seconds == batches * eks.ACCELERATOR_GROUP_SECONDS
    assert step.most_seconds == step.seconds + batches * DRAIN_SECONDS
    assert any("a gang on them starts again" in text for text in disturbance(step))


def test_a_resting_group_disturbs_nobody() -> None:
    before = sized(0)
    step = found(before, changed(before, "trn1", version="1.36"))["trn1"]
    assert (step.nodes, step.seconds) == (0, eks.EMPTY_GROUP_SECONDS)
    assert list(disturbance(step)) == ["no nodes now: the next ones are new"]


def test_the_running_nodes_count_not_those_to_come() -> None:
    before = sized(4)
    after = changed(sized(0), "trn1", version="1.36")
    assert found(before, after)["trn1"].nodes == 4


def test_nothing_takes_no_time() -> None:
    assert total_seconds(steps(environment(), environment(), diff.compare(environment(), environment()))) == (0, 0)
