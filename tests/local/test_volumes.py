"""Claims of the shared file system end by themselves, whatever pods mount them: with the real pvc-protection."""

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from local_project import LocalProject

from trainium_eks.model import lustre

# The file system's id and the teams come by the stack's config, so that a test changes nothing else.
PROGRAM = """\
import pulumi
import pulumi_kubernetes as k8s

from components import LustreVolumes, TrainingNamespace

config = pulumi.Config()
file_system, teams = config.get("fileSystem"), config.get_object("teams") or []
provider = k8s.Provider("cluster", kubeconfig="{}")
opts = pulumi.ResourceOptions(providers=[provider])
volumes = None
if file_system:
    args = {
        "file_system_id": file_system,
        "dns_name": f"{file_system}.fsx.us-west-2.amazonaws.com",
        "mount_name": "abcdefgh",
        "storage_capacity_gib": 1200,
        "subnet_id": "subnet-1",
        "security_group_id": "sg-1",
        "namespaces": {name: 1000 + index for index, name in enumerate(teams)},
    }
    # What a claim is made from is unknown until the volume is there, as with a file system of the stack.
    volumes = LustreVolumes("volumes", args, opts)
for name in teams:
    shared = {
        "volume_name": volumes.volume_name(name),
        "volume_gib": 1200,
        "volume_class": volumes.shared_class_name,
    } if volumes else {}
    room = {"name": name, "queues": ["test"], "region": "us-west-2", "cluster_name": "local", **shared}
    TrainingNamespace(name, room, opts)
"""

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1", "annotations": {"kwok.x-k8s.io/node": "fake"}},
    "status": {
        "capacity": {"cpu": "8", "memory": "8Gi", "pods": "20"},
        "allocatable": {"cpu": "8", "memory": "8Gi", "pods": "20"},
    },
}

SECONDS = 200
"""Each command ends within; a claim that waited for its pods would take five minutes."""


