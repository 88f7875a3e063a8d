"""A small program with a file system's volumes and teams, on the local cloud: for tests of how volumes end."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from local_project import LocalProject
from waiting import until

from trainium_eks.model.catalogue import lustre

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


class Stack:
    """The program with one file system and the teams that a test names."""

    def __init__(self, project: LocalProject) -> None:
        self.project = project

    def up(self, *teams: str, file_system: str = "fs-1") -> "tuple[int, str]":
        """`trn local up`: its exit code and what it said."""
        values = {"small:fileSystem": file_system, "small:teams": json.dumps(teams)}
        (self.project.path / "Pulumi.dev.yaml").write_text(json.dumps({"config": values}))
        shown = self.project.trn("local", "up", "--stack", "dev")
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

        def phases() -> list[str]:
            return [each["status"]["phase"] for each in self.get("pods", "-n", team)]

        until(lambda: phases() == [wanted], phases)

    def claims(self) -> dict[str, str]:
        """Namespace to the handle of the volume that its claim is bound to."""
        handles = {each["metadata"]["name"]: each["spec"]["csi"]["volumeHandle"] for each in self.get("pv")}
        return {
            each["metadata"]["namespace"]: handles[each["spec"]["volumeName"]]
            for each in self.get("pvc", "-A")
            if each["status"]["phase"] == "Bound" and "deletionTimestamp" not in each["metadata"]
        }


@contextmanager
def running(directory: Path) -> Iterator[Stack]:
    """A control plane with a node."""
    stack = Stack(LocalProject.small(directory / "project", PROGRAM))
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
