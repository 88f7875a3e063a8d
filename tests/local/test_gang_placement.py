"""Where a real Volcano puts gangs of ``trn train``: near each other as asked, or nowhere."""

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from local_project import LocalProject

pytestmark = pytest.mark.skipif(
    shutil.which("vc-scheduler") is None, reason="no Volcano on PATH; docs/local-cloud.md says how to get it"
)

SWITCH = "topology.k8s.aws/network-node-layer-3"
NODES = 20
"""Three switches, of 8, 8 and 4 nodes (``node_pools.NODES_A_LEAF``)."""


@pytest.fixture(scope="module")
def project(binaries: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalProject]:
    """A local cloud with nodes under several switches."""
    assert binaries
    project = LocalProject.of_the_repository(tmp_path_factory.mktemp("placement") / "project")
    project.configure("local")
    shown = project.trn("local", "up", "--nodes", str(NODES))
    try:
        assert shown.returncode == 0, shown.stderr
        yield project
    finally:
        project.trn("local", "down")


def _submit(project: LocalProject, name: str, nodes: int, topology: str, tier: int) -> None:
    """A training that goes on for as long as the test."""
    asked = ("--nodes", str(nodes), "--topology", topology, "--tier", str(tier), "--name", name, "--detach")
    training = ("--example", "gradient-sum", "--image", "local/python")
    result = project.trn("train", *training, *asked, "--", "--steps", "1000", "--step-seconds", "10")
    assert result.returncode == 0, result.stderr


def _pods(project: LocalProject, name: str) -> list[dict[str, Any]]:
    return project.get("local", "pods", "-n", "training", "-l", f"volcano.sh/job-name={name}")


def _switches(project: LocalProject, name: str, nodes: int) -> set[str]:
    """The switches of a gang, once it has all its nodes."""
    labels = {each["metadata"]["name"]: each["metadata"]["labels"] for each in project.get("local", "nodes")}
    for _ in range(120):
        places = [each["spec"].get("nodeName") for each in _pods(project, name)]
        if len(places) == nodes and all(places):
            return {labels[str(place)][SWITCH] for place in places}
        time.sleep(0.25)
    raise AssertionError(f"{name} has no nodes: {json.dumps(_pods(project, name))[:2000]}")


def test_topologies_over_several_switches(project: LocalProject) -> None:
    _submit(project, "near", 2, "hard", 1)
    assert len(_switches(project, "near", 2)) == 1
    _submit(project, "wide", 9, "hard", 2)
    assert len(_switches(project, "wide", 9)) > 1
    # No switch has nine nodes: it waits, whatever is free.
    _submit(project, "never", 9, "hard", 1)
    _submit(project, "rather", 3, "soft", 1)
    assert len(_switches(project, "rather", 3)) == 1
    assert {each["spec"].get("nodeName") for each in _pods(project, "never")} <= {None}
