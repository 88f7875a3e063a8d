"""Claims are bound to the stack's file system, and storage classes are there."""

from collections.abc import Callable
from typing import Any

import pytest
from cluster_snapshots import judged, outputs, the, without

from trainium_eks.operate.verify.check import CheckStatus

CLAIM = "storage/claim/training"
DEFAULT = "storageclass.kubernetes.io/is-default-class"


def test_a_bound_claim_names_its_file_system() -> None:
    check = judged()[CLAIM]
    assert (check.status, check.detail) == (CheckStatus.PASS, "Bound, fs-0123456789abcdef0, 1200 GiB")


def _volume(change: Callable[[dict[str, Any]], object]) -> Callable[[Any], object]:
    return lambda made: change(the(made, "PersistentVolume", "pv-training")["spec"])


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda made: without(made, "PersistentVolumeClaim", "fsx-claim"), "does not exist"),
        (
            lambda made: the(made, "PersistentVolumeClaim", "fsx-claim")["status"].update(phase="Pending"),
            "is Pending, not Bound",
        ),
        (
            lambda made: the(made, "PersistentVolumeClaim", "fsx-claim")["metadata"].update(namespace="other"),
            "does not exist",
        ),
        (lambda made: without(made, "PersistentVolume", "pv-training"), "which does not exist"),
    ],
)
def test_a_claim_that_is_not_bound_fails(spoil: Callable[[Any], object], said: str) -> None:
    check = judged(spoil)[CLAIM]
    assert check.status is CheckStatus.FAIL
    assert said in check.detail


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (_volume(lambda spec: spec["csi"].update(volumeHandle="fs-1::training")), "file system is fs-1, wants fs-01"),
        # The stack's id must be all of it, not how the handle begins.
        (_volume(lambda spec: spec["csi"].update(volumeHandle="fs-0123456789abcdef01")), "file system is fs-"),
        (_volume(lambda spec: spec["csi"].update(driver="efs.csi.aws.com")), "driver is efs.csi.aws.com"),
        (_volume(lambda spec: spec["csi"]["volumeAttributes"].update(dnsname="x")), "DNS name is x"),
        (_volume(lambda spec: spec["csi"]["volumeAttributes"].update(mountname="x")), "directory is x"),
        # The whole file system: every other team's data, too.
        (_volume(lambda spec: spec["csi"]["volumeAttributes"].update(mountname="abcde")), "wants abcde/training"),
        (_volume(lambda spec: spec["capacity"].update(storage="2400Gi")), "capacity is 2400Gi, wants 1200Gi"),
        (_volume(lambda spec: spec.pop("csi")), "driver is none"),
    ],
)
def test_a_claim_bound_to_something_else_says_what_differs(spoil: Callable[[Any], object], fault: str) -> None:
    check = judged(spoil)[CLAIM]
    assert check.status is CheckStatus.FAIL
    assert any(fault in each for each in check.faults), check.faults


def test_a_team_below_the_linked_directory_mounts_its_own_there() -> None:
    shared = outputs().shared_volume
    assert shared is not None
    below = {**dict(shared), "root": "/linked/"}
    mounted = _volume(lambda spec: spec["csi"]["volumeAttributes"].update(mountname="abcde/linked/training"))
    assert judged(mounted, stack=outputs(sharedVolume=below))[CLAIM].status is CheckStatus.PASS
    assert judged(stack=outputs(sharedVolume=below))[CLAIM].status is CheckStatus.FAIL


def test_a_missing_claim_name_fails_where_there_is_a_file_system() -> None:
    team = {"name": "training", "queues": ["test"], "serviceAccount": "trainer", "claim": ""}
    assert judged(stack=outputs(namespaces=[team]))[CLAIM].status is CheckStatus.FAIL


def test_a_stack_without_a_file_system_is_not_said_to_pass() -> None:
    found = judged(stack=outputs(sharedVolume=None))
    assert CLAIM not in found
    assert found["storage/claims"].status is CheckStatus.NOT_APPLICABLE
    assert found["storage/class/fsx"].status is CheckStatus.NOT_APPLICABLE


def test_the_class_of_file_systems_on_demand_must_be_the_drivers_where_there_is_one() -> None:
    def change(made: Any) -> None:
        the(made, "StorageClass", "fsx").update(provisioner="ebs.csi.aws.com")

    assert judged()["storage/class/fsx"].status is CheckStatus.PASS
    assert judged(change)["storage/class/fsx"].status is CheckStatus.FAIL
    missing = judged(lambda made: without(made, "StorageClass", "fsx"))["storage/class/fsx"]
    assert missing.status is CheckStatus.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda made: without(made, "StorageClass", "gp3"), "no class is the default"),
        (
            lambda made: the(made, "StorageClass", "fsx")["metadata"].update(annotations={DEFAULT: "true"}),
            "fsx, gp3 all are",
        ),
        (
            lambda made: the(made, "StorageClass", "gp3")["metadata"].update(annotations={DEFAULT: "false"}),
            "no class is the default",
        ),
    ],
)
def test_exactly_one_class_is_the_default(spoil: Callable[[Any], object], said: str) -> None:
    assert judged()["storage/class/default"].detail == "gp3"
    check = judged(spoil)["storage/class/default"]
    assert check.status is CheckStatus.FAIL
    assert said in check.detail


def test_a_node_that_does_not_know_a_driver_that_runs_there_is_named() -> None:
    def node(made: Any) -> Any:
        return the(made, "CSINode", "trn1")["spec"]

    found = judged(lambda made: node(made).update(drivers=[{"name": "ebs.csi.aws.com"}]))["storage/drivers"]
    assert (found.status, found.faults) == (CheckStatus.FAIL, ("trn1: without the driver of fsx-csi-node",))
    assert found.remedy == "kubectl -n kube-system rollout restart daemonset fsx-csi-node registers it again"
    assert judged(lambda made: without(made, "CSINode", "trn1"))["storage/drivers"].status is CheckStatus.FAIL

    def starts(made: Any) -> None:
        without(made, "CSINode", "trn1")
        for name in ("ebs-csi-node", "fsx-csi-node"):
            the(made, "DaemonSet", name)["status"]["numberReady"] = 4

    assert judged(starts)["storage/drivers"].status is CheckStatus.PASS, "its pod there is not ready yet"


def test_a_lost_claim_names_its_volume() -> None:
    def lost(made: Any) -> None:
        the(made, "PersistentVolumeClaim", "fsx-claim")["status"].update(phase="Lost")

    assert judged(lost)[CLAIM].detail == "is Lost: its volume pv-training is gone"
