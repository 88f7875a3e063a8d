"""Gangs of several switches, by Volcano itself: each job as ``trn train`` makes it, submitted as a researcher.

Forty simulated nodes, eight under each leaf switch and 32 under each spine. Leaves are Volcano's tier 1, spines tier 2,
the zone is tier 3.
"""

import json
import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from local_project import LocalProject
from training_jobs import job
from waiting import until

from trainium_eks.jobs.objects import volcano_job
from trainium_eks.jobs.objects.job import Topology
from trainium_eks.local import toolchain
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.model.catalogue.versions import KUBERNETES
from trainium_eks.model.volcano_config import EC2_TOPOLOGY_LABELS
from trainium_eks.topology.tree import hypernodes

pytestmark = pytest.mark.slow

NODES, A_LEAF = 40, 8
ZONE, SPINE, LEAF = EC2_TOPOLOGY_LABELS
DEVICES = CATALOGUE.device_resources("trn1.32xlarge")


class Cloud:
    """A local cloud, and a researcher's way into it."""

    def __init__(self, project: LocalProject) -> None:
        self._project = project
        shown = project.trn("kubeconfig", "--namespace", "training", "--path", "--stack", "local")
        assert shown.returncode == 0, shown.stderr
        self._kubeconfig = shown.stdout.strip()
        self._kubectl = str(
            toolchain.provide(*toolchain.kubernetes(KUBERNETES), progress=lambda _: None)["kubectl"].path
        )
        [self._claim] = [each["metadata"]["name"] for each in self.get("persistentvolumeclaims")]
        self._labels = {each["metadata"]["name"]: each["metadata"]["labels"] for each in project.get("local", "nodes")}

    def hypernodes(self) -> dict[str, Any]:
        """The tree of HyperNodes: name to spec."""
        found = self._project.get("local", "hypernodes.topology.volcano.sh")
        return {each["metadata"]["name"]: each["spec"] for each in found}

    def wanted(self) -> dict[str, Any]:
        """What the nodes' labels ask for."""
        nodes = {each["metadata"]["name"]: each["metadata"]["labels"] for each in self._project.get("local", "nodes")}
        return {name: each["spec"] for name, each in hypernodes(nodes, EC2_TOPOLOGY_LABELS).items()}

    def kubectl(self, *arguments: str, given: str = "") -> str:
        """What kubectl prints for the administrator."""
        return self._project.kubectl("local", *arguments, given=given)

    def get(self, *arguments: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self._run("get", *arguments, "-o", "json"))["items"]
        return found

    def submit(self, name: str, nodes: int, topology: Topology | None) -> None:
        made = job(name=name, nodes=nodes, topology=topology, claim=self._claim)
        self._run("create", "-f", "-", given=yaml.safe_dump(volcano_job.manifest(made)))

    def cancel(self, name: str) -> None:
        self._run("delete", "jobs.batch.volcano.sh", name, "--ignore-not-found")
        until(lambda: not self.pods(name), f"the pods of {name} go")

    def pods(self, name: str) -> list[dict[str, Any]]:
        return self.get("pods", "-l", f"volcano.sh/job-name={name}")

    def switches(self, name: str, label: str) -> Counter[str]:
        """How many of a job's pods are under each switch of a layer; empty while not all of them are placed."""
        nodes = [each["spec"].get("nodeName") for each in self.pods(name)]
        return Counter(self._labels[node][label] for node in nodes) if nodes and all(nodes) else Counter()

    def placed(self, name: str, nodes: int, label: str) -> Counter[str]:
        until(lambda: self.switches(name, label).total() == nodes, f"{name} runs")
        return self.switches(name, label)

    def _run(self, *arguments: str, given: str = "") -> str:
        command = [self._kubectl, f"--kubeconfig={self._kubeconfig}", "-n", "training", *arguments]
        shown = subprocess.run(command, input=given, capture_output=True, text=True, timeout=300, check=False)
        assert shown.returncode == 0, shown.stderr
        return shown.stdout


@pytest.fixture(scope="module")
def cloud(
    binaries: Mapping[str, Path], volcano_programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cloud]:
    assert binaries
    assert volcano_programs
    project = LocalProject.of_the_repository(tmp_path_factory.mktemp("topology"))
    project = LocalProject(project.path, {"TRN_VOLCANO": os.environ.get("TRN_VOLCANO", "")})
    project.configure("local")
    try:
        up = project.trn("local", "up", "--nodes", str(NODES))
        assert up.returncode == 0, up.stderr[-3000:]
        report = json.loads((project.path / ".local" / "local" / "report.json").read_text())
        if not report["realVolcano"]:
            pytest.skip(next((each["reason"] for each in report["notInstalled"] if each["name"] == "volcano"), "off"))
        yield Cloud(project)
    finally:
        project.trn("local", "down")


@pytest.fixture
def submit(cloud: Cloud) -> Iterator[Callable[..., str]]:
    """Submits jobs that are gone after the test."""
    names: list[str] = []

    def submitted(nodes: int, topology: Topology | None = None) -> str:
        names.append(f"{topology.mode if topology else 'any'}-{nodes}-{len(names)}")
        cloud.submit(names[-1], nodes, topology)
        return names[-1]

    yield submitted
    for name in names:
        cloud.cancel(name)


