"""What kwok makes of nodes and pods. `tests/local` has the real kwok play them."""

from typing import Any

import pytest
import yaml

from trainium_eks.local.control_plane.flags import STAGES

DOCUMENTS: list[dict[str, Any]] = list(yaml.safe_load_all(STAGES.read_text()))
BY_NAME = {each["metadata"]["name"]: each for each in DOCUMENTS if each["kind"] == "Stage"}


@pytest.mark.parametrize(
    ("stage", "begins", "ends"),
    [("pod-ready", "Pending", "Running"), ("pod-of-job-succeeded", "Running", "Succeeded")],
)
def test_a_stage_of_a_pod_ends_what_it_begins_with(stage: str, begins: str, ends: str) -> None:
    """Or kwok would play it again with each renewal of the node's lease: 1,000 nodes then never come to rest."""
    spec = BY_NAME[stage]["spec"]
    assert {"key": ".status.phase", "operator": "In", "values": [begins]} in spec["selector"]["matchExpressions"]
    assert f"phase: {ends}\n" in spec["next"]["statusTemplate"]


def test_a_pod_that_is_made_ready_again_is_so_once() -> None:
    spec = BY_NAME["pod-ready-again"]["spec"]
    ready = '.status.conditions.[] | select( .type == "Ready" ) | .status'
    assert {"key": ready, "operator": "In", "values": ["False"]} in spec["selector"]["matchExpressions"]
    assert '- type: Ready\n  status: "True"\n' in spec["next"]["statusTemplate"]


def test_nodes_say_that_they_live_by_leases_and_seldom_by_their_status() -> None:
    assert BY_NAME["node-heartbeat"]["spec"]["delay"]["durationMilliseconds"] >= 600_000


@pytest.mark.parametrize("stage", [name for name in BY_NAME if name.startswith("pod-")])
def test_pods_with_local_images_are_left_to_their_agent(stage: str) -> None:
    expressions = BY_NAME[stage]["spec"]["selector"]["matchExpressions"]
    assert [each["operator"] for each in expressions if 'startswith("local/")' in each["key"]] == ["DoesNotExist"]
