"""The gate in a stack: which nodes have its taint, which pods tolerate it, and its controller's settings."""

import json
import os
import subprocess
import sys

import pytest
from unit.components.parts import STACK, of_kind, one

from components import TrainingStack, _fabric_gate, _hypernodes, idle_guard
from trainium_eks.model.catalogue.instances import FABRIC_UNTESTED

KEY = FABRIC_UNTESTED.key
CONFIG = {
    **STACK,
    "cluster": {**STACK["cluster"], "cpu_nodes": {"ignore_desired_size": True}},
    "node_groups": [
        {"name": "ng", "instance_type": "trn1.32xlarge", "ignore_desired_size": True},
        {"name": "gpus", "instance_type": "p5.48xlarge"},
    ],
    "autoscaling": {
        "cluster_autoscaler": {"accelerator_groups": ["ng"]},
        "karpenter": {"cpu_limit": 0, "accelerator_pools": [{"name": "pool", "instance_type": "trn1n.32xlarge"}]},
    },
    "observability": {"metrics": {}},
}
IMAGES = {"trn1": "local/torch", "cuda": "123456789012.dkr.ecr.us-west-2.amazonaws.com/training:cuda-1"}


@pytest.fixture(scope="module")
def gated(record):
    """A stack with both families, both autoscalers and the gate, recorded once."""
    return record(lambda: TrainingStack("trn-dev", {**CONFIG, "fabric_gate": {"images": IMAGES}}), dry_run=False)


def naming(graph):
    """Return the names of resources that name the gate's taint; policies of teams refuse it in any stack."""
    found = [each for each in graph.resources if "Policy" not in each.type]
    return [each.name for each in found if KEY in json.dumps(each.inputs, default=str)]


def test_accelerator_nodes_join_tainted_and_count_as_capacity(record, gated):
    assert naming(record(lambda: TrainingStack("trn-dev", CONFIG))) == [], "without the gate"
    found = {
        each.inputs["labels"]["trainium-eks/pool"]: [taint["key"] for taint in each.inputs.get("taints") or ()]
        for each in of_kind(gated, "NodeGroup")
    }
    assert found == {"ng": ["aws.amazon.com/neuron", KEY], "gpus": ["nvidia.com/gpu", KEY], "system": [], "cpu": []}
    spec = one(gated, "NodePool").inputs["spec"]["template"]["spec"]
    joins = [[each["key"] for each in spec[key]] for key in ("taints", "startupTaints")]
    assert joins == [["aws.amazon.com/neuron"], [KEY]]
    assert one(gated, "Release", "autoscaler-release").inputs["values"]["extraArgs"]["startup-taint"] == KEY
    # Every daemon of such nodes tolerates it: without its device plugin a node has no devices, and is never tested.
    nodes = {"cluster-ng-nodes", "cluster-gpus-nodes", "karpenter-pool"}
    found = {name.removeprefix("trn-dev-") for name in naming(gated)}
    assert found - nodes - {"autoscaler-release", "fabric"} == {
        "cluster-eks-node-monitoring-agent",
        "gpu-dcgm-exporter",
        "gpu-device-plugin",
        "metrics-efa-exporter",
        "neuron-device-plugin",
        "neuron-efa-device-plugin",
        "neuron-monitor",
    }


def test_controllers_settings_list_every_pool(gated):
    (container,) = one(gated, "Deployment", "fabric").inputs["spec"]["template"]["spec"]["containers"]
    settings = json.loads(next(each["value"] for each in container["env"] if each["name"] == "SETTINGS"))
    assert settings["taint"]["key"] == KEY
    assert settings["pools"].keys() == {"ng", "gpus", "pool"}
    pods = {name: each["template"]["spec"] for name, each in settings["pools"].items()}
    assert all(KEY in [each["key"] for each in pod["tolerations"]] for pod in pods.values())
    (gpu,) = pods["gpus"]["containers"]
    assert gpu["image"] == IMAGES["cuda"]
    assert gpu["resources"]["limits"] == {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32"}
    backend = {"name": "TRN_BACKEND", "value": "cuda"}
    assert (backend in gpu["env"], "--nproc_per_node 8" in gpu["command"][-1]) == (True, True)


@pytest.mark.parametrize("home", [_fabric_gate, _hypernodes, idle_guard])
def test_every_module_imports_with_only_the_standard_library(home, tmp_path):
    program = home.PROGRAM
    items, sources = program.volume("code").config_map.items, program.sources()
    for item in items:
        file = tmp_path / item.path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(sources[item.key])
    imports = "; ".join(f"import trainium_eks.{module}" for module in program.modules)
    # -S: without the packages of this environment, the library itself among them.
    command = [sys.executable, "-S", "-c", imports]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