class Stack:
    """The program with one file system and the teams that a test names."""

    def __init__(self, project: LocalProject) -> None:
        self.project = project

    def up(self, *teams: str, file_system: str = "fs-1") -> "tuple[int, str]":
        """`trn local up`: its exit code and what it said."""
        values = {"small:fileSystem": file_system, "small:teams": json.dumps(teams)}
        (self.project.path / "Pulumi.dev.yaml").write_text(json.dumps({"config": values}))
        begun = time.monotonic()
        shown = self.project.trn("local", "up", "--stack", "dev")
        assert time.monotonic() - begun < SECONDS, shown.stderr
        return shown.returncode, shown.stdout + shown.stderr

    def get(self, *arguments: str) -> list[dict[str, Any]]:
        return self.project.get("dev", *arguments)

    def apply(self, manifest: Mapping[str, Any]) -> None:
        file = self.project.path / "manifest.json"
        file.write_text(json.dumps(manifest))
        self.project.kubectl("dev", "apply", "-f", str(file))

    def run_pod(self, team: str, *, finishes: bool) -> None:
        """A pod that mounts the team's claim; it runs, or has run."""
        owner = {"jobs": "yes"}
        pod = {
            "metadata": {"labels": owner},
            "spec": {
                "restartPolicy": "Never",
                "containers": [
                    {"name": "main", "image": "x", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
                ],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": lustre.CLAIM}}],
            },
        }
        # kwok ends the pods of Jobs, and lets others run.
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train", "namespace": team}}
        bare = {"apiVersion": "v1", "kind": "Pod", **pod, "metadata": {"name": "train", "namespace": team}}
        self.apply({**job, "spec": {"template": pod}} if finishes else bare)
        wanted = "Succeeded" if finishes else "Running"
        deadline = time.monotonic() + 30
        while [each["status"]["phase"] for each in self.get("pods", "-n", team)] != [wanted]:
            assert time.monotonic() < deadline, self.get("pods", "-n", team)
            time.sleep(0.2)

    def claims(self) -> dict[str, str]:
        """Namespace to the handle of the volume that its claim is bound to."""
        handles = {each["metadata"]["name"]: each["spec"]["csi"]["volumeHandle"] for each in self.get("pv")}
        return {
            each["metadata"]["namespace"]: handles[each["spec"]["volumeName"]]
            for each in self.get("pvc", "-A")
            if each["status"]["phase"] == "Bound" and "deletionTimestamp" not in each["metadata"]
        }


@pytest.fixture(scope="module")
def stack(binaries: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A control plane with a node."""
    assert binaries
    stack = Stack(LocalProject.small(tmp_path_factory.mktemp("volumes") / "project", PROGRAM))
    code, said = stack.up(file_system="")
    try:
        assert code == 0, said
        stack.apply(NODE)
        yield stack
    finally:
        stack.project.trn("local", "down", "--stack", "dev")


def succeeded(answer: "tuple[int, str]") -> str:
    code, said = answer
    assert code == 0, said
    return said


@pytest.mark.parametrize("finishes", [True, False], ids=["finished", "running"])
def test_a_namespace_goes_with_the_pods_that_hold_its_claim(stack: Stack, finishes: bool) -> None:
    succeeded(stack.up("vision", "speech"))
    assert stack.claims() == {team: f"fs-1::{team}" for team in ("vision", "speech", "lustre-setup")}
    stack.run_pod("speech", finishes=finishes)
    succeeded(stack.up("vision"))
    assert set(stack.claims()) == {"vision", "lustre-setup"}
    assert "speech" not in {each["metadata"]["name"] for each in stack.get("namespaces")}
    assert {each["spec"]["claimRef"]["namespace"] for each in stack.get("pv")} == {"vision", "lustre-setup"}


def test_another_file_system_replaces_the_setups_claim_though_its_finished_pod_holds_it(stack: Stack) -> None:
    succeeded(stack.up("vision"))
    before = {each["metadata"]["uid"] for each in stack.get("jobs", "-n", "lustre-setup")}
    assert [each["status"]["phase"] for each in stack.get("pods", "-n", "lustre-setup")] == ["Succeeded"]
    succeeded(stack.up("vision", file_system="fs-2"))
    assert stack.claims() == {"vision": "fs-2::vision", "lustre-setup": "fs-2::lustre-setup"}
    (job,) = stack.get("jobs", "-n", "lustre-setup")
    assert job["metadata"]["uid"] not in before
    assert job["status"]["succeeded"] == 1


@pytest.mark.parametrize("finishes", [True, False], ids=["finished", "running"])
def test_a_teams_pod_stops_the_replacement_at_once_and_keeps_its_claim(stack: Stack, finishes: bool) -> None:
    succeeded(stack.up("vision", file_system="fs-1"))
    stack.run_pod("vision", finishes=finishes)
    code, said = stack.up("vision", file_system="fs-2")
    assert code == 1
    assert "PersistentVolumeClaim vision/fsx-claim is not deleted while pods hold it" in said
    assert ("Succeeded" if finishes else "Running") in said
    assert stack.claims()["vision"] == "fs-1::vision"
    stack.project.kubectl("dev", "delete", "-n", "vision", "job/train" if finishes else "pod/train")
    succeeded(stack.up("vision", file_system="fs-2"))
    assert stack.claims() == {"vision": "fs-2::vision", "lustre-setup": "fs-2::lustre-setup"}


def test_a_file_system_that_goes_is_stopped_by_pods_and_goes_after_them(stack: Stack) -> None:
    succeeded(stack.up("vision"))
    stack.run_pod("vision", finishes=True)
    code, said = stack.up("vision", file_system="")
    assert code == 1
    assert "PersistentVolumeClaim vision/fsx-claim is not deleted while pods hold it" in said
    stack.project.kubectl("dev", "delete", "-n", "vision", "job/train")
    succeeded(stack.up("vision", file_system=""))
    assert stack.claims() == {}
    assert stack.get("pv") == []


def test_everything_goes_with_finished_and_running_pods_in_place(stack: Stack) -> None:
    succeeded(stack.up("vision", "speech"))
    stack.run_pod("vision", finishes=True)
    stack.run_pod("speech", finishes=False)
    succeeded(stack.up(file_system=""))
    assert stack.get("pv") == []
    assert stack.get("pvc", "-A") == []
    left = {each["metadata"]["name"] for each in stack.get("namespaces")}
    assert left == {"default", "kube-system", "kube-public", "kube-node-lease"}
