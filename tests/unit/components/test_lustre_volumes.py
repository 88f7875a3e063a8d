"""LustreVolumes: every namespace mounts the file system, and finds its directories there."""

import os
import re
import stat
import subprocess

import pytest
from kubernetes_schemas import schema_faults
from unit.components.parts import LEAST, of_kind, one, recorder

from components import LustreVolumes
from components.lustre_volumes import SETUP_SCRIPT, setup_digest

ARGS = {
    **LEAST["LustreVolumes"],
    "kms_key_arn": "arn:aws:kms:us-west-2:000000000000:key/k",
    "namespaces": {"training": 1000, "vision": 2000},
}
built = recorder(LustreVolumes, "volumes", ARGS)


def specs(graph):
    """Return the specs of volumes by the namespace they are for."""
    found = [each.inputs["spec"] for each in of_kind(graph, "PersistentVolume")]
    return {spec["claimRef"]["namespace"]: spec for spec in found}


def test_each_namespace_has_a_volume_for_its_one_claim(record, plain):
    found = specs(plain)
    assert set(found) == {"training", "vision", "lustre-setup"}
    for spec in found.values():
        assert spec["claimRef"]["name"] == "fsx-claim"
        assert (spec["persistentVolumeReclaimPolicy"], spec["accessModes"]) == ("Retain", ["ReadWriteMany"])
        assert (spec["mountOptions"], spec["storageClassName"]) == (["flock"], "fsx-shared")
        assert (spec["capacity"], spec["csi"]["driver"]) == ({"storage": "2400Gi"}, "fsx.csi.aws.com")
        assert spec["csi"]["volumeAttributes"]["dnsname"] == ARGS["dns_name"]
        assert spec["csi"]["volumeHandle"].startswith("fs-00000001::")
    assert len({spec["csi"]["volumeHandle"] for spec in found.values()}) == 3, "two look the same to a node"
    # No claim makes a file system unless it is asked for.
    shared = one(plain, "StorageClass").inputs
    assert shared["metadata"]["name"] == "fsx-shared"
    assert (shared["provisioner"], shared["volumeBindingMode"]) == ("kubernetes.io/no-provisioner", "Immediate")
    assert one(plain, "LustreVolumes").outputs["storage_class_name"] == ""
    # Without namespaces only the storage classes are made.
    graph = built(record, namespaces={}, on_demand=True)
    assert len(of_kind(graph, "StorageClass")) == 2
    assert of_kind(graph, "PersistentVolume", "PersistentVolumeClaim", "Job", "Namespace") == ()


@pytest.mark.parametrize(("root", "below"), [({}, ""), ({"root": "/linked/"}, "/linked")])
def test_team_mounts_its_directory_and_only_the_setup_the_root(record, root, below):
    """Directories lie where what is linked to S3 lies."""
    graph = built(record, **root)
    found = {name: spec["csi"]["volumeAttributes"]["mountname"] for name, spec in specs(graph).items()}
    teams = {name: f"abcdefgh{below}/{name}" for name in ("training", "vision")}
    assert found == {**teams, "lustre-setup": "abcdefgh"}
    (container,) = one(graph, "Job").inputs["spec"]["template"]["spec"]["containers"]
    assert container["command"][-1] == f"/lustre{below}"


@pytest.mark.parametrize("key", [ARGS["kms_key_arn"], None])
def test_storage_class_sets_every_parameter_as_text(record, key):
    graph = built(record, on_demand=True, kms_key_arn=key)
    assert schema_faults(graph) == []
    classes = {each.inputs["metadata"]["name"]: each.inputs for each in of_kind(graph, "StorageClass")}
    inputs, parameters = classes["fsx"], classes["fsx"]["parameters"]
    assert (inputs["provisioner"], inputs["mountOptions"]) == ("fsx.csi.aws.com", ["flock"])
    assert [value for value in parameters.values() if not isinstance(value, str)] == []
    assert (parameters["deploymentType"], parameters["fileSystemTypeVersion"]) == ("PERSISTENT_2", "2.15")
    assert (parameters["subnetId"], parameters["securityGroupIds"]) == ("subnet-00000001", "sg-00000001")
    # The key is left to FSx where there is none.
    assert parameters.get("kmsKeyId", "none") == (key or "none")


def test_directories_are_made_once_in_their_own_namespace(record, plain):
    job = one(plain, "Job").inputs
    assert job["metadata"]["namespace"] == "lustre-setup"
    assert "ttlSecondsAfterFinished" not in job["spec"]
    assert job["spec"]["backoffLimit"] == 4
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"] == ["training=1000", "vision=2000"]
    assert re.search(r":(?!latest)", container["image"])
    assert pod["automountServiceAccountToken"] is False
    labels = one(plain, "Namespace").inputs["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "baseline"
    context = container["securityContext"]
    # What Pod Security's baseline level lets a container add.
    allowed = {"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE"}
    assert set(context["capabilities"]["add"]) <= allowed
    assert context["capabilities"]["drop"] == ["ALL"]
    assert context["allowPrivilegeEscalation"] is False
    assert "privileged" not in context
    assert "limits" in container["resources"]
    assert one(plain, "NetworkPolicy").inputs["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    # It runs again for a new team or file system, and for no other order.
    turned = built(record, namespaces={"vision": 2000, "training": 1000})
    assert one(turned, "Job").inputs["metadata"]["name"] == one(plain, "Job").inputs["metadata"]["name"]
    assert setup_digest(["training=1000", "vision=2000"]) != setup_digest(["training=1000"])
    template = one(built(record, file_system_id="fs-00000002"), "Job").inputs["spec"]["template"]
    assert template["metadata"]["annotations"] == {"trainium-eks/file-system": "fs-00000002"}


# The script itself, on a directory of this machine. Only root may give directories away.
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="giving directories to another user takes root")


def set_up(root, *teams):
    subprocess.run(["/bin/sh", "-c", SETUP_SCRIPT, "directories", str(root), *teams], check=True)


def seen(path):
    found = path.lstat()
    return found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)


@needs_root
def test_script_makes_each_teams_directories_including_linked_ones(tmp_path):
    root = tmp_path / "linked" / "here"
    (root / "training" / "data").mkdir(parents=True)
    (tmp_path / "linked").chmod(0o700)
    set_up(root, "training=1000", "vision=2000")
    set_up(tmp_path / "made", "training=1000", "vision=2000")
    for place in (root, tmp_path / "made"):
        for directory in ("", "data", "ckpt", "cache"):
            assert seen(place / "training" / directory) == (1000, 1000, 0o2770)
            assert seen(place / "vision" / directory) == (2000, 2000, 0o2770)
    assert seen(tmp_path / "linked") == seen(tmp_path / "made") == (0, 0, 0o700)


@needs_root
def test_second_setup_keeps_a_teams_changes_and_follows_no_links(tmp_path):
    set_up(tmp_path, "training=1000")
    team, victim = tmp_path / "training", tmp_path / "victim"
    (team / "data" / "set.bin").write_text("x")
    (team / "data").chmod(0o2750)
    victim.mkdir(mode=0o700)
    for name, target in (("ckpt", victim), ("cache", tmp_path / "nowhere")):
        (team / name).rmdir()
        (team / name).symlink_to(target)
    set_up(tmp_path, "training=1000")
    assert seen(team / "data") == (1000, 1000, 0o2750)
    assert (team / "data" / "set.bin").read_text() == "x"
    assert seen(victim) == (0, 0, 0o700)
