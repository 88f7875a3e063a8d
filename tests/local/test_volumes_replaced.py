"""Another file system, or none: its claims are replaced, or deleted, unless a team's pods hold them."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import volumes_stack
from volumes_stack import Stack, succeeded
from waiting import until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stack(binaries: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    assert binaries
    with volumes_stack.running(tmp_path_factory.mktemp("volumes")) as stack:
        yield stack


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


def volume(stack: Stack, team: str) -> str:
    """The volume of the team's claim."""
    [claim] = stack.get("pvc", "-n", team)
    return str(claim["spec"]["volumeName"])


def test_a_volume_that_ends_stays_for_a_running_pod_and_is_made_anew_without(stack: Stack) -> None:
    """It ends when its claim is gone, which waits for pods: said at once, and not after five minutes."""
    succeeded(stack.up("vision"))
    stack.run_pod("vision", finishes=False)
    stack.project.kubectl("dev", "delete", "pv", volume(stack, "vision"), "--wait=false")
    code, said = stack.up("vision")
    assert code == 1
    assert "PersistentVolumeClaim vision/fsx-claim is not deleted while pods hold it" in said
    stack.project.kubectl("dev", "delete", "-n", "vision", "pod/train")
    succeeded(stack.up("vision"))
    assert stack.claims()["vision"] == "fs-1::vision"


def test_a_claim_whose_volume_is_gone_is_made_anew_with_it(stack: Stack) -> None:
    succeeded(stack.up("vision"))
    name = volume(stack, "vision")
    stack.project.kubectl("dev", "delete", "pv", name, "--wait=false")
    stack.project.kubectl("dev", "patch", "pv", name, "-p", '{"metadata": {"finalizers": null}}')
    until(lambda: stack.get("pvc", "-n", "vision")[0]["status"]["phase"] == "Lost", "the claim is lost")
    succeeded(stack.up("vision"))
    assert stack.claims()["vision"] == "fs-1::vision"
    assert stack.get("pvc", "-n", "vision")[0]["status"]["phase"] == "Bound"


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
