"""The cluster of `examples/production` on this machine, in the network of the other stack."""

import re
import shutil

import pytest
from local_project import ROOT, LocalProject

pytestmark = pytest.mark.slow


def test_production_uses_the_network_of_the_other_stack(binaries, tmp_path):
    shutil.copytree(ROOT / "examples" / "production" / "cluster", tmp_path / "cluster")
    project = LocalProject(tmp_path / "cluster")
    with project.up("prod") as said:
        assert "prod: no fault found" in said
        zones = {each["metadata"]["labels"].get("topology.k8s.aws/zone-id") for each in project.get("prod", "nodes")}
        named = re.findall(r'"zoneId": "([a-z0-9-]+)"', (project.path / "network.json").read_text())
        assert zones <= {*named}, "nodes are in the zones of the adopted subnets"
        assert project.outputs("prod")["queueNames"] == ["pretraining", "research"]
