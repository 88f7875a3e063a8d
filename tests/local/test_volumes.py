"""Teams and their claims end by themselves, whatever pods mount them: with the real pvc-protection."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import volumes_stack
from volumes_stack import Stack, succeeded

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stack(binaries: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    assert binaries
    with volumes_stack.running(tmp_path_factory.mktemp("volumes")) as stack:
        yield stack


@pytest.mark.parametrize("finishes", [True, False], ids=["finished", "running"])
def test_a_namespace_goes_with_the_pods_that_hold_its_claim(stack: Stack, finishes: bool) -> None:
    succeeded(stack.up("vision", "speech"))
    assert stack.claims() == {team: f"fs-1::{team}" for team in ("vision", "speech", "lustre-setup")}
    stack.run_pod("speech", finishes=finishes)
    succeeded(stack.up("vision"))
    assert set(stack.claims()) == {"vision", "lustre-setup"}
    assert "speech" not in {each["metadata"]["name"] for each in stack.get("namespaces")}
    assert {each["spec"]["claimRef"]["namespace"] for each in stack.get("pv")} == {"vision", "lustre-setup"}


def test_everything_goes_with_finished_and_running_pods_in_place(stack: Stack) -> None:
    succeeded(stack.up("vision", "speech"))
    stack.run_pod("vision", finishes=True)
    stack.run_pod("speech", finishes=False)
    succeeded(stack.up(file_system=""))
    assert stack.get("pv") == []
    assert stack.get("pvc", "-A") == []
    left = {each["metadata"]["name"] for each in stack.get("namespaces")}
    assert left == {"default", "kube-system", "kube-public", "kube-node-lease"}
