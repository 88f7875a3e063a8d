"""LustreVolumes: every namespace mounts the file system, and finds its directories there."""

import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from kubernetes_schemas import schema_faults
from unit.components.parts import Record, of_kind, one

from components import LustreVolumes
from components.lustre_volumes import SETUP_SCRIPT, setup_digest
from trainium_eks.plan.graph import Graph, Resource

ARGS: dict[str, Any] = {
    "file_system_id": "fs-1",
    "dns_name": "fs-1.fsx.us-west-2.amazonaws.com",
    "mount_name": "abcdefgh",
    "storage_capacity_gib": 2400,
    "subnet_id": "subnet-1",
    "security_group_id": "sg-1",
    "kms_key_arn": "arn:aws:kms:us-west-2:000000000000:key/k",
    "namespaces": {"training": 1000, "vision": 2000},
}


def volumes(record: Record, *, dry_run: bool = False, **args: Any) -> Graph:
    return record(lambda: LustreVolumes("volumes", {**ARGS, **args}) and None, dry_run=dry_run)


def dynamic_class(graph: Graph) -> Resource:
    """The class that makes volumes on demand."""
    return next(each for each in of_kind(graph, "StorageClass") if each.inputs["metadata"]["name"] == "fsx")


def specs(graph: Graph) -> dict[str, dict[str, Any]]:
    """Volume spec by the namespace it is for."""
    found = [each.inputs["spec"] for each in of_kind(graph, "PersistentVolume")]
    return {spec["claimRef"]["namespace"]: spec for spec in found}


def test_each_namespace_has_a_volume_for_its_one_claim(record: Record) -> None:
    found = specs(volumes(record))
    assert set(found) == {"training", "vision", "lustre-setup"}
    for spec in found.values():
        assert spec["claimRef"]["name"] == "fsx-claim"
        assert spec["persistentVolumeReclaimPolicy"] == "Retain"
        assert spec["accessModes"] == ["ReadWriteMany"]
        assert spec["mountOptions"] == ["flock"]
        assert spec["capacity"] == {"storage": "2400Gi"}
        assert spec["storageClassName"] == "fsx-shared"
        assert spec["csi"]["driver"] == "fsx.csi.aws.com"
        assert spec["csi"]["volumeAttributes"]["dnsname"] == ARGS["dns_name"]
        assert spec["csi"]["volumeHandle"].startswith("fs-1::")
    assert len({spec["csi"]["volumeHandle"] for spec in found.values()}) == 3, "two look the same to a node"


def test_a_team_sees_its_own_directory_and_only_the_setup_sees_the_root(record: Record) -> None:
    """Directories lie where what is linked to S3 lies."""
    for root, below in ((None, ""), ("/linked/", "/linked")):
        graph = volumes(record, **({"root": root} if root else {}))
        found = {name: spec["csi"]["volumeAttributes"]["mountname"] for name, spec in specs(graph).items()}
        assert found == {
            "training": f"abcdefgh{below}/training",
            "vision": f"abcdefgh{below}/vision",
            "lustre-setup": "abcdefgh",
        }
        (container,) = one(graph, "Job").inputs["spec"]["template"]["spec"]["containers"]
        assert container["command"][-1] == f"/lustre{below}"


def test_storage_class_says_all_that_the_driver_would_get_wrong_and_only_in_text(record: Record) -> None:
    graph = volumes(record, on_demand=True)
    assert schema_faults(graph) == []
    inputs = dynamic_class(graph).inputs
    assert inputs["provisioner"] == "fsx.csi.aws.com"
    parameters = inputs["parameters"]
    assert [value for value in parameters.values() if not isinstance(value, str)] == []
    expected = {
        "deploymentType": "PERSISTENT_2",
        "fileSystemTypeVersion": "2.15",
        "subnetId": "subnet-1",
        "securityGroupIds": "sg-1",
        "kmsKeyId": ARGS["kms_key_arn"],
    }
    assert {key: parameters.get(key) for key in expected} == expected
    assert inputs["mountOptions"] == ["flock"]
    own = dynamic_class(volumes(record, on_demand=True, kms_key_arn=None)).inputs["parameters"]
    assert "kmsKeyId" not in own, "the key is left to FSx where there is none"


