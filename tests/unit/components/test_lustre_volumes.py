"""LustreVolumes: every namespace mounts the file system, and finds its directories there."""

import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulumi
import pytest
from kubernetes_schemas import schema_faults

from components import ArgumentError, LustreVolumes
from components.lustre_volumes import SETUP_SCRIPT, setup_digest
from trainium_eks.plan.graph import Graph, Resource

VOLUME = "kubernetes:core/v1:PersistentVolume"
CLAIM = "kubernetes:core/v1:PersistentVolumeClaim"
CLASS = "kubernetes:storage.k8s.io/v1:StorageClass"
JOB = "kubernetes:batch/v1:Job"
NAMESPACE = "kubernetes:core/v1:Namespace"

Record = Callable[..., Graph]

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


def one(graph: Graph, type_: str) -> Resource:
    (found,) = graph.of_type(type_)
    return found


def dynamic_class(graph: Graph) -> Resource:
    """The class that makes volumes on demand."""
    return next(each for each in graph.of_type(CLASS) if each.inputs["metadata"]["name"] == "fsx")


def specs(graph: Graph) -> dict[str, dict[str, Any]]:
    """Volume spec by the namespace it is for."""
    found = [each.inputs["spec"] for each in graph.of_type(VOLUME)]
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


def mounted(graph: Graph) -> dict[str, str]:
    """What a volume mounts, by the namespace it is for."""
    return {name: spec["csi"]["volumeAttributes"]["mountname"] for name, spec in specs(graph).items()}


def test_a_team_sees_its_own_directory_and_only_the_setup_sees_the_root(record: Record) -> None:
    assert mounted(volumes(record)) == {
        "training": "abcdefgh/training",
        "vision": "abcdefgh/vision",
        "lustre-setup": "abcdefgh",
    }


def test_directories_lie_where_what_is_linked_to_s3_lies(record: Record) -> None:
    graph = volumes(record, root="/linked/")
    assert mounted(graph)["training"] == "abcdefgh/linked/training"
    assert mounted(graph)["lustre-setup"] == "abcdefgh"
    (container,) = one(graph, JOB).inputs["spec"]["template"]["spec"]["containers"]
    assert container["command"][-1] == "/lustre/linked"


def test_a_volume_is_made_once_its_directory_is_there(record: Record) -> None:
    graph = volumes(record)
    job = one(graph, JOB).urn
    waits = {each.inputs["spec"]["claimRef"]["namespace"]: job in each.dependencies for each in graph.of_type(VOLUME)}
    assert waits == {"training": True, "vision": True, "lustre-setup": False}


def test_a_new_claim_is_a_new_job_so_that_the_engine_deletes_the_job_first(record: Record) -> None:
    """A dependency alone would leave the finished pod there, and the pod would hold the claim for ever."""
    graph = volumes(record)
    job, claim = one(graph, JOB), one(graph, CLAIM)
    assert claim.urn in job.property_dependencies["spec"]
    (volume,) = job.inputs["spec"]["template"]["spec"]["volumes"]
    assert volume["persistentVolumeClaim"] == {"claimName": "fsx-claim"}


def test_the_setup_namespace_goes_before_the_volume_of_its_claim(record: Record) -> None:
    graph = volumes(record)
    own = next(each for each in graph.of_type(VOLUME) if each.inputs["spec"]["claimRef"]["namespace"] == "lustre-setup")
    home = one(graph, NAMESPACE)
    assert own.urn in home.dependencies
    assert own.urn not in {urn for urns in home.property_dependencies.values() for urn in urns}


def test_what_is_in_the_setup_namespace_goes_with_it(record: Record) -> None:
    graph = volumes(record)
    home = one(graph, NAMESPACE).urn
    inside = [
        each for each in graph.resources if (each.inputs.get("metadata") or {}).get("namespace") == "lustre-setup"
    ]
    assert {each.type.rpartition(":")[2] for each in inside} == {"NetworkPolicy", "PersistentVolumeClaim", "Job"}
    assert {each.options.deleted_with for each in inside} == {home}
    assert one(graph, CLAIM).options.custom_timeouts == {"delete": "5m"}