def test_up_ends_with_a_hypernode_for_each_switch(cloud: Cloud) -> None:
    found = cloud.hypernodes()
    assert found == cloud.wanted()
    assert Counter(each["tier"] for each in found.values()) == {1: 5, 2: 2, 3: 1}


def test_hypernodes_follow_the_nodes_and_those_of_others_stay(cloud: Cloud) -> None:
    node = cloud.get("nodes", "-l", "node.kubernetes.io/instance-type=trn1.32xlarge")[0]["metadata"]
    leaf = next(name for name, each in cloud.hypernodes().items() if each["tier"] == 1)
    member = {"type": "Node", "selector": {"exactMatch": {"name": "nowhere"}}}
    by_label = {"volcano.sh/network-topology-source": "label"}
    others = [
        {
            "apiVersion": "topology.volcano.sh/v1alpha1",
            "kind": "HyperNode",
            "metadata": {"name": name, "labels": labels},
            "spec": {"tier": 1, "members": [member]},
        }
        for name, labels in (("a-persons", {}), ("hypernode-ec2-tier1-b2c4d", by_label))
    ]
    cloud.kubectl("create", "-f", "-", given=yaml.safe_dump_all(others))
    cloud.kubectl("delete", "hypernodes.topology.volcano.sh", leaf)
    cloud.kubectl("label", "--overwrite", "node", node["name"], f"{LEAF}=nn-another")
    try:
        until(lambda: cloud.hypernodes() == {**cloud.wanted(), "a-persons": others[0]["spec"]}, "they are as the nodes")
        assert len(cloud.wanted()) == 5 + 2 + 1 + 1
    finally:
        cloud.kubectl("label", "--overwrite", "node", node["name"], f"{LEAF}={node['labels'][LEAF]}")
        cloud.kubectl("delete", "hypernodes.topology.volcano.sh", "a-persons")
    until(lambda: cloud.hypernodes() == cloud.wanted(), "they are as before")


def test_what_a_gang_needs_stands_in_its_pod_group(cloud: Cloud, submit: Callable[..., str]) -> None:
    """By it queues admit gangs and idle nodes are kept for them, before there are pods."""
    name = submit(2)

    def found() -> list[dict[str, Any]]:
        groups = cloud.get("podgroups.scheduling.volcano.sh")
        return [each["spec"] for each in groups if each["metadata"]["ownerReferences"][0]["name"] == name]

    until(found, f"Volcano makes a PodGroup for {name}")
    [spec] = found()
    asked = {resource: amount for resource, amount in spec["minResources"].items() if resource in DEVICES}
    assert asked == {resource: str(2 * count) for resource, count in DEVICES.items()}


def test_hard_tier_1_takes_one_leaf_with_all_its_nodes(cloud: Cloud, submit: Callable[..., str]) -> None:
    name = submit(A_LEAF, Topology("hard", 1))
    assert len(cloud.placed(name, A_LEAF, LEAF)) == 1


def test_hard_tier_1_with_more_nodes_than_a_leaf_has_waits_as_a_whole(cloud: Cloud, submit: Callable[..., str]) -> None:
    name = submit(A_LEAF + 1, Topology("hard", 1))
    until(lambda: _unschedulable(cloud, name), "Volcano says that it cannot be placed")
    assert not any(each["spec"].get("nodeName") for each in cloud.pods(name))
    # It does not hold up others.
    small = submit(2, Topology("hard", 1))
    assert len(cloud.placed(small, 2, LEAF)) == 1


def test_hard_tier_2_stays_under_one_spine(cloud: Cloud, submit: Callable[..., str]) -> None:
    name = submit(20, Topology("hard", 2))
    assert len(cloud.placed(name, 20, SPINE)) == 1
    assert len(cloud.switches(name, LEAF)) == 3


def test_what_no_spine_has_room_for_needs_tier_3(cloud: Cloud, submit: Callable[..., str]) -> None:
    waits = submit(33, Topology("hard", 2))
    until(lambda: _unschedulable(cloud, waits), "Volcano says that it cannot be placed")
    assert not any(each["spec"].get("nodeName") for each in cloud.pods(waits))
    cloud.cancel(waits)
    runs = submit(33, Topology("hard", 3))
    assert len(cloud.placed(runs, 33, SPINE)) == 2


def test_soft_takes_few_leaves_and_runs_where_hard_would_wait(cloud: Cloud, submit: Callable[..., str]) -> None:
    name = submit(A_LEAF + 1, Topology("soft", 1))
    assert len(cloud.placed(name, A_LEAF + 1, LEAF)) == 2


def test_a_leaf_that_others_use_is_too_small_and_another_one_is_taken(cloud: Cloud, submit: Callable[..., str]) -> None:
    first = submit(A_LEAF - 2, Topology("hard", 1))
    [used] = cloud.placed(first, A_LEAF - 2, LEAF)
    second = submit(A_LEAF - 2, Topology("hard", 1))
    [other] = cloud.placed(second, A_LEAF - 2, LEAF)
    assert other != used


def _unschedulable(cloud: Cloud, name: str) -> bool:
    groups = cloud.get("podgroups.scheduling.volcano.sh")
    mine = [each for each in groups if each["metadata"]["name"].startswith(f"{name}-")]
    conditions = [each for group in mine for each in group.get("status", {}).get("conditions") or ()]
    return any(each["type"] == "Unschedulable" and each["status"] == "True" for each in conditions)