def test_directories_are_made_once_in_a_namespace_of_their_own(record: Record) -> None:
    graph = volumes(record)
    job = one(graph, "Job").inputs
    assert job["metadata"]["namespace"] == "lustre-setup"
    assert "ttlSecondsAfterFinished" not in job["spec"]
    assert job["spec"]["backoffLimit"] == 4
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"] == ["training=1000", "vision=2000"]
    assert ":latest" not in container["image"]
    assert ":" in container["image"]
    assert pod["automountServiceAccountToken"] is False
    labels = one(graph, "Namespace").inputs["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "baseline"


def test_the_setup_pod_fits_the_baseline_level_and_has_no_network(record: Record) -> None:
    graph = volumes(record)
    (container,) = one(graph, "Job").inputs["spec"]["template"]["spec"]["containers"]
    context = container["securityContext"]
    # What Pod Security's baseline level lets a container add.
    allowed = {"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE"}
    assert set(context["capabilities"]["add"]) <= allowed
    assert context["capabilities"]["drop"] == ["ALL"]
    assert context["allowPrivilegeEscalation"] is False
    assert "privileged" not in context
    assert "limits" in container["resources"]
    assert one(graph, "NetworkPolicy").inputs["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


def test_the_job_runs_again_for_a_new_team_or_file_system_and_for_no_other_order(record: Record) -> None:
    def named(**args: Any) -> str:
        return str(one(volumes(record, **args), "Job").inputs["metadata"]["name"])

    assert named() == named(namespaces={"vision": 2000, "training": 1000})
    assert setup_digest(["training=1000", "vision=2000"]) != setup_digest(["training=1000"])
    template = one(volumes(record, file_system_id="fs-2"), "Job").inputs["spec"]["template"]
    assert template["metadata"]["annotations"] == {"trainium-eks/file-system": "fs-2"}


def test_no_claim_makes_a_file_system_unless_asked_for(record: Record) -> None:
    graph = volumes(record)
    shared = one(graph, "StorageClass").inputs
    assert shared["metadata"]["name"] == "fsx-shared"
    assert shared["provisioner"] == "kubernetes.io/no-provisioner"
    assert shared["volumeBindingMode"] == "Immediate"
    assert one(graph, "LustreVolumes").outputs["storage_class_name"] == ""
    # Without namespaces only the storage classes are made.
    graph = volumes(record, namespaces={}, on_demand=True)
    assert len(of_kind(graph, "StorageClass")) == 2
    assert of_kind(graph, "PersistentVolume", "PersistentVolumeClaim", "Job", "Namespace") == ()


# The script itself, on a directory of this machine. Only root may give directories away.
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="giving directories to another user takes root")


def set_up(root: Path, *teams: str) -> None:
    subprocess.run(["/bin/sh", "-c", SETUP_SCRIPT, "directories", str(root), *teams], check=True)


def seen(path: Path) -> tuple[int, int, int]:
    found = path.lstat()
    return found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)


@needs_root
def test_script_gives_each_team_its_directories_those_of_a_link_to_s3_too(tmp_path: Path) -> None:
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
def test_script_run_again_leaves_what_a_team_changed(tmp_path: Path) -> None:
    set_up(tmp_path, "training=1000")
    data = tmp_path / "training" / "data"
    (data / "set.bin").write_text("x")
    data.chmod(0o2750)
    set_up(tmp_path, "training=1000")
    assert seen(data) == (1000, 1000, 0o2750)
    assert (data / "set.bin").read_text() == "x"


@needs_root
def test_script_does_not_follow_a_teams_links(tmp_path: Path) -> None:
    set_up(tmp_path, "training=1000")
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o700)
    (tmp_path / "training" / "data").rmdir()
    (tmp_path / "training" / "data").symlink_to(victim)
    (tmp_path / "training" / "ckpt").rmdir()
    (tmp_path / "training" / "ckpt").symlink_to(tmp_path / "nowhere")
    set_up(tmp_path, "training=1000")
    assert seen(victim) == (0, 0, 0o700)