def test_static_volumes_have_a_class_that_makes_none(record: Record) -> None:
    graph = volumes(record)
    shared = next(each for each in graph.of_type(CLASS) if each.inputs["metadata"]["name"] == "fsx-shared")
    assert shared.inputs["provisioner"] == "kubernetes.io/no-provisioner"
    assert shared.inputs["volumeBindingMode"] == "Immediate"


def test_no_two_volumes_look_the_same_to_a_node(record: Record) -> None:
    handles = [spec["csi"]["volumeHandle"] for spec in specs(volumes(record)).values()]
    assert len(set(handles)) == 3
    assert all(handle.startswith("fs-1::") for handle in handles)


def test_storage_class_says_all_that_the_driver_would_get_wrong_and_only_in_text(record: Record) -> None:
    inputs = dynamic_class(volumes(record, on_demand=True)).inputs
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


def test_storage_class_leaves_the_key_to_fsx_when_there_is_none(record: Record) -> None:
    assert "kmsKeyId" not in dynamic_class(volumes(record, on_demand=True, kms_key_arn=None)).inputs["parameters"]


def test_directories_are_made_once_in_a_namespace_of_their_own(record: Record) -> None:
    graph = volumes(record)
    job = one(graph, JOB).inputs
    assert job["metadata"]["namespace"] == "lustre-setup"
    assert "ttlSecondsAfterFinished" not in job["spec"]
    assert job["spec"]["backoffLimit"] == 4
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"] == ["training=1000", "vision=2000"]
    assert ":latest" not in container["image"]
    assert ":" in container["image"]
    assert pod["automountServiceAccountToken"] is False
    labels = one(graph, NAMESPACE).inputs["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "baseline"


def test_the_setup_pod_fits_the_baseline_level(record: Record) -> None:
    (container,) = one(volumes(record), JOB).inputs["spec"]["template"]["spec"]["containers"]
    context = container["securityContext"]
    # What Pod Security's baseline level lets a container add.
    allowed = {"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE"}
    assert set(context["capabilities"]["add"]) <= allowed
    assert context["capabilities"]["drop"] == ["ALL"]
    assert context["allowPrivilegeEscalation"] is False
    assert "privileged" not in context
    assert "limits" in container["resources"]


def test_setup_has_no_network(record: Record) -> None:
    (policy,) = volumes(record).of_type("kubernetes:networking.k8s.io/v1:NetworkPolicy")
    assert policy.inputs["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


def test_a_new_team_gets_its_directories_and_old_ones_change_nothing() -> None:
    before = setup_digest(["training=1000"])
    assert setup_digest(["training=1000"]) == before
    assert setup_digest(["training=1000", "vision=2000"]) != before


def test_the_order_of_teams_does_not_run_the_job_again(record: Record) -> None:
    one_way = one(volumes(record), JOB).inputs["metadata"]["name"]
    other = one(volumes(record, namespaces={"vision": 2000, "training": 1000}), JOB).inputs["metadata"]["name"]
    assert one_way == other


def test_a_new_file_system_runs_the_job_again(record: Record) -> None:
    template = one(volumes(record, file_system_id="fs-2"), JOB).inputs["spec"]["template"]
    assert template["metadata"]["annotations"] == {"trainium-eks/file-system": "fs-2"}


def test_setup_mounts_its_own_claim_and_a_bigger_file_system_leaves_the_claim(record: Record) -> None:
    graph = volumes(record)
    claim = one(graph, CLAIM)
    own = next(each for each in graph.of_type(VOLUME) if each.inputs["spec"]["claimRef"]["namespace"] == "lustre-setup")
    assert claim.inputs["spec"]["volumeName"] == own.outputs["metadata"]["name"]
    assert claim.inputs["spec"]["storageClassName"] == own.inputs["spec"]["storageClassName"]
    assert claim.options.ignore_changes == ("spec.resources",)
    assert claim.urn in one(graph, JOB).dependencies


def test_no_claim_makes_a_file_system_unless_asked_for(record: Record) -> None:
    graph = volumes(record)
    assert [each.inputs["provisioner"] for each in graph.of_type(CLASS)] == ["kubernetes.io/no-provisioner"]
    assert one(graph, "trainium-eks:index:LustreVolumes").outputs["storage_class_name"] == ""


def test_without_namespaces_only_the_storage_classes_are_made(record: Record) -> None:
    graph = volumes(record, namespaces={}, on_demand=True)
    assert len(graph.of_type(CLASS)) == 2
    assert graph.of_type(VOLUME, CLAIM, JOB, NAMESPACE) == ()


def test_volume_name_is_the_namespaces_own(record: Record) -> None:
    seen: list[str] = []

    def program() -> None:
        made = LustreVolumes("volumes", ARGS)
        made.volume_name("vision").apply(seen.append)
        with pytest.raises(KeyError):
            made.volume_name("nobody")

    graph = record(program)
    vision = next(each for each in graph.of_type(VOLUME) if each.inputs["spec"]["claimRef"]["namespace"] == "vision")
    assert seen == [vision.outputs["metadata"]["name"]]


def test_size_may_come_from_the_file_system(record: Record) -> None:
    graph = volumes(record, storage_capacity_gib=pulumi.Output.from_input(1200))
    assert specs(graph)["training"]["capacity"] == {"storage": "1200Gi"}


def test_every_object_fits_its_schema(record: Record) -> None:
    assert schema_faults(volumes(record)) == []
    assert schema_faults(volumes(record, dry_run=True)) == []


def test_preview_plans_the_same_resources(record: Record) -> None:
    assert [(each.urn, each.options) for each in volumes(record, dry_run=True).resources] == [
        (each.urn, each.options) for each in volumes(record).resources
    ]


@pytest.mark.parametrize(
    ("args", "path"),
    [
        ({"namespaces": {"Team A": 1000}}, 'namespaces["Team A"]'),
        ({"namespaces": {"lustre-setup": 1000}}, "namespaces.lustre-setup"),
        ({"namespaces": {"training": 0}}, "namespaces.training"),
        ({"throughput_per_tib": 200}, "throughput_per_tib"),
        ({"storage_class": "Fast FSx"}, "storage_class"),
        ({"shared_class": "fsx"}, "shared_class"),
        ({"root": "linked"}, "root"),
        ({"root": "/a//b"}, "root"),
        ({"file_system": "fs-1"}, "file_system"),
    ],
)
def test_bad_args_are_refused_by_name(args: dict[str, Any], path: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        LustreVolumes("volumes", {**ARGS, **args})
    assert [problem.path for problem in caught.value.problems] == [path]


# The script itself, on a directory of this machine. Only root may give directories away.
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="giving directories to another user takes root")


def set_up(root: Path, *teams: str) -> None:
    subprocess.run(["/bin/sh", "-c", SETUP_SCRIPT, "directories", str(root), *teams], check=True)


def seen(path: Path) -> tuple[int, int, int]:
    found = path.lstat()
    return found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)


@needs_root
def test_script_gives_each_team_its_directories(tmp_path: Path) -> None:
    set_up(tmp_path, "training=1000", "vision=2000")
    for directory in ("", "data", "ckpt", "cache"):
        assert seen(tmp_path / "training" / directory) == (1000, 1000, 0o2770)
        assert seen(tmp_path / "vision" / directory) == (2000, 2000, 0o2770)


@needs_root
def test_script_makes_the_directory_that_all_are_in(tmp_path: Path) -> None:
    set_up(tmp_path / "linked" / "here", "training=1000")
    assert seen(tmp_path / "linked" / "here" / "training") == (1000, 1000, 0o2770)
    assert seen(tmp_path / "linked") == (0, 0, 0o700)


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
def test_script_takes_over_directories_that_a_link_to_s3_brought_in(tmp_path: Path) -> None:
    (tmp_path / "training" / "data").mkdir(parents=True)
    set_up(tmp_path, "training=1000")
    assert seen(tmp_path / "training") == (1000, 1000, 0o2770)
    assert seen(tmp_path / "training" / "data") == (1000, 1000, 0o2770)


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
