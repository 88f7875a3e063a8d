"""A new version of the library removes nothing from the stacks of a released one unannounced."""

from pathlib import Path

import pytest
import releases
from golden import ENVIRONMENTS
from hand_built import changed, environment, without

import trainium_eks
from trainium_eks.model.catalogue.versions import numbers
from trainium_eks.plan.differences import diff

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
GUIDE = (ROOT / "docs" / "upgrading.md").read_text()
KEPT = [(version, name) for version in releases.versions() for name in ENVIRONMENTS]


@pytest.mark.parametrize(("version", "name"), KEPT, ids=["-".join(each) for each in KEPT])
def test_resource_with_data_is_not_lost_unannounced(version, name):
    before = releases.load(version, name)
    after = releases.now(before)
    found = releases.losses(before, after)
    listed = releases.reviewed(version)
    unsaid = {what: why for what, why in found.items() if what not in listed}
    assert unsaid == {}, (
        f"a stack that {version} made would lose this: give the resource an alias, or enter it with its reason in "
        f"{releases.REVIEWED.name} and docs/upgrading.md; while {version} is not tagged: tests/releases.py {version}"
    )
    assert [change.refused for change in diff.compare(before, after).items if change.refused] == []


def test_versions_are_kept_and_reviewed_losses_are_in_the_guide():
    assert max(map(numbers, releases.versions())) <= numbers(trainium_eks.__version__)
    for version in releases.versions():
        for what, reason in releases.reviewed(version).items():
            assert reason.strip()
            assert what.rpartition(" ")[2] in GUIDE, f"docs/upgrading.md does not name {what}"


LUSTRE = "aws:fsx/lustreFileSystem:LustreFileSystem lustre"


def test_replaced_file_system_and_network_are_losses_and_updates_are_not():
    before = environment()
    assert releases.losses(before, changed(before, "lustre", deploymentType="SCRATCH_2")) == {
        f"replace {LUSTRE}": "deploymentType"
    }
    assert f"replace {LUSTRE}" in releases.losses(before, changed(before, "vpc", cidrBlock="10.1.0.0/16"))
    assert releases.losses(before, without(before, "lustre")) == {f"delete {LUSTRE}": "its URN is gone"}
    assert releases.losses(before, changed(before, "control-plane", version="1.36")) == {}
