"""How volumes, their claims and their teams end, whatever pods mount them: with the real pvc-protection."""

import json

import pytest
from local_project import LocalProject
from manifests import manifest, pod_spec, simulated_node
from waiting import until

from trainium_eks.model.catalogue import lustre

pytestmark = pytest.mark.slow

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
        "subnet_id": "subnet-00000001",
        "security_group_id": "sg-00000001",
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


class Stack:
    """The program with one file system and the teams that a test names."""

    def __init__(self, project):
        self._project = project

    def _up(self, teams, file_system):
        values = {"small:fileSystem": file_system, "small:teams": json.dumps(teams)}
        (self._project.path / "Pulumi.dev.yaml").write_text(json.dumps({"config": values}))
        shown = self._project.trn("local", "up", "--stack", "dev")
        return shown.returncode, shown.stdout + shown.stderr

    def up(self, *teams, file_system="fs-00000001"):
        code, said = self._up(teams, file_system)
        assert code == 0, said

    def is_held(self, *teams, file_system="fs-00000001", by=""):
        """`up` fails at once, because a team's pods hold its claim, and the claim stays."""
        code, said = self._up(teams, file_system)
        assert code == 1
        assert "PersistentVolumeClaim vision/fsx-claim is not deleted while pods hold it" in said
        assert by in said

    def get(self, *arguments):
        return self._project.get("dev", *arguments)

    def kubectl(self, *arguments):
        self._project.kubectl("dev", *arguments)

    def run_pod(self, team, *, finishes):
        """A pod that mounts the team's claim; it runs, or has run. The change that removes the volume."""
        mounted = [{"name": "data", "persistentVolumeClaim": {"claimName": lustre.CLAIM}}]
        pod = pod_spec(restartPolicy="Never", volumes=mounted)
        pod["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
        # kwok ends the pods of Jobs, and lets others run.
        template = {"metadata": {"labels": {"jobs": "yes"}}, "spec": pod}
        kind, spec, wanted = ("Job", {"template": template}, "Succeeded") if finishes else ("Pod", pod, "Running")
        self._project.apply("dev", manifest(kind, "train", team, spec=spec))

        def phases():
            return [each["status"]["phase"] for each in self.get("pods", "-n", team)]

        until(lambda: phases() == [wanted], phases)
        return f"{kind.lower()}/train"

    def claims(self):
        """Namespace to the handle of the volume that its claim is bound to."""
        handles = {each["metadata"]["name"]: each["spec"]["csi"]["volumeHandle"] for each in self.get("pv")}
        return {
            each["metadata"]["namespace"]: handles[each["spec"]["volumeName"]]
            for each in self.get("pvc", "-A")
            if each["status"]["phase"] == "Bound" and "deletionTimestamp" not in each["metadata"]
        }

    def namespaces(self):
        return {each["metadata"]["name"] for each in self.get("namespaces")}

    def volume(self, team):
        [claim] = self.get("pvc", "-n", team)
        return str(claim["spec"]["volumeName"])


@pytest.fixture(scope="module")
def stack(binaries, tmp_path_factory):
    project = LocalProject.small(tmp_path_factory.mktemp("volumes") / "project", PROGRAM)
    with project.up("dev"):
        project.apply("dev", simulated_node("n1"))
        yield Stack(project)


FINISHED_OR_RUNNING = pytest.mark.parametrize("finishes", [True, False], ids=["finished", "running"])


@FINISHED_OR_RUNNING
def test_namespace_is_deleted_with_pods_that_hold_its_claim(stack, finishes):
    stack.up("vision", "speech")
    assert stack.claims() == {team: f"fs-00000001::{team}" for team in ("vision", "speech", "lustre-setup")}
    stack.run_pod("speech", finishes=finishes)
    stack.up("vision")
    assert set(stack.claims()) == {"vision", "lustre-setup"}
    assert "speech" not in stack.namespaces()
    assert {each["spec"]["claimRef"]["namespace"] for each in stack.get("pv")} == {"vision", "lustre-setup"}


def test_file_system_is_deleted_with_running_and_finished_pods(stack):
    stack.up("vision", "speech")
    stack.run_pod("vision", finishes=True)
    stack.run_pod("speech", finishes=False)
    stack.up(file_system="")
    assert stack.get("pv") == []
    assert stack.get("pvc", "-A") == []
    assert stack.namespaces() == {"default", "kube-system", "kube-public", "kube-node-lease"}


def test_new_file_system_replaces_the_setup_claim_of_a_finished_pod(stack):
    stack.up("vision")
    before = {each["metadata"]["uid"] for each in stack.get("jobs", "-n", "lustre-setup")}
    assert [each["status"]["phase"] for each in stack.get("pods", "-n", "lustre-setup")] == ["Succeeded"]
    stack.up("vision", file_system="fs-00000002")
    assert stack.claims() == {"vision": "fs-00000002::vision", "lustre-setup": "fs-00000002::lustre-setup"}
    (job,) = stack.get("jobs", "-n", "lustre-setup")
    assert job["metadata"]["uid"] not in before
    assert job["status"]["succeeded"] == 1


@FINISHED_OR_RUNNING
def test_running_pod_stops_replacement_and_removal_of_its_claim(stack, finishes):
    stack.up("vision", file_system="fs-00000001")
    holder = stack.run_pod("vision", finishes=finishes)
    for other in ("fs-00000002", ""):
        stack.is_held("vision", file_system=other, by="Succeeded" if finishes else "Running")
        assert stack.claims()["vision"] == "fs-00000001::vision"
    stack.kubectl("delete", "-n", "vision", holder)
    stack.up("vision", file_system="fs-00000002")
    assert stack.claims() == {"vision": "fs-00000002::vision", "lustre-setup": "fs-00000002::lustre-setup"}
    stack.up("vision", file_system="")
    assert (stack.claims(), stack.get("pv")) == ({}, [])


def test_terminating_volume_waits_for_a_running_pod_then_is_recreated(stack):
    """It ends when its claim is gone, which waits for pods: said at once, and not after five minutes."""
    stack.up("vision")
    holder = stack.run_pod("vision", finishes=False)
    stack.kubectl("delete", "pv", stack.volume("vision"), "--wait=false")
    stack.is_held("vision")
    stack.kubectl("delete", "-n", "vision", holder)
    stack.up("vision")
    assert stack.claims()["vision"] == "fs-00000001::vision"
    # A claim without its volume is recreated with it.
    name = stack.volume("vision")
    stack.kubectl("delete", "pv", name, "--wait=false")
    stack.kubectl("patch", "pv", name, "-p", '{"metadata": {"finalizers": null}}')
    until(lambda: stack.get("pvc", "-n", "vision")[0]["status"]["phase"] == "Lost", "the claim is lost")
    stack.up("vision")
    assert stack.claims()["vision"] == "fs-00000001::vision"
